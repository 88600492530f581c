"""The clients: httpx for back ends, aiohttp for judges, and what an SDK's own client is made of."""

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
"""What `Body` unpacks, and nothing else, even where packages are installed that bring more."""


def open_web_client(
    *, verify: ssl.SSLContext | bool = True, timeout_s: float, headers: Mapping[str, str] | None = None
) -> httpx.AsyncClient:
    """Open what asks back ends. ``timeout_s`` is for each piece: whoever asks bounds the whole.

    Read its answers with `read_whole`, from a stream.
    """
    import httpx

    return httpx.AsyncClient(
        headers={**ASKED_CODING, **(headers or {})},
        verify=verify,
        timeout=timeout_s,
        follow_redirects=False,
    )


def redirected_to(response: httpx.Response) -> str | None:
    """Return the host that an answer points to, which is never followed; ``None`` if it is no redirect."""
    location = response.headers.get("location")
    return host_of_redirect(response.status_code, location, asked=str(response.url))


async def read_whole(response: httpx.Response, *, most_bytes: int) -> bytes:
    """Read the body of an answer that is streamed.

    Raises:
        Oversized: it is longer than ``most_bytes``, unpacked or not.
        Unreadable: it cannot be unpacked, or was packed in a way that was not asked for.
    """
    body = Body(response.headers.get("content-encoding"), most_bytes=most_bytes)
    async for piece in response.aiter_raw():
        body.take(piece)
    return body.whole()


def reading_whole(most_bytes: int) -> Mapping[str, Any]:
    """Return what an SDK's client of httpx, or of its kin, is to be made with: it reads so much and no more.

    A request then raises what `read_whole` does.
    """

    async def read(response: Any) -> None:
        body = Body(response.headers.get("content-encoding"), most_bytes=most_bytes)
        async for piece in response.stream:
            body.take(piece)
        await response.stream.aclose()
        response.headers.pop("content-encoding", None)
        # of the package that the SDK speaks through: it takes no stream of another
        response.stream = import_module(type(response).__module__.partition(".")[0]).ByteStream(body.whole())

    hook: Callable[[Any], Awaitable[None]] = read
    return {"follow_redirects": False, "headers": ASKED_CODING, "event_hooks": {"response": [hook]}}


def open_session(
    *, ssl_context: ssl.SSLContext | bool, timeout_s: float, headers: Mapping[str, str]
) -> aiohttp.ClientSession:
    """Open what asks judges and embedders. ``timeout_s`` is for a whole answer.

    Bodies come as they were sent, for `Body` to unpack. Each request has to say ``allow_redirects=False``:
    aiohttp knows it by request only.
    """
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=ssl_context),  # what limits calls is a layer above
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={**ASKED_CODING, **headers},
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        auto_decompress=False,
    )
