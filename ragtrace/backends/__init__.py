"""Readers and sinks of trace back ends."""

from __future__ import annotations

from ragtrace.backends._otlp_file_reader import OtlpFileReader, holds_traces
from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.memory import MemorySink
from ragtrace.backends.otlp_file import OtlpFileSink
from ragtrace.backends.otlp_grpc import OtlpGrpcSink
from ragtrace.backends.otlp_http import OtlpHttpSink
from ragtrace.backends.readers import open_reader
from ragtrace.backends.sinks import (
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
