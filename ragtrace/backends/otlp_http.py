"""OTLP over HTTP: the sink."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Final, Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.backends._otlp_answer import raise_for_rejected_spans
from ragtrace.backends.posting import Poster
from ragtrace.tls import ClientTls

__all__ = ["OtlpHttpSink"]

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
"""https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes: no other code may be retried."""


class OtlpHttpSink:
    """Post requests as binary protobuf to an OTLP/HTTP receiver's full URL (``…/v1/traces``)."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
        compression: Literal["none", "gzip"] = "none",
    ) -> None:
        self._poster = Poster(url, headers=headers, tls=tls, timeout_s=timeout_s, retryable=_RETRYABLE)
        self._compression = compression

    @property
    def name(self) -> str:
        """The URL without user, password and query."""
        return self._poster.name

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

    async def aclose(self) -> None:
        """Close the connections."""
        await self._poster.aclose()


def _answer(body: bytes) -> ExportTraceServiceResponse:
    try:
        return ExportTraceServiceResponse.FromString(body)
    except DecodeError:
        # a proxy that answers 200 with a page of its own: the status says the spans were taken
        return ExportTraceServiceResponse()
