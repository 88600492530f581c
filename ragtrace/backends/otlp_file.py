"""OTLP JSON lines, as the OpenTelemetry Collector's file exporter writes them: sink and reader."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace.errors import CodecError, InputError, ReadError, SendRejected, SendRetryable
from ragtrace.traces.otlp import decode_json, parse_request, request_to_json
from ragtrace.traces.trace import Span, Trace, group_by_trace

__all__ = ["OtlpFileReader", "OtlpFileSink"]

_TAIL_BYTES = 1024 * 1024
_LINE_START = b'{"resourceSpans"'


class OtlpFileSink:
    """Append one line a request, on disk before ``send`` returns.

    A crash may leave the last line cut, or a line whose request the sender never saw acknowledged. When the
    file is opened again, a cut line is taken back and the spans at the file's end are remembered, so that
    spans that are sent again, alone or among others, are not doubled.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._known: set[tuple[str, str]] | None = None
        # two sends would race for the file's end: the repair of one could take back the line of the other
        self._lock = asyncio.Lock()

    @property
    def name(self) -> str:
        """``otlp-file:PATH``."""
        return f"otlp-file:{self._path}"

    async def send(self, request: bytes) -> None:
        """Append the request.

        Raises:
            SendRetryable: the file cannot be written now.
            SendRejected: the bytes are not an OTLP request.
        """
        async with self._lock:
            try:
                await asyncio.to_thread(self._append, request)
            except CodecError as exc:
                raise SendRejected(f"{self.name} takes OTLP requests only: {exc}") from exc
            except OSError as exc:
                self._known = None
                raise SendRetryable(f"{self.name} cannot be written: {exc.strerror}") from exc

    async def aclose(self) -> None:
        """Do nothing: the file is closed after every request."""

    def _append(self, request: bytes) -> None:
        message = parse_request(request, encoding="protobuf")
        if self._known is None:
            self._known = _recover(self._path)
        if _drop_spans(message, self._known) and not any(_spans_of(message)):
            return
        line = request_to_json(message).encode() + b"\n"
        with self._path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


class OtlpFileReader:
    """Read traces from a file of OTLP JSON lines. The spans of a trace may stand on any lines."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the file has none.

        Raises:
            ReadError: the file cannot be opened.
            InputError: a line is not OTLP JSON; names file and line.
        """
        spans = await asyncio.to_thread(self._spans)
        members = [span for span in spans if span.trace_id == trace_id.lower()]
        return Trace.of(trace_id.lower(), members) if members else None

    async def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace, in the order in which their first spans stand in the file.

        Raises:
            ReadError: the file cannot be opened.
            InputError: a line is not OTLP JSON; names file and line.
        """
        for trace in group_by_trace(await asyncio.to_thread(self._spans)):
            yield trace

    async def aclose(self) -> None:
        """Do nothing: the file is closed after every reading."""

    def _spans(self) -> list[Span]:
        try:
            return [span for number, line in self._lines() for span in self._decode(number, line)]
        except OSError as exc:
            raise ReadError(f"{self._path} cannot be read: {exc.strerror}") from exc

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self._path.open("rb") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())

    def _decode(self, number: int, line: bytes) -> tuple[Span, ...]:
        try:
            return decode_json(line.decode())
        except (CodecError, UnicodeDecodeError) as exc:
            raise InputError(f"{self._path}, line {number}: {exc}") from exc


def _spans_of(message: ExportTraceServiceRequest) -> Iterator[trace_pb2.Span]:
    return (
        span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans
    )


def _drop_spans(message: ExportTraceServiceRequest, known: set[tuple[str, str]]) -> int:
    """Take spans that are known out of the message, and say how many they were."""
    dropped = 0
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for position in reversed(range(len(scope.spans))):
                span = scope.spans[position]
                if (span.trace_id.hex(), span.span_id.hex()) in known:
                    del scope.spans[position]
                    dropped += 1
    return dropped


def _recover(path: Path) -> set[tuple[str, str]]:
    """Mend the file's end after a crash, and return the spans that stand there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        _sync_directory(path.parent)
        return set()
    with path.open("r+b") as file:
        *lines, rest = _tail(file).split(b"\n")
        if rest and _is_cut(rest):
            file.truncate(file.seek(0, os.SEEK_END) - len(rest))
        elif rest:
            file.write(b"\n")  # another writer's last line: begin on a new one
            lines.append(rest)
    return {ref for line in lines for ref in _refs(line)}


def _tail(file: BinaryIO) -> bytes:
    """Read the last lines, one whole line at least, and leave the file at its end."""
    size = file.seek(0, os.SEEK_END)
    length = _TAIL_BYTES
    while True:
        file.seek(max(0, size - length))
        tail = file.read()
        if b"\n" in tail[:-1] or len(tail) == size:
            return tail
        length *= 2


def _is_cut(line: bytes) -> bool:
    """Tell whether this is the start of a line of ours: its request was never acknowledged."""
    return not _refs(line) and (line.startswith(_LINE_START) or _LINE_START.startswith(line))


def _refs(line: bytes) -> tuple[tuple[str, str], ...]:
    try:
        return tuple((span.trace_id, span.span_id) for span in decode_json(line.decode()))
    except (CodecError, UnicodeDecodeError):
        return ()


def _sync_directory(path: Path) -> None:
    # or a crash may take the new file's name away, with all that was acknowledged in it
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
