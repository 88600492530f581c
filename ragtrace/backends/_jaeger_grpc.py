"""Jaeger's query API over gRPC (``jaeger.api_v3.QueryService``, port 16685), with tags and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.backends.http_api import MOST_READ_BYTES, ConnectionSettings
from ragtrace.backends.jaeger import normalized_trace_id, search_each_service, traces_by_id
from ragtrace.backends.search_windows import SearchOnlyReader, cut_if_too_large
from ragtrace.errors import CodecError, ReadError, ReadOversized, ReadUnavailable
from ragtrace.http import REPEATABLE, ReadRetries, Sleep
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.otlp import spans_in
from ragtrace.traces.trace import Span, Trace

if TYPE_CHECKING:
    import grpc


T = TypeVar("T")

_SERVICE: Final = "/jaeger.api_v3.QueryService/"
_TRACES_AT_ONCE: Final = 500


class JaegerGrpcReader(SearchOnlyReader):
    """Read traces by id and by search from Jaeger's query service at ``host:port``."""

    back_end = "Jaeger"
    shortest_ns = 1_000
    longest_ns = 30 * 86_400 * 10**9

    def __init__(
        self,
        endpoint: str,
        *,
        insecure: bool = True,
        access: ConnectionSettings | None = None,
        traces_at_once: int = _TRACES_AT_ONCE,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._insecure = insecure
        self._access = access or ConnectionSettings()
        self._pem = self._access.tls.pem() if self._access.tls else ()
        self._traces_at_once = traces_at_once
        self._sleep = sleep
        self._is_known = False
        self._channel: grpc.aio.Channel | None = None

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if Jaeger has none.

        Raises:
            ReadError: the request failed, or the response is invalid.
            InputError: the trace id is not hex.
        """
        trace_id = normalized_trace_id(trace_id)
        request = _message("GetTraceRequest", trace_id=trace_id, raw_traces=True)
        return traces_by_id(await self._spans("GetTrace", request)).get(trace_id)

    async def search(self, query: TraceQuery) -> Page:
        """Search once, for whole traces; without a service, search all services.

        Raises:
            ReadError: the request failed, or Jaeger rejected the query.
        """
        return await search_each_service(query, self._search, self.services)

    async def _search(self, query: TraceQuery) -> Page:
        bounds = {"shortest_ns": self.shortest_ns, "limit": self._traces_at_once}
        return await cut_if_too_large(query, self._page, **bounds)

    async def _page(self, query: TraceQuery) -> Page:
        request = _message("FindTracesRequest")
        request.query.MergeFrom(
            _message(
                "TraceQueryParameters",
                service_name=query.service or "",
                operation_name=query.operation or "",
                attributes=dict(query.tags),
                start_time_min=_timestamp(query.since_ns),
                start_time_max=_timestamp(query.until_ns - 1),
                search_depth=self._traces_at_once,
                raw_traces=True,
            )
        )
        found = traces_by_id(await self._spans("FindTraces", request))
        return Page.of(found, limit=self._traces_at_once)

    async def services(self) -> tuple[str, ...]:
        """Return the names of the services that sent spans.

        Raises:
            ReadError: the request failed.
        """
        return await self._with_retries(self._services)

    async def aclose(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None

    async def _spans(self, method: str, request: Any) -> list[Span]:
        async def ask() -> list[Span]:
            return [span async for span in self._streamed(method, request)]

        return await self._with_retries(ask)

    async def _with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry transient errors, unless the server has never answered successfully."""
        retries = ReadRetries()
        while True:
            try:
                answer = await ask()
            except ReadUnavailable as exc:
                if not self._is_known:
                    raise
                pause_s = retries.pause_s()
                if pause_s is None:
                    raise ReadUnavailable(f"{exc} ({retries})") from exc
                await self._sleep(pause_s)
            else:
                self._is_known = True
                return answer

    async def _services(self) -> tuple[str, ...]:
        import grpc

        read = _class("GetServicesResponse").FromString
        ask = self._opened().unary_unary(
            f"{_SERVICE}GetServices",
            request_serializer=None,  # the request body is empty
            response_deserializer=read,
        )
        try:
            answer = await ask(b"", **self._call())
        except grpc.aio.AioRpcError as exc:
            raise self._error(exc) from exc
        return tuple(answer.services)

    async def _streamed(self, method: str, request: Any) -> AsyncIterator[Span]:
        import grpc

        ask = self._opened().unary_stream(
            f"{_SERVICE}{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=None,  # their size is needed
        )
        left = MOST_READ_BYTES
        call = ask(request, **self._call())
        try:
            async for part in call:
                left -= len(part)
                if left < 0:
                    raise self._oversized()
                # an export request and Jaeger's ``TracesData`` are the same on the wire
                for span in spans_in(ExportTraceServiceRequest.FromString(part)):
                    yield span
        except grpc.aio.AioRpcError as exc:
            if exc.code() is not grpc.StatusCode.NOT_FOUND:
                raise self._error(exc) from exc
        except (CodecError, DecodeError) as exc:
            raise ReadError(f"Jaeger at {self._endpoint} sent a response that is not OTLP: {exc}") from exc
        finally:
            call.cancel()  # a stream that nobody reads on

    def _call(self) -> Mapping[str, Any]:
        metadata = [(key.lower(), value) for key, value in self._access.sent_headers.items()]
        return {"metadata": metadata, "timeout": self._access.timeout_s}

    def _opened(self) -> grpc.aio.Channel:
        # not in __init__: a channel belongs to the event loop that is running at its creation
        if self._channel is None:
            import grpc

            options = [("grpc.max_receive_message_length", MOST_READ_BYTES)]
            if self._insecure:
                self._channel = grpc.aio.insecure_channel(self._endpoint, options)
            else:
                credentials = grpc.ssl_channel_credentials(*self._pem)
                self._channel = grpc.aio.secure_channel(self._endpoint, credentials, options)
        return self._channel

    def _oversized(self) -> ReadOversized:
        return ReadOversized(
            f"Jaeger at {self._endpoint} sent a response that is too large: it is longer than "
            f"{MOST_READ_BYTES >> 20} MiB, the most that ragtrace reads: read less at once, such as a "
            "shorter time or one trace by its id"
        )

    def _error(self, exc: grpc.aio.AioRpcError) -> ReadError:
        code, said = exc.code().name, (exc.details() or "")[:200]
        if code == "RESOURCE_EXHAUSTED" and "larger than max" in said:
            return self._oversized()
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            return ReadError(
                f"Jaeger at {self._endpoint} refused the credentials ({code}): give a token or a header"
            )
        if code == "UNIMPLEMENTED":
            return ReadError(
                f"{self._endpoint} speaks gRPC, but has no Jaeger query service: is it port 16685?"
            )
        kind = ReadUnavailable if code in REPEATABLE.codes else ReadError
        return kind(f"Jaeger at {self._endpoint} answered {code}: {said}")


_TIMESTAMP: Final = ".google.protobuf.Timestamp"
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "GetServicesResponse": {"services": (1, "repeated string")},
    "GetTraceRequest": {"trace_id": (1, "string"), "raw_traces": (4, "bool")},
    "TraceQueryParameters": {
        "service_name": (1, "string"),
        "operation_name": (2, "string"),
        "attributes": (3, "repeated .jaeger.api_v3.TraceQueryParameters.AttributesEntry"),
        "start_time_min": (4, _TIMESTAMP),
        "start_time_max": (5, _TIMESTAMP),
        "search_depth": (8, "int32"),
        "raw_traces": (9, "bool"),
    },
    "FindTracesRequest": {"query": (1, ".jaeger.api_v3.TraceQueryParameters")},
}
"""The used messages of ``jaeger.api_v3``: field numbers and types."""


def _message(name: str, **values: object) -> Any:
    return _class(name)(**values)


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"jaeger.api_v3.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="ragtrace/jaeger_api_v3.proto",
        package="jaeger.api_v3",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, field, number, kind)
        if "attributes" in fields:
            entry = message.nested_type.add(name="AttributesEntry")
            entry.options.map_entry = True
            _add_field(entry, "key", 1, "string")
            _add_field(entry, "value", 2, "string")
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number)
    repeated, _, type_ = kind.rpartition(" ")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if type_.startswith("."):
        field.type, field.type_name = field.TYPE_MESSAGE, type_
    else:
        field.type = _TYPES[type_]


_TYPES: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


def _timestamp(time_ns: int) -> Any:
    seconds, nanos = divmod(time_ns, 10**9)
    stamp = _pool().FindMessageTypeByName("google.protobuf.Timestamp")
    return message_factory.GetMessageClass(stamp)(seconds=seconds, nanos=nanos)
