"""The body of an answer, piece by piece: unpacked as it comes, and never more of it than may be."""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Final
from urllib.parse import urljoin, urlsplit

_PLAIN: Final = ("", "identity")
_PACKED: Final = ("gzip", "x-gzip", "deflate")
_OF_EITHER_KIND: Final = zlib.MAX_WBITS | 32
_MIB: Final = 1 << 20


class UnreadableBody(Exception):
    """The body of an answer cannot be read. Says why, for people, and holds nothing of it."""


class BodyTooLarge(UnreadableBody):
    """The body of an answer is longer than it may be, as it came or unpacked."""


class Body:
    """Takes the pieces of one body. It holds no more than ``most_bytes``, whatever they unpack to.

    Layers of packing (``gzip, gzip``) and what was not asked for (``br``, ``zstd``) are refused.

    Raises:
        Unreadable: it is packed in such a way.
    """

    def __init__(self, coding: str | None, *, most_bytes: int) -> None:
        self._unpacking = _unpacking(coding or "")
        self._most_bytes = most_bytes
        self._came_bytes = 0
        self._held = BytesIO()

    def take(self, piece: bytes) -> None:
        """Take the next piece as it came.

        Raises:
            Oversized: with it, there is more than may be.
            Unreadable: it cannot be unpacked.
        """
        self._came_bytes += len(piece)
        left = self._most_bytes - self._held.tell()
        plain = piece if self._unpacking is None else self._unpacked(piece, left + 1)
        if self._came_bytes > self._most_bytes or len(plain) > left:
            self._held = BytesIO()  # what handles the error holds this, too
            raise BodyTooLarge(
                f"it is longer than {_amount(self._most_bytes)}, which is the most that is read"
            )
        self._held.write(plain)

    def whole(self) -> bytes:
        """Return the body, now that no piece is missing.

        Raises:
            Unreadable: it is cut off.
        """
        if self._unpacking is not None and self._came_bytes and not self._unpacking.eof:
            raise UnreadableBody("it is packed, and cut off")
        return self._held.getvalue()

    def _unpacked(self, piece: bytes, most: int) -> bytes:
        assert self._unpacking is not None
        try:
            plain = self._unpacking.decompress(piece, most)
        except zlib.error:
            raise UnreadableBody("it cannot be unpacked") from None
        if self._unpacking.unused_data:
            raise UnreadableBody("it goes on behind its end")
        return plain


def host_of_redirect(status: int, location: str | None, *, asked: str) -> str | None:
    """Return the host that an answer to a request points to, or ``None`` if it is no redirect.

    The host alone: user, path and query may hold what only the one who was redirected should know.
    """
    if not 300 <= status < 400 or not location:
        return None
    try:
        host = urlsplit(urljoin(asked, location)).hostname
    except ValueError:
        host = None
    return host if host and host.isprintable() else "no address"


def _unpacking(coding: str) -> zlib._Decompress | None:
    name = coding.strip().lower()
    if name in _PLAIN:
        return None
    if name not in _PACKED:
        raise UnreadableBody(f"it is packed as {name[:40]!r}, which was not asked for")
    return zlib.decompressobj(wbits=_OF_EITHER_KIND)


def _amount(number: int) -> str:
    return f"{number // _MIB} MiB" if number >= _MIB else f"{number:,} bytes"
