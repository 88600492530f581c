"""Objectives as rules of Prometheus and Grafana, and the alerts that need neither."""
