"""Split an OTLP file into messages, in the forms of the OpenTelemetry Collector's file exporter.

JSON lines; JSON over several lines; messages with a four-byte length prefix (``format: proto``, or any format
with ``compression: zstd``); one bare protobuf message. A whole file may be compressed (gzip, zstd).
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/fileexporter
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, Final, NamedTuple, cast

from ragtrace.errors import ConfigError, InputError
from ragtrace.extras import install_command
from ragtrace.traces.otlp import Encoding

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_LENGTH_BYTES: Final = 4
_FIRST_FIELD: Final = 0x0A
"""The first byte of a bare message."""
_MOST_BYTES: Final = 512 << 20
"""The size limit of a message: a larger number is not a length."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Bytes that never occur in text, but soon occur in a message, because its ids and times are binary."""


class OtlpFrame(NamedTuple):
    """One unparsed message."""

    where: str
    """File and line, for messages."""
    encoding: Encoding
    body: bytes


def pieces(file: BinaryIO, name: str) -> Iterator[OtlpFrame]:
    """Yield the messages of an open file, with one message at a time in memory.

    Raises:
        InputError: it has an unknown form, or is cut off; names the file and the place.
        ConfigError: it is compressed with zstd, but the extra for zstd is not installed.
        OSError: it cannot be read.
    """
    try:
        yield from _pieces(_plain(file), name)
    except _unpacking_errors() as exc:
        raise InputError(f"{name}: cannot be decompressed to its end: {exc}") from exc


def has_whole_lines(file: BinaryIO) -> bool:
    """Return whether an open file has a JSON message on each line, neither compressed nor framed."""
    first = file.readline(_MOST_BYTES)
    if not first.startswith(b"{") or _CONTROL.search(first[:_LENGTH_BYTES]):
        return False
    return _is_whole(first.strip())


def _pieces(plain: io.BufferedReader, name: str) -> Iterator[OtlpFrame]:
    head = plain.peek(_LENGTH_BYTES)
    if not _CONTROL.search(head):
        yield from _json(plain, name)
    elif _is_length(head):
        yield from _framed(plain, name)
    else:
        yield OtlpFrame(name, "protobuf", plain.read())


def _plain(file: BinaryIO) -> io.BufferedReader:
    """Decompress the file, if it is compressed as a whole."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", file))
    head = buffered.peek(_LENGTH_BYTES)
    if head.startswith(_GZIP):
        return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=buffered)))
    if head.startswith(_ZSTD):
        return io.BufferedReader(_zstd().ZstdFile(buffered))
    return buffered


def _json(plain: io.BufferedReader, name: str) -> Iterator[OtlpFrame]:
    is_first = True
    for number, line in enumerate(plain, 1):
        text = line.strip().removeprefix(b"\xef\xbb\xbf")
        if text and is_first and not _is_whole(text):
            yield from _documents(text + b"\n", plain, name, number)
            return
        if text:
            is_first = False
            yield OtlpFrame(f"{name}, line {number}", "json", text)


def _is_whole(line: bytes) -> bool:
    """Return whether a line is a message by itself, not the first line of a multi-line message."""
    return line not in (b"{", b"[") and not line.endswith((b"{", b"[", b","))


def _documents(start: bytes, plain: io.BufferedReader, name: str, number: int) -> Iterator[OtlpFrame]:
    """Read formatted JSON: a document ends with its closing bracket."""
    decoder, text = json.JSONDecoder(), (start + plain.read()).decode("utf-8", "surrogateescape").strip()
    while text:
        try:
            tree, end = decoder.raw_decode(text)
        except (ValueError, RecursionError) as exc:
            raise InputError(f"{name}, line {number}: not OTLP JSON: {exc}") from exc
        for each in tree if isinstance(tree, list) else [tree]:
            yield OtlpFrame(f"{name}, line {number}", "json", json.dumps(each).encode())
        number += text.count("\n", 0, end) + 1
        text = text[end:].lstrip()


def _is_length(head: bytes) -> bool:
    return head[0] <= _MOST_BYTES >> 24 and head[0] != _FIRST_FIELD


def _framed(plain: io.BufferedReader, name: str) -> Iterator[OtlpFrame]:
    number = 0
    while head := plain.read(_LENGTH_BYTES):
        number += 1
        where = f"{name}, message {number}"
        length = int.from_bytes(head, "big")
        body = plain.read(length) if length <= _MOST_BYTES else b""
        if len(head) < _LENGTH_BYTES or len(body) < length:
            raise InputError(f"{where}: cut off, or not OTLP: its length prefix says {length:,} bytes")
        if body.startswith(_ZSTD):
            body = _zstd().decompress(body)
        yield OtlpFrame(where, "json" if body[:1] == b"{" else "protobuf", body)


def _zstd() -> Any:
    """Import the module of Python 3.14, or its backport."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    raise ConfigError(f"reading zstd needs the extra `zstd`: {install_command('zstd')}")


def _unpacking_errors() -> tuple[type[Exception], ...]:
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    with suppress(ConfigError):
        errors += (_zstd().ZstdError,)
    return errors
