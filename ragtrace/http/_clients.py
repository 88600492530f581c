"""The HTTP clients: httpx for back ends, aiohttp for judges, and options for an SDK's own client."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ragtrace.http._body import Body, host_of_redirect

if TYPE_CHECKING:
    import aiohttp
    import httpx


ASKED_CODING: Final = {"accept-encoding": "gzip"}
"""The encodings that `Body` supports, even if installed packages support more."""


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

    Its requests then raise the same errors as `read_whole`.
    """

    async def read(response: Any) -> None:
        body = Body(response.headers.get("content-encoding"), most_bytes=most_bytes)
        async for piece in response.stream:
            body.take(piece)
        await response.stream.aclose()
        response.headers.pop("content-encoding", None)
        # the stream class of the SDK's own package: it accepts no other
        response.stream = import_module(type(response).__module__.partition(".")[0]).ByteStream(body.whole())

    hook: Callable[[Any], Awaitable[None]] = read
    return {"follow_redirects": False, "headers": ASKED_CODING, "event_hooks": {"response": [hook]}}


def open_session(
    *, ssl_context: ssl.SSLContext | bool, timeout_s: float, headers: Mapping[str, str]
) -> aiohttp.ClientSession:
    """Open a session for judges and embedders. ``timeout_s`` applies to a whole response.

    Bodies arrive undecoded, for `Body` to decompress. Each request must pass ``allow_redirects=False``,
    because aiohttp has no session-wide setting.
    """
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=ssl_context),  # a layer above limits the calls
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={**ASKED_CODING, **headers},
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        auto_decompress=False,
    )
