"""Sinks for OTLP over HTTP and gRPC and into files, and what is common to all sinks over HTTP."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final, TypeAlias, cast

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragtrace import semconv
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import CodecError, SendError, SendRefused, SendRejected, SendRetryable, SendUnconfirmed
from ragtrace.files import make_folder, make_private, open_private, sync_folder
from ragtrace.http import (
    OTLP,
    UnreadableBody,
    open_channel,
    open_client,
    redirected_to,
    retry_after_s_in,
    without_secrets,
)
from ragtrace.ports import SpanSink
from ragtrace.traces.logs import encode_evaluation_logs
from ragtrace.traces.otlp import decode, decode_json, parse_request, request_to_json

if TYPE_CHECKING:
    import grpc
    import httpx


_REFUSING: Final = frozenset({301, 302, 303, 307, 308, 401, 403, 404, 405, 407})
"""Errors of the sender or the address, whatever the payload."""

LONGEST_BODY: Final = 1 << 20
"""The size limit of a response body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A receiver's response."""

    status: int
    body: bytes | None
    """``None`` if it is unreadable."""


class HttpSink:
    """Base class of HTTP sinks: one receiver, its name, and requests. It connects on the first one."""

    retryable: ClassVar[Collection[int]]
    """Statuses after which a retry may help and is safe."""

    def __init__(self, url: str, *, access: ConnectionSettings | None = None) -> None:
        access = access or ConnectionSettings()
        self._base_url = url
        self._headers = access.sent_headers
        self._verify = access.tls.context() if access.tls else True
        self._timeout_s = access.timeout_s
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """The URL without user, password and query."""
        return without_secrets(self._base_url)

    async def _ask(
        self,
        method: str,
        path: str = "",
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        understood: Collection[int] = (),
    ) -> Reply:
        """Return the receiver's response: a success, or a status that the caller handles.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused.
            SendRefused: every request is refused.
        """
        import httpx  # deferred: only for senders over HTTP

        asked = {"accept-encoding": "identity", **self._headers, **(headers or {})}
        status: int | None = None
        try:
            async with (
                asyncio.timeout(self._timeout_s),  # httpx applies its timeout to each piece
                self._open().stream(
                    method, f"{self._base_url}{path}", content=body, headers=asked
                ) as response,
            ):
                if response.status_code not in understood:
                    self._raise_for_status(response)
                status = response.status_code
                return Reply(status=status, body=await _body(response))
        except TimeoutError as exc:
            failure = f"{self.name} did not answer within {self._timeout_s:g} s"
            cause: Exception = exc
        except httpx.HTTPError as exc:
            failure = f"{self.name} could not be reached: {type(exc).__name__} {exc}"
            cause = exc
        if status is not None:  # the status arrived, but the body broke off
            return Reply(status=status, body=None)
        raise SendRetryable(failure) from cause

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = open_client(
                timeout_s=self._timeout_s, most_bytes=LONGEST_BODY, verify=self._verify
            )
        return self._client

    def _raise_for_status(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        message = f"{self.name} answered {response.status_code} {response.reason_phrase}{_pointing(response)}"
        if response.status_code in self.retryable:
            raise SendRetryable(message, retry_after_s=retry_after_s_in(response.headers))
        raise SendRefused(message) if response.status_code in _REFUSING else SendRejected(message)


def _pointing(response: httpx.Response) -> str:
    host = redirected_to(response)
    return f": it redirects to {host}, which is not followed" if host else ""


async def _body(response: httpx.Response) -> bytes | None:
    try:
        return await response.aread()
    except UnreadableBody:
        return None


Response: TypeAlias = ExportTraceServiceResponse | ExportLogsServiceResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What OTLP carries: where its requests go, and what answers them."""

    path: str
    method: str
    """Of gRPC."""
    response: type[Response]
    noun: str


TRACES: Final = Signal(
    path="/v1/traces",
    method="/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    response=ExportTraceServiceResponse,
    noun="spans",
)
LOGS: Final = Signal(
    path="/v1/logs",
    method="/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    response=ExportLogsServiceResponse,
    noun="log records",
)


def parse_answer(body: bytes, signal: Signal = TRACES) -> Response | None:
    """Parse a response in protobuf or JSON, which some receivers always send; ``None`` if it is neither."""
    try:
        return signal.response.FromString(body)
    except DecodeError:
        pass
    try:
        return json_format.Parse(body, signal.response(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError):
        return None


def raise_for_rejected_items(sink: str, answer: Response) -> None:
    """Raise SendRejected if the receiver took only a part: OTLP forbids retrying the same request.

    By the specification, a message without rejected items is a warning, and the request was accepted.
    """
    if isinstance(answer, ExportLogsServiceResponse):
        rejected, noun = answer.partial_success.rejected_log_records, LOGS.noun
    else:
        rejected, noun = answer.partial_success.rejected_spans, TRACES.noun
    if rejected:
        why = answer.partial_success.error_message or "no reason given"
        raise SendRejected(f"{sink} rejected {rejected} {noun}: {why}", partial=True)


class OtlpHttpSink(HttpSink):
    """Post requests as binary protobuf to an OTLP/HTTP receiver's full URL (``…/v1/traces``).

    ``signal`` is what the requests carry: spans, unless told otherwise.
    """

    retryable = OTLP.statuses

    def __init__(
        self, url: str, *, access: ConnectionSettings | None = None, signal: Signal = TRACES
    ) -> None:
        super().__init__(url, access=access)
        self._signal = signal

    async def send(self, request: bytes) -> None:
        """Post the request and wait for the receiver's response."""
        headers = {"content-type": "application/x-protobuf"}
        reply = await self._ask("POST", body=request, headers=headers)
        if reply.body is None:
            raise SendUnconfirmed(
                f"{self.name} answered {reply.status} with an unreadable response", again=True
            )
        answer = parse_answer(reply.body, self._signal)
        if answer is None:  # such as the page of a proxy or of another web server
            raise SendUnconfirmed(
                f"{self.name} answered {reply.status} with a response that is not OTLP: "
                f"is this the address of a receiver (…{self._signal.path})?",
                again=False,
            )
        raise_for_rejected_items(self.name, answer)


_REFUSING_CODES = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"})
"""Errors of the sender or the address, whatever the payload."""


class OtlpGrpcSink:
    """Send unchanged request bytes to an OTLP/gRPC receiver at ``host:port``.

    ``signal`` is what the requests carry: spans, unless told otherwise.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        insecure: bool = True,
        access: ConnectionSettings | None = None,
        signal: Signal = TRACES,
    ) -> None:
        access = access or ConnectionSettings()
        self._endpoint = endpoint
        self._metadata = tuple((key.lower(), value) for key, value in access.sent_headers.items())
        self._insecure = insecure
        self._pem = None if insecure else access.tls.pem() if access.tls else ()
        self._timeout_s = access.timeout_s
        self._signal = signal
        self._channel: grpc.aio.Channel | None = None

    @property
    def name(self) -> str:
        """``grpc://host:port`` or ``grpcs://host:port``."""
        return f"{'grpc' if self._insecure else 'grpcs'}://{self._endpoint}"

    async def send(self, request: bytes) -> None:
        """Send the request and wait for the receiver's response."""
        import grpc  # heavy, deferred: only for senders over gRPC

        export = self._open().unary_unary(
            self._signal.method,
            request_serializer=None,  # the bytes are sent unchanged
            response_deserializer=None,  # gRPC would report an unreadable response as a receiver error
        )
        try:
            answer = await export(request, metadata=self._metadata, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as exc:
            raise self._error(exc) from exc
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise SendRetryable(f"{self.name} was closed before it responded") from exc
        parsed = parse_answer(answer, self._signal)
        if parsed is None:
            raise SendUnconfirmed(f"{self.name} answered OK with an unreadable response", again=True)
        raise_for_rejected_items(self.name, parsed)

    async def aclose(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    def _open(self) -> grpc.aio.Channel:
        self._channel = self._channel or open_channel(self._endpoint, self._pem, most_bytes=LONGEST_BODY)
        return self._channel

    def _error(self, exc: grpc.aio.AioRpcError) -> SendError:
        code, details = exc.code().name, exc.details() or ""
        if _is_too_large(code, details) and ("CLIENT:" in details or "Decompressed" in details):
            # of the answer: no request is packed, so none is unpacked
            message = f"{self.name} answered OK with an unreadable response: it is too large"
            return SendUnconfirmed(message, again=True)
        message = f"{self.name} answered {code}: {details}"
        if code in _REFUSING_CODES:
            return SendRefused(message)
        if code not in OTLP.codes or _is_too_large(code, details):
            return SendRejected(message)
        return SendRetryable(message, retry_after_s=_retry_after_s(exc))


def _is_too_large(code: str, details: str) -> bool:
    # gRPC reports it with the code of a busy receiver, but it is final
    return code == "RESOURCE_EXHAUSTED" and "larger than max" in details


def _retry_after_s(exc: grpc.aio.AioRpcError) -> float | None:
    """Read google.rpc.RetryInfo from the trailing metadata."""
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    for key, value in cast("Iterable[tuple[str, str | bytes]]", exc.trailing_metadata() or ()):
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        try:
            for detail in status_pb2.Status.FromString(value).details:
                retry_info = error_details_pb2.RetryInfo()
                if detail.Unpack(retry_info):
                    # not as a timedelta, which overflows at 300,000,000,000 seconds
                    return float(retry_info.retry_delay.seconds + retry_info.retry_delay.nanos / 1e9)
        except DecodeError:
            return None
    return None


class EvaluationLogSink:
    """Sends the records of the carriers in a request through a sink for logs. Other spans are ignored."""

    def __init__(self, sink: SpanSink) -> None:
        self._sink = sink

    @property
    def name(self) -> str:
        """``logs:`` and the address: traces may go to the same one."""
        return f"logs:{self._sink.name}"

    async def send(self, request: bytes) -> None:
        """Send the records of the carriers in a request; without any, an empty request."""
        await self._sink.send(encode_evaluation_logs(decode(request)))

    async def aclose(self) -> None:
        """Close the sink."""
        await self._sink.aclose()


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
        """Append the request."""
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
        refs = _drop_known(message, self._known)
        if not refs:
            return
        line = request_to_json(message).encode() + b"\n"
        with open(open_private(self._path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._known.update(dict.fromkeys(refs))
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


def _drop_known(message: ExportTraceServiceRequest, known: Container[_Ref]) -> list[_Ref]:
    """Remove known spans from the message, and return the others."""
    others: list[_Ref] = []
    for resource in message.resource_spans:
        named = (
            each.value.string_value for each in resource.resource.attributes if each.key == semconv.TENANT
        )
        tenant = next(named, "")
        for scope in resource.scope_spans:
            refs = [(span.trace_id.hex(), span.span_id.hex(), tenant) for span in scope.spans]
            for position in reversed(range(len(refs))):
                if refs[position] in known:
                    del scope.spans[position], refs[position]
            others += refs
    return others


def _recover(path: Path) -> dict[_Ref, None]:
    """Repair the file's end after a crash, and return the spans there."""
    make_folder(path.parent)
    make_private(path)
    sync_folder(path.parent)  # also for an existing file: its creator may have stopped before this step
    with open(open_private(path), "r+b") as file:
        *lines, rest = _tail(file).split(b"\n")
        if not rest and lines and b"\0" in lines[-1]:
            rest = lines.pop() + b"\n"
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
    """Return whether this is an incomplete line of ours: its request was never acknowledged.

    A power loss may leave zeros in the place of blocks that were not written yet, which JSON never has.
    """
    return b"\0" in line or (
        not _refs(line) and (line.startswith(_LINE_START) or _LINE_START.startswith(line))
    )


def _refs(line: bytes) -> tuple[_Ref, ...]:
    try:
        return tuple(
            (span.trace_id, span.span_id, str(span.resource.attributes.get(semconv.TENANT, "")))
            for span in decode_json(line.decode())
        )
    except (CodecError, UnicodeDecodeError):
        return ()
