"""Readers and sinks of trace back ends."""

from __future__ import annotations

from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.opening import (
    MemorySink,
    accepts_logs,
    accepts_spans,
    open_carrier_sink,
    open_logs_sink,
    open_reader,
    open_sink,
    reads_openinference,
)
from ragtrace.backends.otlp_files import OtlpFileReader, holds_traces
from ragtrace.backends.otlp_sinks import OtlpFileSink, OtlpGrpcSink, OtlpHttpSink

__all__ = [
    "MemorySink",
    "open_reader",
    "open_sink",
]
