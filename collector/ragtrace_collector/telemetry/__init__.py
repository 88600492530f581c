"""Telemetry: logs, counters and spans about the collector itself."""
