"""Split a file of traces into messages.

OTLP in the forms of the OpenTelemetry Collector's file exporter: JSON lines; JSON over several lines;
messages with a four-byte length prefix (``format: proto``, or any format with ``compression: zstd``); one
bare protobuf message. And JSON of other tools, which `ragtrace.backends._span_documents` converts, perhaps
between the lines of a log. A whole file may be compressed (gzip, zstd) or be in UTF-16.
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/fileexporter
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from ragtrace._unpacking import ZSTD, bounded_lines, read_bounded, unpacked, unpacking_errors, zstd
from ragtrace.backends._span_documents import is_span_document, otlp_json
from ragtrace.errors import CodecError, InputError
from ragtrace.traces.otlp import Encoding

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
    fault: str = ""
    """Why it cannot be read, if that is known."""


def pieces(file: BinaryIO, name: str) -> Iterator[OtlpFrame]:
    """Yield the messages of an open file, with one message at a time in memory.

    Raises:
        InputError: it has an unknown form, or is cut off; names the file and the place.
        ConfigError: it is compressed with zstd, but the extra for zstd is not installed.
        OSError: it cannot be read.
    """
    try:
        yield from _pieces(unpacked(file, name), name)
    except unpacking_errors() as exc:
        raise InputError(f"{name}: cannot be decompressed to its end: {exc}") from exc


def has_whole_lines(file: BinaryIO) -> bool:
    """Return whether an open file has a JSON message on each line, neither compressed nor framed."""
    first = file.readline(_MOST_BYTES)
    if not first.startswith(b"{") or _CONTROL.search(first[:_LENGTH_BYTES]):
        return False
    return _is_whole(first.strip()) and first.startswith(b'{"resourceSpans"')


def holds_spans(file: BinaryIO, name: str) -> bool:
    """Return whether the first JSON document of an open file has spans, or whether it is protobuf.

    Raises:
        InputError: it is damaged, or too large; names the file.
        ConfigError: it is compressed with zstd, but the extra for zstd is not installed.
        OSError: it cannot be read.
    """
    try:
        plain = unpacked(file, name)
        if _CONTROL.search(plain.peek(_LENGTH_BYTES)[:_LENGTH_BYTES]):
            return True
        first = next((line for line in bounded_lines(plain, name) if line.strip()), b"").strip()
        if first and not first.startswith((b"{", b"[", b"\xef\xbb\xbf")):  # a log, perhaps with spans
            documents = _documents(first + b"\n" + read_bounded(plain, name), name, 1)
            return any(not each.fault for each in documents)
        text = first if _is_whole(first) else first + read_bounded(plain, name)
    except unpacking_errors() as exc:
        raise InputError(f"{name}: cannot be decompressed to its end: {exc}") from exc
    try:
        tree, _ = json.JSONDecoder().raw_decode(text.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return False
    return is_span_document(tree)


def _pieces(plain: io.BufferedReader, name: str) -> Iterator[OtlpFrame]:
    head = plain.peek(_LENGTH_BYTES)
    if not _CONTROL.search(head):
        yield from _json(plain, name)
    elif _is_length(head):
        yield from _framed(plain, name)
    else:
        yield OtlpFrame(name, "protobuf", plain.read())


def _json(plain: io.BufferedReader, name: str) -> Iterator[OtlpFrame]:
    is_first = True
    for number, line in enumerate(bounded_lines(plain, name), 1):
        text = line.strip().removeprefix(b"\xef\xbb\xbf")
        if text and is_first and not (_is_whole(text) and text.startswith((b"{", b"["))):
            yield from _documents(text + b"\n" + read_bounded(plain, name), name, number)
            return
        if text:
            is_first = False
            yield from _converted(f"{name}, line {number}", text)


def _is_whole(line: bytes) -> bool:
    """Return whether a line is a message by itself, not the first line of a multi-line message."""
    return line not in (b"{", b"[") and not line.endswith((b"{", b"[", b","))


def _converted(where: str, text: bytes) -> Iterator[OtlpFrame]:
    try:
        body = otlp_json(text)
    except CodecError as exc:
        yield OtlpFrame(where, "json", b"{}", str(exc))
    else:
        if body is not None:
            yield OtlpFrame(where, "json", body)


def _documents(content: bytes, name: str, first_line: int) -> Iterator[OtlpFrame]:
    """Read formatted JSON: a document ends with its closing bracket. Lines of a log between are skipped."""
    decoder, text = json.JSONDecoder(), content.decode("utf-8", "surrogateescape")
    line, counted, position = first_line, 0, 0
    while found := _DOCUMENT.search(text, position):
        start = found.end()
        line, counted = line + text.count("\n", counted, start), start
        where = f"{name}, line {line}"
        try:
            tree, position = decoder.raw_decode(text, start)
        except json.JSONDecodeError as exc:
            if start == 0 or "\n" in text[start : exc.pos]:  # no line of a log, but a broken document
                at = f"line {first_line + exc.lineno - 1}, column {exc.colno}"
                yield OtlpFrame(where, "json", b"{}", f"not OTLP JSON: {exc.msg} at {at}")
            position = max(exc.pos, start + 1)
        except RecursionError:
            yield OtlpFrame(where, "json", b"{}", "not OTLP JSON: nested too deeply")
            return
        else:
            for each in tree if isinstance(tree, list) else [tree]:
                if isinstance(each, dict):
                    yield from _converted(where, json.dumps(each).encode())


_DOCUMENT: Final = re.compile(r"^[ \t]*(?=[{\[])|(?<=[}\]])\s*(?=[{\[])", re.MULTILINE)


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
        if body.startswith(ZSTD):
            body = zstd().decompress(body)
        yield OtlpFrame(where, "json" if body[:1] == b"{" else "protobuf", body)
