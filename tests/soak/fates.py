"""What the store says became of each answer, and what came of it at a back end that goes away for a while."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragtrace import semconv
from ragtrace_collector.store.database import Database
from tests.backends.process import free_ports

_UP_S, _DOWN_S = 40.0, 5.0


class SpanId(NamedTuple):
    """A span, in hex."""

    trace_id: str
    span_id: str


@dataclass(slots=True, kw_only=True)
class Arrived:
    """What came under the id of one carrier."""

    target: str
    """The span id of the answer that it is about."""
    scores: int
    digests: set[bytes] = field(default_factory=set)
    """One, however often it was sent, unless spans of several contents came."""


class FlakySink(TraceServiceServicer):
    """An OTLP/gRPC receiver on one port, up and down again."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.endpoint = f"127.0.0.1:{port}"
        self.arrived: dict[SpanId, Arrived] = {}
        """By the carrier's ids: the same one may come twice."""
        self._server: grpc.Server | None = None

    def Export(  # noqa: N802 -- the name in the proto file
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._keep(span)
        return ExportTraceServiceResponse()

    def _keep(self, span: Span) -> None:
        keys = [attribute.key for attribute in span.attributes]
        came = self.arrived.setdefault(
            SpanId(span.trace_id.hex(), span.span_id.hex()),
            Arrived(
                target=span.parent_span_id.hex(),
                scores=sum(key.startswith(semconv.SCORE_PREFIX) for key in keys),
            ),
        )
        came.digests.add(hashlib.sha256(span.SerializeToString(deterministic=True)).digest()[:8])

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def stop(self) -> None:
        """Go away: connections are cut."""
        if self._server is not None:
            self._server.stop(grace=None).wait(timeout=10)
            self._server = None

    async def come_and_go(self) -> None:
        """Be up and down by turns, until cancelled; then up."""
        try:
            while True:
                await asyncio.sleep(_UP_S)
                await asyncio.to_thread(self.stop)
                await asyncio.sleep(_DOWN_S)
                await asyncio.to_thread(self.start)
        finally:
            if self._server is None:
                self.start()


_MOST_NAMED = 3
_PAUSE_S = 2.0
"""A small part of ``store.retention``: no row is forgotten between two looks."""


class Fate(NamedTuple):
    """How an answer ended."""

    state: str
    carrier: str
    """Span id; empty where there is nothing to tell in the trace."""


@dataclass(slots=True, kw_only=True)
class Fates:
    """How answers ended, as the rows said that are forgotten a minute later."""

    store: Database
    found: dict[SpanId, Fate] = field(default_factory=dict)
    pending: set[SpanId] = field(default_factory=set)
    """As of the last look."""

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(_PAUSE_S)

    def look(self) -> None:
        with self.store.reading() as db:
            rows = db.execute("SELECT trace_id, span_id, state, stands, carrier FROM job").fetchall()
        self.pending = {SpanId(*row[:2]) for row in rows if row[2] != "ended"}
        self.found.update({SpanId(*row[:2]): Fate(*row[3:]) for row in rows if row[2] == "ended"})


def differences(sent: Iterable[SpanId], fates: Fates, arrived: Mapping[SpanId, Arrived]) -> Iterator[str]:
    """Say, a line each, where what was sent, what became of it and what came are not the same."""
    told = {SpanId(each.trace_id, fate.carrier): each for each, fate in fates.found.items() if fate.carrier}
    of_answers = {SpanId(each.trace_id, came.target) for each, came in arrived.items()}
    judged = {each for each, fate in fates.found.items() if fate.state == "judged"}
    # a carrier stays where its answer was judged, and late spans moved it to another span then
    may_score = judged | {each for each, fate in fates.found.items() if fate.state == "superseded"}
    yield from _named("answers sent stand nowhere", set(sent) - fates.found.keys() - fates.pending)
    yield from _named("answers are judged, and no carrier tells it", judged - set(told.values()))
    yield from _named("carriers were written, and did not come", told.keys() - arrived.keys())
    yield from _named(
        "carriers came of answers that nobody judged", of_answers - set(told.values()) - fates.pending
    )
    yield from _named(
        "carriers stand on another span than their answer",
        {each for each in told.keys() & arrived.keys() if arrived[each].target != told[each].span_id},
    )
    yield from _named(
        "carriers tell no score of what was judged",
        {each for each in told.keys() & arrived.keys() if told[each] in judged and not arrived[each].scores},
    )
    yield from _named(
        "carriers tell a score of what was not judged",
        {
            each
            for each in told.keys() & arrived.keys()
            if told[each] not in may_score and arrived[each].scores
        },
    )
    yield from _named(
        "carriers came twice, and not alike",
        {each for each, came in arrived.items() if len(came.digests) > 1},
    )


def _named(what: str, found: Iterable[SpanId]) -> Iterator[str]:
    each = sorted(found)
    if each:
        some = ", ".join(":".join(one) for one in each[:_MOST_NAMED])
        yield f"{len(each)} {what}: {some}{' and others' if len(each) > _MOST_NAMED else ''}"
