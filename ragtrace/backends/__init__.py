"""Readers and sinks of trace back ends."""

from __future__ import annotations

from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.otlp_file import OtlpFileSink
from ragtrace.backends.otlp_reader import OtlpFileReader, holds_traces
from ragtrace.backends.otlp_sinks import OtlpGrpcSink, OtlpHttpSink
from ragtrace.backends.readers import open_reader
from ragtrace.backends.sinks import (
    MemorySink,
    accepts_logs,
    accepts_spans,
    open_carrier_sink,
    open_logs_sink,
    open_sink,
    reads_openinference,
)

__all__ = [
    "MemorySink",
    "open_reader",
    "open_sink",
]
