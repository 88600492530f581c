"""What an OTLP receiver's answer means for the sender."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.errors import SendRejected

__all__ = ["raise_for_rejected_spans"]


def raise_for_rejected_spans(sink: str, answer: ExportTraceServiceResponse) -> None:
    """Raise SendRejected where the receiver took only a part: OTLP forbids to send the rest again.

    A message without rejected spans is a warning by the specification, and the request was taken.
    """
    partial = answer.partial_success
    if partial.rejected_spans:
        why = partial.error_message or "no reason given"
        raise SendRejected(f"{sink} rejected {partial.rejected_spans} spans: {why}", partial=True)
