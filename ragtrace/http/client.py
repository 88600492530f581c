"""The one way to an httpx client: no redirects, bounded replies, and no login in any log.

| what | how |
| --- | --- |
| TLS | ``verify``, from `ragtrace.http.tls.ClientTls.context`; by default certifi's or ``SSL_CERT_FILE`` |
| proxies | from ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, as httpx reads them |
| redirects | never followed; `redirected_to` names the host, and nothing else of the target |
| replies | at most ``most_bytes``, compressed or not, counted while they are read: a zip bomb ends there |
| a login in the URL | sent as ``authorization: Basic``, and gone from the URL before httpx logs it |
| time-outs | ``timeout_s`` for each piece; the caller bounds the whole with ``asyncio.timeout`` |

An SDK takes such a client as its ``http_client``: ``AsyncOpenAI(http_client=open_client(…), max_retries=0)``.
Or it makes its own of `client_options`. Then reading a reply raises `BodyTooLarge` or `UnreadableBody`; an
SDK may make it the cause of its own error.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Mapping
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import ssl

    import httpx


_PLAIN: Final = ("", "identity")
_PACKED: Final = ("gzip", "x-gzip", "deflate")
_OF_EITHER_KIND: Final = zlib.MAX_WBITS | 32
_MIB: Final = 1 << 20
_REDIRECTS_TO: Final = "ragtrace.redirects_to"
ASKED_CODING: Final = {"accept-encoding": "gzip"}
"""The encodings that `Body` supports, even if installed packages support more."""


def open_client(
    *,
    timeout_s: float,
    most_bytes: int,
    verify: ssl.SSLContext | bool = True,
    headers: Mapping[str, str] | None = None,
    most_connections: int = 100,
) -> httpx.AsyncClient:
    """Open a client. Its responses are read as any of httpx: ``await response.aread()``, streamed or not.

    Args:
        timeout_s: For each piece of an exchange, not for the whole.
        most_bytes: The size limit of one reply, compressed and decompressed.
        verify: How servers are trusted, with the client's certificate.
        headers: Sent with every request.
        most_connections: Open at once.

    Reading a reply raises `BodyTooLarge` beyond ``most_bytes``, and `UnreadableBody` if it cannot be
    decompressed, is cut off, or has an encoding that was not requested.
    """
    import httpx

    return httpx.AsyncClient(
        **client_options(most_bytes, headers),
        verify=verify,
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=most_connections),
    )


def client_options(most_bytes: int, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what keeps redirects, replies and logins in bounds, for an SDK's own httpx-like client."""
    return {
        "follow_redirects": False,
        "headers": {**ASKED_CODING, **(headers or {})},
        "event_hooks": {"request": [_hide_login], "response": [_bounding(most_bytes)]},
    }


def without_secrets(url: str) -> str:
    """Return a URL, or what should be one, without user, password and query."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{mark}{rest.partition('?')[0].rpartition('@')[2]}"


def redirected_to(response: httpx.Response) -> str | None:
    """Return the host of a redirect, which the client did not follow; ``None`` if it is not a redirect."""
    host: str | None = response.extensions[_REDIRECTS_TO]
    return host


def host_of_redirect(status: int, location: str | None, *, asked: str) -> str | None:
    """Return the host of a redirect, or ``None`` if the response is not a redirect.

    Only the host, because user, path and query may hold secrets.
    """
    if not 300 <= status < 400 or not location:
        return None
    try:
        host = urlsplit(urljoin(asked, location)).hostname
    except ValueError:
        host = None
    return host if host and host.isprintable() else "no address"


async def _hide_login(request: Any) -> None:
    # httpx has made the header by now; its log line and its errors show the URL
    if request.url.userinfo:
        request.url = request.url.copy_with(username=None, password=None)


def _bounding(most_bytes: int) -> Any:
    async def bound(response: Any) -> None:
        _note_redirect(response)
        coding = response.headers.pop("content-encoding", None)  # or httpx would decompress, without a limit
        kind = _bounded_stream(_package_of(response))
        response.stream = kind(response.stream, coding, most_bytes)

    return bound


def _note_redirect(response: Any) -> None:
    location, asked = response.headers.get("location"), response.request.url
    if location is None:
        response.extensions[_REDIRECTS_TO] = None
        return
    response.extensions[_REDIRECTS_TO] = host_of_redirect(response.status_code, location, asked=str(asked))
    try:
        type(asked)(location)
    except import_module(_package_of(response)).InvalidURL:  # httpx would fail, and quote a part of it
        del response.headers["location"]


def _package_of(response: Any) -> str:
    """Return ``httpx``, or the name of an SDK's copy of it."""
    return type(response).__module__.partition(".")[0]


