"""Gzip-compressed bodies, of one or more members (RFC 1952, section 2.2)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Final

from google.rpc import code_pb2

from ragtrace_collector.web.tokens import RequestRefused, too_large

_STEP_BYTES: Final = 1 << 20
_MAX_MEMBERS: Final = 1_000
"""Each needs its own decompressor, and an empty one is only twenty bytes long."""


async def inflated(pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Decompress step by step, so that the reader can refuse a zip bomb early.

    Raises:
        RequestRefused: the body is not gzip, is truncated, has trailing bytes, or more than ``limit``
            compressed bytes.
    """
    inflate, whole, packed = _new(), 0, 0
    try:
        async for piece in pieces:
            packed += len(piece)  # a gzip stream can be endless and decompress to nothing
            if packed > limit:
                raise too_large(limit)
            rest = piece
            while rest:
                if inflate.eof:
                    inflate, whole = _new(), _next(whole)
                step = inflate.decompress(rest, _STEP_BYTES)
                rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
                yield step
                await asyncio.sleep(0)  # one piece may unfold to a thousand times its size
    except zlib.error as exc:
        raise _broken(whole, f"the body is not gzip: {exc}") from exc
    if not inflate.eof:
        raise _broken(whole, "the gzip body is truncated")


def _new() -> zlib._Decompress:
    return zlib.decompressobj(wbits=31)


def _next(whole: int) -> int:
    if whole + 1 == _MAX_MEMBERS:
        raise RequestRefused(
            code_pb2.INVALID_ARGUMENT, f"the body has more than {_MAX_MEMBERS:,} gzip members: send fewer"
        )
    return whole + 1


def _broken(whole: int, said: str) -> RequestRefused:
    if whole:
        said = f"after {whole} gzip member{'s' * (whole > 1)} the body has bytes that are not a whole member"
    return RequestRefused(code_pb2.INVALID_ARGUMENT, said)
