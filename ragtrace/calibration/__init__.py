"""Calibration: measures a judge against human labels, and recommends its form and thresholds."""
