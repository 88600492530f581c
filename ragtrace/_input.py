"""Open files as people have them: standard input, read in a thread that can be called off; what gzip or zstd
compressed, and UTF-16, told by content and not by name.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import select
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, Final, cast

from ragtrace.errors import ConfigError, InputError
from ragtrace.extras import install_command

_POLL_S: Final = 0.2

_is_over = threading.Event()


def open_standard_input() -> BinaryIO:
    """Return a reader of its own over standard input: it ends with the input, or at `end_standard_input`.

    A thread that waits in ``sys.stdin`` itself keeps its lock, without which the interpreter cannot end.
    """
    _is_over.clear()
    try:
        return cast("BinaryIO", io.BufferedReader(_Polled(sys.stdin.fileno())))
    except (AttributeError, OSError):  # a replacement stream without a descriptor
        return sys.stdin.buffer


def end_standard_input() -> None:
    """Let every reader of standard input end at once, because the program does."""
    _is_over.set()


class _Polled(io.RawIOBase):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not _is_over.is_set():
            if not _can_wait or select.select([self._descriptor], [], [], _POLL_S)[0]:
                data = os.read(self._descriptor, len(buffer))
                buffer[: len(data)] = data
                return len(data)
        return 0


_can_wait: Final = sys.platform != "win32"
"""Windows waits for sockets alone."""


ZSTD: Final = b"\x28\xb5\x2f\xfd"
_GZIP: Final = b"\x1f\x8b"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
MOST_BYTES: Final = 512 << 20
"""The limit of one document, such as an array of all records or one trace message."""
LONGEST_LINE: Final = 64 << 20


def unpacked(file: BinaryIO, name: str) -> io.BufferedReader:
    """Return the content of an open file, decompressed and as UTF-8 if it begins with the mark of UTF-16.

    Reading from it raises one of `unpacking_errors` if the file is damaged.

    Raises:
        ConfigError: it is compressed with zstd, but the extra for zstd is not installed.
        OSError: it cannot be read.
    """
    raw = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", file))
    head, plain = raw.peek(len(ZSTD)), raw
    if head.startswith(_GZIP):
        plain = _buffered(gzip.GzipFile(fileobj=raw))
    elif head.startswith(ZSTD):
        plain = _buffered(zstd().ZstdFile(raw))
    return _buffered(_AsUtf8(plain, name)) if plain.peek(2).startswith(_UTF_16) else plain


def zstd() -> Any:
    """Import the module of Python 3.14, or its backport.

    Raises:
        ConfigError: neither is there.
    """
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    raise ConfigError(f"reading zstd needs the extra `zstd`: {install_command('zstd')}")


def unpacking_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a compressed file that is damaged or cut off."""
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    with suppress(ConfigError):
        errors += (zstd().ZstdError,)
    return errors


def _buffered(raw: Any) -> io.BufferedReader:
    return io.BufferedReader(raw, 1 << 17)


class _AsUtf8(io.RawIOBase):
    """Reads UTF-16 as UTF-8."""

    def __init__(self, file: io.BufferedReader, name: str) -> None:
        self._file, self._name = file, name
        self._decoder = codecs.getincrementaldecoder("utf-16")()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        is_end = False
        while not self._rest and not is_end:
            chunk = self._file.read(len(buffer))
            is_end = not chunk
            try:
                self._rest = self._decoder.decode(chunk, final=is_end).encode()
            except UnicodeError:
                raise InputError(f"{self._name}: is not UTF-16 to its end: save it as UTF-8") from None
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def bounded_lines(file: io.BufferedReader, name: str) -> Iterator[bytes]:
    """Yield the lines of a file.

    Raises:
        InputError: a line is longer than 64 MiB.
    """
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise InputError(f"{name}, line {number}: is longer than {LONGEST_LINE >> 20} MiB")
        yield line


def read_bounded(file: io.BufferedReader, name: str) -> bytes:
    """Return the rest of a file.

    Raises:
        InputError: it is longer than 512 MiB.
    """
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{name}: is one document of more than {MOST_BYTES >> 20} MiB: write one item a line"
        )
    return content
