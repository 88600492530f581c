"""Traces: OTLP in and out, carriers, and the records in them."""
