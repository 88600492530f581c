"""Read a response body piece by piece, decompressing as it arrives, up to a size limit."""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Final

_PLAIN: Final = ("", "identity")
_PACKED: Final = ("gzip", "x-gzip", "deflate")
_OF_EITHER_KIND: Final = zlib.MAX_WBITS | 32
_MIB: Final = 1 << 20


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
