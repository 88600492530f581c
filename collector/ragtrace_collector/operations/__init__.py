"""Operate the collector: pages, its own metrics and traces, logs, signals, systemd."""
