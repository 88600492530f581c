"""Jaeger's query API: the reader."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from ragtrace.errors import CodecError, InputError, ReadError
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Trace

if TYPE_CHECKING:
    import httpx

__all__ = ["JaegerReader"]

_TRACE_ID_DIGITS = 32


class JaegerReader:
    """Read traces from ``/api/v3/traces/{id}``: OTLP JSON, bare or under ``result``."""

    def __init__(self, base_url: str, *, timeout_s: float = 30) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if Jaeger has none.

        Raises:
            ReadError: Jaeger could not be asked, or answered something else.
            InputError: the trace id is not hex.
        """
        trace_id = _normalized(trace_id)
        response = await self._get(f"{self._base_url}/api/v3/traces/{trace_id}")
        if response.status_code == 404:
            return None
        if not response.is_success:
            raise ReadError(
                f"Jaeger at {self._base_url} answered {response.status_code} for trace {trace_id}"
            )
        return self._decode(trace_id, response.text)

    async def traces(self) -> AsyncIterator[Trace]:
        """Refuse: Jaeger has no way to list every trace.

        Raises:
            ReadError: always.
        """
        raise ReadError("Jaeger cannot list every trace: name the trace ids to read")
        yield  # makes this an async generator, as the port wants

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _get(self, url: str) -> httpx.Response:
        import httpx  # loaded by those who read over it

        if self._client is None:
            self._client = httpx.AsyncClient(timeout=self._timeout_s)
        try:
            return await self._client.get(url)
        except (httpx.TransportError, httpx.InvalidURL) as exc:
            raise ReadError(
                f"Jaeger at {self._base_url} cannot be reached: {type(exc).__name__} {exc}"
            ) from exc

    def _decode(self, trace_id: str, body: str) -> Trace | None:
        try:
            spans = [span for part in _parts(body) for span in decode_json(part)]
        except (CodecError, ValueError, RecursionError) as exc:
            raise ReadError(
                f"Jaeger at {self._base_url} answered no OTLP for trace {trace_id}: {exc}"
            ) from exc
        members = [span for span in spans if span.trace_id == trace_id]
        return Trace.of(trace_id, members) if members else None


def _normalized(trace_id: str) -> str:
    digits = trace_id.strip().lower()
    if not digits or len(digits) > _TRACE_ID_DIGITS or set(digits) - set("0123456789abcdef"):
        raise InputError(f"{trace_id!r} is no trace id: give up to {_TRACE_ID_DIGITS} hex digits")
    return digits.zfill(_TRACE_ID_DIGITS)  # Jaeger's page leaves leading zeros out


def _parts(body: str) -> Iterator[str]:
    """Split a body of one or more JSON objects (large traces are streamed), without its wrapper."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(body):
        tree, end = decoder.raw_decode(body, position)
        result = tree.get("result", tree) if isinstance(tree, dict) else tree
        yield json.dumps(result)
        position = end + len(body[end:]) - len(body[end:].lstrip())
