"""Interpret an OTLP receiver's response."""

from __future__ import annotations

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.errors import SendRejected


def parse_answer(body: bytes) -> ExportTraceServiceResponse | None:
    """Parse a response in protobuf or JSON, which some receivers always send; ``None`` if it is neither."""
    try:
        return ExportTraceServiceResponse.FromString(body)
    except DecodeError:
        pass
    try:
        return json_format.Parse(body, ExportTraceServiceResponse(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError):
        return None


def raise_for_rejected_spans(sink: str, answer: ExportTraceServiceResponse) -> None:
    """Raise SendRejected if the receiver took only a part: OTLP forbids retrying the same request.

    By the specification, a message without rejected spans is a warning, and the request was accepted.
    """
    partial = answer.partial_success
    if partial.rejected_spans:
        why = partial.error_message or "no reason given"
        raise SendRejected(f"{sink} rejected {partial.rejected_spans} spans: {why}", partial=True)
