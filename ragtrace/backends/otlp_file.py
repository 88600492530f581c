"""The sink for OTLP JSON lines, in the form of the OpenTelemetry Collector's file exporter."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import semconv
from ragtrace.errors import CodecError, SendRefused, SendRejected, SendRetryable
from ragtrace.files import make_folder, make_private, open_private, sync_folder
from ragtrace.traces.otlp import decode_json, parse_request, request_to_json

_TAIL_BYTES = 1024 * 1024
_MOST_KNOWN = 10_000
"""Number of remembered spans at the file's end: more than are ever in flight at once."""
_Ref = tuple[str, str, str]
"""Trace id, span id and tenant, because spans of two tenants may have the same ids."""
_LINE_START = b'{"resourceSpans"'


class OtlpFileSink:
    """Append one line per request; it is on disk before ``send`` returns.

    A crash may leave an incomplete last line, or a line that was never acknowledged. On reopening, an
    incomplete line is removed. The spans at the file's end are remembered, so that retried spans, alone or in
    another batch, are not duplicated.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._known: dict[_Ref, None] | None = None
        # two sends would race for the file's end: the repair of one could remove the line of the other
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
            SendRefused: the path is a link.
        """
        async with self._lock:
            try:
                await asyncio.to_thread(self._append, request)
            except CodecError as exc:
                raise SendRejected(f"{self.name} accepts only OTLP requests: {exc}") from exc
            except OSError as exc:
                self._known = None
                error = SendRefused if exc.errno == errno.ELOOP else SendRetryable
                raise error(f"{self.name} cannot be written: {exc.strerror}") from exc

    async def aclose(self) -> None:
        """Do nothing: the file is closed after every request."""

    def _append(self, request: bytes) -> None:
        message = parse_request(request, encoding="protobuf")
        if self._known is None:
            self._known = _recover(self._path)
        if _drop_spans(message, self._known) and not any(_spans_of(message)):
            return
        line = request_to_json(message).encode() + b"\n"
        with open(open_private(self._path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._remember(message)

    def _remember(self, message: ExportTraceServiceRequest) -> None:
        assert self._known is not None, "the file was recovered before it was written"
        for resource in message.resource_spans:
            tenant = _tenant_of(resource)
            for scope in resource.scope_spans:
                self._known.update((_ref_of(span, tenant), None) for span in scope.spans)
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


def _spans_of(message: ExportTraceServiceRequest) -> Iterator[trace_pb2.Span]:
    return (
        span for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans
    )


def _drop_spans(message: ExportTraceServiceRequest, known: Container[_Ref]) -> int:
    """Remove known spans from the message, and return their number."""
    dropped = 0
    for resource in message.resource_spans:
        tenant = _tenant_of(resource)
        for scope in resource.scope_spans:
            for position in reversed(range(len(scope.spans))):
                if _ref_of(scope.spans[position], tenant) in known:
                    del scope.spans[position]
                    dropped += 1
    return dropped


def _ref_of(span: trace_pb2.Span, tenant: str) -> _Ref:
    return span.trace_id.hex(), span.span_id.hex(), tenant


def _tenant_of(resource: trace_pb2.ResourceSpans) -> str:
    named = (each.value.string_value for each in resource.resource.attributes if each.key == semconv.TENANT)
    return next(named, "")


def _recover(path: Path) -> dict[_Ref, None]:
    """Repair the file's end after a crash, and return the spans there."""
    make_folder(path.parent)
    make_private(path)
    sync_folder(path.parent)  # also for an existing file: its creator may have stopped before this step
    with open(open_private(path), "r+b") as file:
        *lines, rest = _tail(file).split(b"\n")
        if rest and _is_cut(rest):
            file.truncate(file.seek(0, os.SEEK_END) - len(rest))
        elif rest:
            file.write(b"\n")  # another writer's last line has no line break
            lines.append(rest)
        file.flush()
        os.fsync(file.fileno())  # a killed process may have left unsynced data, which now counts as stored
    return {ref: None for line in lines for ref in _refs(line)}


def _tail(file: BinaryIO) -> bytes:
    """Read the last lines, at least one whole line, and leave the position at the end."""
    size = file.seek(0, os.SEEK_END)
    length = _TAIL_BYTES
    while True:
        file.seek(max(0, size - length))
        tail = file.read()
        if b"\n" in tail[:-1] or len(tail) == size:
            return tail
        length *= 2


def _is_cut(line: bytes) -> bool:
    """Return whether this is an incomplete line of ours: its request was never acknowledged."""
    return not _refs(line) and (line.startswith(_LINE_START) or _LINE_START.startswith(line))


def _refs(line: bytes) -> tuple[_Ref, ...]:
    try:
        return tuple(
            (span.trace_id, span.span_id, str(span.resource.attributes.get(semconv.TENANT, "")))
            for span in decode_json(line.decode())
        )
    except (CodecError, UnicodeDecodeError):
        return ()
