"""Deliver: spans and verdicts go to the sinks."""
