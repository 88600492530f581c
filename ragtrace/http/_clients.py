"""The HTTP clients: httpx for back ends, and options for an SDK's own client."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ragtrace.http._body import Body, UnreadableBody, host_of_redirect

if TYPE_CHECKING:
    import httpx


ASKED_CODING: Final = {"accept-encoding": "gzip"}
"""The encodings that `Body` supports, even if installed packages support more."""
_MOST_COMPLAINT_BYTES: Final = 65_536


def open_web_client(
    *, verify: ssl.SSLContext | bool = True, timeout_s: float, headers: Mapping[str, str] | None = None
) -> httpx.AsyncClient:
    """Open a client for back ends. ``timeout_s`` applies to each piece: the caller bounds the total time.

    Read its responses as streams with `read_whole`.
    """
    import httpx

    return httpx.AsyncClient(
        headers={**ASKED_CODING, **(headers or {})},
        verify=verify,
        timeout=timeout_s,
        follow_redirects=False,
    )


def redirected_to(response: httpx.Response) -> str | None:
    """Return the host of a redirect, which is never followed; ``None`` if it is not a redirect."""
    location = response.headers.get("location")
    return host_of_redirect(response.status_code, location, asked=str(response.url))


async def read_whole(response: httpx.Response, *, most_bytes: int) -> bytes:
    """Read the body of a streamed response.

    Raises:
        BodyTooLarge: it is longer than ``most_bytes``, compressed or not.
        UnreadableBody: it cannot be decompressed, or has an unrequested encoding.
    """
    body = Body(response.headers.get("content-encoding"), most_bytes=most_bytes)
    async for piece in response.aiter_raw():
        body.take(piece)
    return body.whole()


def reading_whole(most_bytes: int) -> Mapping[str, Any]:
    """Return the options of an SDK's httpx-like client that bound its response bodies.

    Its requests then raise the same errors as `read_whole`. A complaint (a status of 300 or more) that cannot
    be read is empty: its status says enough.
    """

    async def read(response: Any) -> None:
        is_complaint = response.status_code >= 300
        try:
            whole = await _whole(response, _MOST_COMPLAINT_BYTES if is_complaint else most_bytes)
        except UnreadableBody:
            if not is_complaint:
                raise
            whole = b""
        response.headers.pop("content-encoding", None)
        # the stream class of the SDK's own package: it accepts no other
        response.stream = import_module(type(response).__module__.partition(".")[0]).ByteStream(whole)

    hook: Callable[[Any], Awaitable[None]] = read
    return {"follow_redirects": False, "headers": ASKED_CODING, "event_hooks": {"response": [hook]}}


async def _whole(response: Any, most_bytes: int) -> bytes:
    stream = response.stream
    try:
        body = Body(response.headers.get("content-encoding"), most_bytes=most_bytes)
        async for piece in stream:
            body.take(piece)
        return body.whole()
    finally:
        await stream.aclose()
