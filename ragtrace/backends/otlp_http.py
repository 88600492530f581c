"""OTLP over HTTP: the sink."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.backends._otlp_answer import raise_for_rejected_spans
from ragtrace.backends.posting import PostingSink
from ragtrace.tls import ClientTls

__all__ = ["OtlpHttpSink"]


class OtlpHttpSink(PostingSink):
    """Post requests as binary protobuf to an OTLP/HTTP receiver's full URL (``…/v1/traces``)."""

    retryable = frozenset({429, 502, 503, 504})
    """https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes: no other code may be retried."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
        compression: Literal["none", "gzip"] = "none",
    ) -> None:
        super().__init__(url, headers=headers, tls=tls, timeout_s=timeout_s)
        self._compression = compression

    async def send(self, request: bytes) -> None:
        """Post the request and wait for the receiver's answer.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused, in whole or in part.
            SendRefused: refused whatever is sent.
        """
        headers, body = {"content-type": "application/x-protobuf"}, request
        if self._compression == "gzip":
            headers, body = {**headers, "content-encoding": "gzip"}, gzip.compress(request, mtime=0)
        response = await self._poster.ask("POST", body=body, headers=headers)
        raise_for_rejected_spans(self.name, _answer(response.content))


def _answer(body: bytes) -> ExportTraceServiceResponse:
    try:
        return ExportTraceServiceResponse.FromString(body)
    except DecodeError:
        # a proxy that answers 200 with a page of its own: the status says the spans were taken
        return ExportTraceServiceResponse()
