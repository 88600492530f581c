"""OTLP over HTTP: the sink."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace.backends._otlp_answer import raise_for_rejected_spans
from ragtrace.backends.retry_after import retry_after_s
from ragtrace.errors import SendRefused, SendRejected, SendRetryable
from ragtrace.tls import ClientTls

if TYPE_CHECKING:
    import httpx

__all__ = ["OtlpHttpSink"]

_RETRYABLE = frozenset({429, 502, 503, 504})
"""https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes: no other code may be retried."""
_REFUSING = frozenset({301, 302, 307, 308, 401, 403, 404, 405, 407})
"""These are about the sender or the address, not about what was sent."""


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
        self._url = url
        self._verify = tls.context() if tls else True
        self._headers = {**(headers or {}), "content-type": "application/x-protobuf"}
        self._timeout_s = timeout_s
        self._compression = compression
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """The URL without user, password and query."""
        import httpx

        url = httpx.URL(self._url)
        return str(url.copy_with(username=None, password=None, query=None))

    async def send(self, request: bytes) -> None:
        """Post the request and wait for the receiver's answer.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused, in whole or in part.
            SendRefused: refused whatever is sent.
        """
        import httpx  # loaded by those who send over it

        headers, body = self._headers, request
        if self._compression == "gzip":
            headers, body = {**headers, "content-encoding": "gzip"}, gzip.compress(request, mtime=0)
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx would wait so long for each piece
                response = await self._open().post(self._url, content=body, headers=headers)
        except TimeoutError as exc:
            raise SendRetryable(f"{self.name} did not answer within {self._timeout_s:g} s") from exc
        except httpx.TransportError as exc:
            raise SendRetryable(f"{self.name} could not be reached: {type(exc).__name__} {exc}") from exc
        self._raise_for_status(response)
        raise_for_rejected_spans(self.name, _answer(response.content))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(timeout=self._timeout_s, verify=self._verify)
        return self._client

    def _raise_for_status(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        message = f"{self.name} answered {response.status_code} {response.reason_phrase}"
        if response.status_code in _RETRYABLE:
            wait_s = retry_after_s(response.headers.get("retry-after", ""), now=datetime.now(UTC))
            raise SendRetryable(message, retry_after_s=wait_s)
        raise SendRefused(message) if response.status_code in _REFUSING else SendRejected(message)


def _answer(body: bytes) -> ExportTraceServiceResponse:
    try:
        return ExportTraceServiceResponse.FromString(body)
    except DecodeError:
        # a proxy that answers 200 with a page of its own: the status says the spans were taken
        return ExportTraceServiceResponse()
