"""Read traces from OTLP files: one file, a folder, or standard input.

OTLP in the forms of the OpenTelemetry Collector's file exporter: JSON lines; JSON over several lines;
messages with a four-byte length prefix (``format: proto``, or any format with ``compression: zstd``); one
bare protobuf message. A whole file may be compressed (gzip, zstd) or be in UTF-16.
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/fileexporter

JSON of other tools, perhaps between the lines of a log, becomes OTLP's: what people download from Jaeger's
page and Tempo's API, what OpenTelemetry's console exporters of Python and Go print, Zipkin's JSON, and OTLP
with snake_case names, base64 ids or old scopes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, ParamSpec, TypeVar

from ragtrace._input import (
    ZSTD,
    bounded_lines,
    end_standard_input,
    open_standard_input,
    read_bounded,
    unpacked,
    unpacking_errors,
    zstd,
)
from ragtrace.backends.jaeger import spans_of_v2
from ragtrace.errors import CodecError, InputError, ReadError
from ragtrace.model import AttributeValue
from ragtrace.traces.otlp import Encoding, encode, parse_request, read_spans, trace_ids_in
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, StatusCode, Trace

_STANDARD_INPUT: Final = "-"
_BATCH_BYTES: Final = 256 << 10
_TRACE_ID: Final = re.compile(rb'"traceId"\s*:\s*"([0-9A-Fa-f]{32})"')

P = ParamSpec("P")
T = TypeVar("T")
OnFault = Callable[[InputError], None]


class OtlpFileReader:
    """Read traces from files in the forms of the OpenTelemetry Collector, compressed or not.

    ``path`` is a file, a folder (recursively, by file name), or ``-`` for standard input. The spans of a
    trace may be in any place. The reader holds the spans of unfinished traces in memory; a pipe, which can be
    read only once, is held completely.

    ``on_fault`` is called for unreadable pieces, and reading continues. Without it, the first one raises.
    """

    def __init__(self, path: str | Path, *, on_fault: OnFault | None = None) -> None:
        self._path = str(path)
        self._on_fault = on_fault
        self.share_read: float | None = None
        """The share that `traces` has read, from 0 to 1; ``None`` for a pipe, because its size is unknown."""

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the files have none."""
        wanted = trace_id.lower()
        members: list[Span] = []
        async for batch in self._batches():
            naming = [piece for piece in batch if wanted in _trace_ids(piece)]
            decoded = await asyncio.to_thread(self._decoded, naming)
            members += [span for spans in decoded for span in spans if span.trace_id == wanted]
        return Trace.of(wanted, members) if members else None

    async def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace, in the order of their last spans in the files.

        Data appended during the read is ignored.
        """
        ending, length = await self._ends()
        started: dict[str, list[Span]] = {}
        number = 0
        async for batch in self._batches(up_to=length):
            for spans in await asyncio.to_thread(self._decoded, batch):
                for span in spans:
                    started.setdefault(span.trace_id, []).append(span)
                for trace_id in ending.get(number, ()):
                    if trace_id in started:
                        yield Trace.of(trace_id, started.pop(trace_id))
                number += 1
            self.share_read = number / length if length < sys.maxsize else None
        for trace_id, members in started.items():  # from a pipe, or with ids in JSON escapes
            yield Trace.of(trace_id, members)

    async def aclose(self) -> None:
        """Do nothing: files are closed after each read."""

    async def _ends(self) -> tuple[Mapping[int, Sequence[str]], int]:
        """Return which traces end in which piece, and the number of pieces; of a pipe, nothing.

        Scanning for ids only is far cheaper than parsing spans.
        """
        ending: dict[int, list[str]] = {}
        if await asyncio.to_thread(_is_read_once, self._path):
            return ending, sys.maxsize
        last: dict[str, int] = {}
        number = 0
        async for batch in self._batches(quietly=True):
            for trace_ids in await asyncio.to_thread(lambda pieces: [*map(_trace_ids, pieces)], batch):
                last.update(dict.fromkeys(trace_ids, number))
                number += 1
        for trace_id, piece in last.items():
            ending.setdefault(piece, []).append(trace_id)
        return ending, number

    async def _batches(
        self, *, up_to: int = sys.maxsize, quietly: bool = False
    ) -> AsyncIterator[Sequence[OtlpFrame]]:
        """Read a few pieces at a time, so that a caller can stop early."""
        with closing(self._pieces(quietly=quietly)) as source:
            left = up_to
            while left and (batch := await _in_thread(_some, source, left)):
                left -= len(batch)
                yield batch

    def _pieces(self, *, quietly: bool) -> Generator[OtlpFrame]:
        for name in self._names():
            yield from self._pieces_of(name, quietly=quietly)

    def _pieces_of(self, name: str, *, quietly: bool = False) -> Generator[OtlpFrame]:
        try:
            with _opened(name) as file:
                yield from pieces(file, "standard input" if name == _STANDARD_INPUT else name)
        except OSError as exc:
            raise _unreadable(name, exc) from exc
        except InputError as exc:
            self._tell(exc, quietly=quietly)

    def _names(self) -> Sequence[str]:
        path = Path(self._path)
        if not path.is_dir():
            return [self._path]
        return sorted(
            str(each) for each in path.rglob("*") if each.is_file() and not each.name.startswith(".")
        )

    def _decoded(self, batch: Sequence[OtlpFrame]) -> list[tuple[Span, ...]]:
        return [self._spans(piece) for piece in batch]

    def _spans(self, piece: OtlpFrame) -> tuple[Span, ...]:
        if piece.fault:
            self._tell(InputError(f"{piece.where}: {piece.fault}"))
            return ()
        try:
            spans, rejected = read_spans(piece.body, encoding=piece.encoding)
        except CodecError as exc:
            self._tell(InputError(f"{piece.where}: {exc}"))
            return ()
        if rejected:
            self._tell(InputError(f"{piece.where}: {rejected}"))
        return spans

    def _tell(self, fault: InputError, *, quietly: bool = False) -> None:
        if self._on_fault is None:
            raise fault
        if not quietly:
            self._on_fault(fault)


def holds_traces(path: str | Path) -> bool:
    """Return whether a file has traces, by its first document; a table by its name has none.

    Raises:
        InputError: it is damaged; names the file.
        ReadError: it cannot be read.
        ConfigError: it is compressed with zstd, but the extra for zstd is not installed.
    """
    if {suffix.lower() for suffix in Path(path).suffixes} & _TABLES:
        return False
    name = str(path)
    try:
        with Path(path).open("rb") as file:
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
    except OSError as exc:
        raise _unreadable(name, exc) from exc
    try:
        tree, _ = json.JSONDecoder().raw_decode(text.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return False
    return _holds_spans(tree)


_TABLES: Final = frozenset({".csv", ".tsv", ".parquet"})


def _unreadable(name: str, exc: OSError) -> ReadError:
    return ReadError(f"{name} cannot be read: {exc.strerror or exc}")


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == _STANDARD_INPUT:
        yield open_standard_input()
        return
    with Path(name).open("rb") as file:
        yield file


def _is_read_once(path: str) -> bool:
    return path == _STANDARD_INPUT or not (Path(path).is_file() or Path(path).is_dir())


async def _in_thread(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in a thread. If that is cancelled, it ends first: what it uses is closed next.

    Of standard input no more comes then.
    """
    running = asyncio.ensure_future(asyncio.to_thread(read, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        end_standard_input()
        await asyncio.gather(running, return_exceptions=True)  # the cancellation is what counts
        raise


def _some(source: Iterator[OtlpFrame], most: int) -> list[OtlpFrame]:
    batch: list[OtlpFrame] = []
    size = 0
    for piece in islice(source, most):
        batch.append(piece)
        size += len(piece.body)
        if size >= _BATCH_BYTES:
            break
    return batch


def _trace_ids(piece: OtlpFrame) -> dict[str, None]:
    """List the trace ids in a piece; in JSON, this includes ids in links."""
    if piece.encoding == "json":
        return dict.fromkeys(found.decode().lower() for found in _TRACE_ID.findall(piece.body))
    try:
        return dict.fromkeys(trace_ids_in(parse_request(piece.body, encoding="protobuf")))
    except CodecError:
        return {}


Json = Mapping[str, Any]

_USUAL_START: Final = b'{"resourceSpans"'
_UNUSUAL: Final = re.compile(rb'"traceId"\s*:\s*"[\w+/-]{22}==?"|"instrumentationLibrarySpans"|"scope_spans"')
"""Marks of an id in base64 and of other names, in the head of a document."""
_HEAD: Final = 10_000


def _converted(where: str, document: bytes) -> Iterator[OtlpFrame]:
    """Yield the message of a JSON document: as it is, or converted. A document without spans has none."""
    if document.startswith(_USUAL_START) and not _UNUSUAL.search(document, 0, _HEAD):
        yield OtlpFrame(where, "json", document)
        return
    try:
        tree = json.loads(document)
        body = _message_of(tree)
    except CodecError as exc:
        yield OtlpFrame(where, "json", b"{}", str(exc))
    except (ValueError, RecursionError):
        yield OtlpFrame(where, "json", document)  # the decoder says what is wrong with it
    else:
        if body is not None:
            yield OtlpFrame(where, "protobuf", body)
        elif not isinstance(tree, dict):
            yield OtlpFrame(where, "json", document)


def _message_of(tree: object) -> bytes | None:
    """Return the spans of a parsed document as protobuf, or ``None`` if it has none of any form.

    Raises:
        CodecError: it looks like spans of a form, and cannot be read as such.
    """
    for is_form, convert, name in _FORMS:
        if is_form(tree):
            try:
                return convert(tree)
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as exc:
                raise CodecError(
                    f"looks like {name}, and cannot be read as such: {type(exc).__name__}"
                ) from exc
    return None


def _holds_spans(tree: object) -> bool:
    return any(is_form(tree) for is_form, _, _ in _FORMS)


_WRAPPERS: Final = ("trace", "result")
"""Around the spans in Tempo's second API, and in Jaeger's third."""
_LISTS: Final = ("resourceSpans", "resource_spans", "batches")


def _has(*names: str) -> Callable[[object], bool]:
    return lambda tree: isinstance(tree, dict) and all(name in tree for name in names)


def _is_otlp(tree: object) -> bool:
    if not isinstance(tree, dict):
        return False
    inner = [tree, *(tree[name] for name in _WRAPPERS if isinstance(tree.get(name), dict))]
    return any(name in each for each in inner for name in _LISTS)


def _is_jaeger(tree: object) -> bool:
    data = tree.get("data") if isinstance(tree, dict) else None
    return isinstance(data, list) and all(isinstance(trace, dict) and "spans" in trace for trace in data)


def _is_console(tree: object) -> bool:
    context = tree.get("context") if isinstance(tree, dict) else None
    return isinstance(context, dict) and "trace_id" in context and "span_id" in context


def _is_list(tree: object) -> bool:
    return isinstance(tree, list) and any(map(_holds_spans, tree))


def _of_otlp(tree: Any) -> bytes:
    inner = next((tree[name] for name in _WRAPPERS if isinstance(tree.get(name), dict)), tree)
    listed = next(inner[name] for name in _LISTS if name in inner)
    written = json.dumps({"resourceSpans": _as_written(listed, 0)}).encode()
    return parse_request(written, encoding="json").SerializeToString()


_IDS: Final = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
_RENAMED: Final = {"instrumentationLibrarySpans": "scopeSpans", "instrumentationLibrary": "scope"}
_MAX_DEPTH: Final = 150


def _as_written(node: Any, depth: int) -> Any:
    """Write names in lowerCamelCase and ids in hex."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(node, list):
        return [_as_written(item, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    written = {}
    for key, value in node.items():
        name = _camel(key)
        name = _RENAMED.get(name, name)
        written[name] = _hex(value, _IDS[name]) if name in _IDS else _as_written(value, depth + 1)
    return written


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


def _hex(value: Any, length: int) -> Any:
    """Return an id in hex, given as hex with or without ``0x``, or in base64."""
    if not isinstance(value, str):
        return value
    bare = value.removeprefix("0x")
    if len(bare) == 2 * length or not bare:
        return bare
    try:
        decoded = base64.b64decode(value, validate=True)
    except binascii.Error:
        return value
    return decoded.hex() if len(decoded) in (0, length) else value


def _of_jaeger(tree: Any) -> bytes:
    return encode(spans_of_v2(tree))


def _of_console(tree: Any) -> Span:
    """Convert a span as `ReadableSpan.to_json` of Python's SDK writes it."""
    status, resource = tree.get("status") or {}, tree.get("resource") or {}
    attributes = resource.get("attributes", resource)
    start_ns = _time_ns(tree["start_time"])
    return Span(
        trace_id=_id(tree["context"]["trace_id"], 32),
        span_id=_id(tree["context"]["span_id"], 16),
        parent_span_id=_id(tree["parent_id"], 16) if tree.get("parent_id") else None,
        name=str(tree.get("name", "")),
        kind=_kind(tree.get("kind")),
        start_ns=start_ns,
        end_ns=max(_time_ns(tree.get("end_time")), start_ns),
        attributes=_values(tree.get("attributes")),
        events=tuple(
            SpanEvent(
                name=str(event.get("name", "")),
                time_ns=_time_ns(event.get("timestamp")),
                attributes=_values(event.get("attributes")),
            )
            for event in tree.get("events") or ()
        ),
        links=tuple(
            SpanLink(
                trace_id=_id(link["context"]["trace_id"], 32),
                span_id=_id(link["context"]["span_id"], 16),
                attributes=_values(link.get("attributes")),
            )
            for link in tree.get("links") or ()
        ),
        status_code=_status(status.get("status_code")),
        status_message=str(status.get("description") or ""),
        resource=Resource(attributes=_values(attributes)),
    )


def _of_go(tree: Any) -> Span:
    """Convert a span as Go's ``stdouttrace`` writes it."""
    status, parent = tree.get("Status") or {}, (tree.get("Parent") or {}).get("SpanID", "")
    scope = tree.get("InstrumentationScope") or tree.get("InstrumentationLibrary") or {}
    start_ns = _time_ns(tree["StartTime"])
    return Span(
        trace_id=_id(tree["SpanContext"]["TraceID"], 32),
        span_id=_id(tree["SpanContext"]["SpanID"], 16),
        parent_span_id=_id(parent, 16) if parent.strip("0") else None,
        name=str(tree.get("Name", "")),
        kind=_kind(tree.get("SpanKind")),
        start_ns=start_ns,
        end_ns=max(_time_ns(tree.get("EndTime")), start_ns),
        attributes=_pairs(tree.get("Attributes")),
        events=tuple(
            SpanEvent(
                name=str(event.get("Name", "")),
                time_ns=_time_ns(event.get("Time")),
                attributes=_pairs(event.get("Attributes")),
            )
            for event in tree.get("Events") or ()
        ),
        status_code=_status(status.get("Code")),
        status_message=str(status.get("Description") or ""),
        resource=Resource(attributes=_pairs(tree.get("Resource"))),
        scope=Scope(name=str(scope.get("Name", "")), version=str(scope.get("Version", ""))),
    )


def _of_zipkin(tree: Any) -> Span:
    """Convert a span of Zipkin's JSON, version 2."""
    start_ns = int(tree.get("timestamp") or 0) * 1_000
    service = (tree.get("localEndpoint") or {}).get("serviceName", "")
    return Span(
        trace_id=_id(tree["traceId"], 32),
        span_id=_id(tree["id"], 16),
        parent_span_id=_id(tree["parentId"], 16) if tree.get("parentId") else None,
        name=str(tree.get("name", "")),
        kind=_kind(tree.get("kind")),
        start_ns=start_ns,
        end_ns=start_ns + int(tree.get("duration") or 0) * 1_000,
        attributes=_values(tree.get("tags")),
        events=tuple(
            SpanEvent(name=str(note["value"]), time_ns=int(note["timestamp"]) * 1_000)
            for note in tree.get("annotations") or ()
        ),
        status_code=_status((tree.get("tags") or {}).get("otel.status_code")),
        resource=Resource(attributes={"service.name": service} if service else {}),
    )


def _one(convert: Callable[[Any], Span]) -> Callable[[Any], bytes]:
    return lambda tree: encode([convert(tree)])


def _of_list(tree: Any) -> bytes:
    # protobuf joins the members of messages that follow each other
    return b"".join(body for item in tree if (body := _message_of(item)) is not None)


_FORMS: Final[tuple[tuple[Callable[[object], bool], Callable[[Any], bytes], str], ...]] = (
    (_is_otlp, _of_otlp, "OTLP"),
    (_is_jaeger, _of_jaeger, "Jaeger's JSON"),
    (_is_console, _one(_of_console), "the console exporter's JSON"),
    (_has("SpanContext", "StartTime"), _one(_of_go), "the JSON of Go's console exporter"),
    (_has("traceId", "id", "timestamp"), _one(_of_zipkin), "Zipkin's JSON"),
    (_is_list, _of_list, "a list of spans"),
)


def _id(value: Any, digits: int) -> str:
    bare = str(value).removeprefix("0x").lower().zfill(digits)
    if len(bare) != digits or bare.strip("0123456789abcdef"):
        raise ValueError("an id is not hex")
    return bare


def _time_ns(text: Any) -> int:
    if not text:
        return 0
    found = _TIME.fullmatch(str(text))
    if found is None:
        raise ValueError("a time is not ISO 8601")
    zone = found["zone"] if found["zone"] not in (None, "Z") else "+00:00"
    seconds = int(datetime.fromisoformat(found["seconds"] + zone).timestamp())
    return seconds * 10**9 + int((found["fraction"] or "").ljust(9, "0"))


_TIME: Final = re.compile(
    r"(?P<seconds>[\d-]{10}[T ][\d:]{8})(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:\d\d)?"
)


def _kind(value: Any) -> SpanKind:
    if isinstance(value, int):
        return SpanKind(value) if value in set(SpanKind) else SpanKind.UNSPECIFIED
    name = str(value).rpartition(".")[2].upper()
    return SpanKind[name] if name in SpanKind.__members__ else SpanKind.UNSPECIFIED


def _status(value: Any) -> StatusCode:
    name = str(value).upper()
    return StatusCode[name] if name in StatusCode.__members__ else StatusCode.UNSET


def _values(attributes: Any) -> dict[str, AttributeValue]:
    return {str(key): _value(value) for key, value in (attributes or {}).items()}


def _pairs(pairs: Any) -> dict[str, AttributeValue]:
    return {str(pair["Key"]): _value(pair["Value"]["Value"]) for pair in pairs or ()}


def _value(value: Any) -> AttributeValue:
    if isinstance(value, list):
        return tuple(map(_value, value))
    if isinstance(value, Mapping):
        return {str(key): _value(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


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