@cache
def _bounded_stream(package: str) -> Any:
    """Return a stream class for the responses of a package, which accepts only its own."""
    kind: Any = import_module(package).AsyncByteStream

    class BoundedStream(kind):  # type: ignore[misc]  # one of two packages' classes
        """Another stream, decompressed, up to a limit."""

        def __init__(self, inner: Any, coding: str | None, most_bytes: int) -> None:
            self._inner = inner
            self._coding = coding
            self._most_bytes = most_bytes

        async def __aiter__(self) -> AsyncIterator[bytes]:
            body = Body(self._coding, most_bytes=self._most_bytes)
            async for piece in self._inner:
                body.take(piece)
            yield body.whole()

        async def aclose(self) -> None:
            await self._inner.aclose()

    return BoundedStream


class UnreadableBody(Exception):
    """A response body cannot be read. The message gives the reason and quotes nothing of the body."""


class BodyTooLarge(UnreadableBody):
    """A response body exceeds the limit, compressed or decompressed."""


class Body:
    """Collects the pieces of one body. It holds at most ``most_bytes``, also after decompression.

    Nested encodings (``gzip, gzip``) and unrequested ones (``br``, ``zstd``) are refused.

    Raises:
        UnreadableBody: it has such an encoding.
    """

    def __init__(self, coding: str | None, *, most_bytes: int) -> None:
        self._unpacking = _unpacking(coding or "")
        self._most_bytes = most_bytes
        self._came_bytes = 0
        self._held = BytesIO()

    def take(self, piece: bytes) -> None:
        """Add the next received piece.

        Raises:
            BodyTooLarge: the body now exceeds the limit.
            UnreadableBody: it cannot be decompressed.
        """
        self._came_bytes += len(piece)
        left = self._most_bytes - self._held.tell()
        plain = piece if self._unpacking is None else self._unpacked(piece, left + 1)
        if self._came_bytes > self._most_bytes or len(plain) > left:
            self._held = BytesIO()  # the error's traceback would keep the data in memory
            raise BodyTooLarge(f"it is longer than {_amount(self._most_bytes)}, the most that ragtrace reads")
        self._held.write(plain)

    def whole(self) -> bytes:
        """Return the complete body, after the last piece.

        Raises:
            UnreadableBody: it is cut off.
        """
        if self._unpacking is not None and self._came_bytes and not self._unpacking.eof:
            raise UnreadableBody("it is compressed and cut off")
        return self._held.getvalue()

    def _unpacked(self, piece: bytes, most: int) -> bytes:
        assert self._unpacking is not None
        try:
            plain = self._unpacking.decompress(piece, most)
        except zlib.error:
            raise UnreadableBody("it cannot be decompressed") from None
        if self._unpacking.unused_data:
            raise UnreadableBody("it continues after its end")
        return plain


def _unpacking(coding: str) -> zlib._Decompress | None:
    name = coding.strip().lower()
    if name in _PLAIN:
        return None
    if name not in _PACKED:
        raise UnreadableBody(f"it is compressed as {name[:40]!r}, which was not requested")
    return zlib.decompressobj(wbits=_OF_EITHER_KIND)


def _amount(number: int) -> str:
    return f"{number // _MIB} MiB" if number >= _MIB else f"{number:,} bytes"
