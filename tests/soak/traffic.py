"""Mixed traffic: RAG calls in every recorded convention, and what stands beside them in production."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from random import Random
from typing import Any

import grpc
import httpx

from ragtrace import semconv
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Resource, Scope, Span, Trace
from ragtrace_collector.ledger import Ledger
from tests.acceptance.replies import ANSWER
from tests.patience import PATIENCE_S
from tests.rag_spans import chat_span, rag_trace
from tests.soak.fates import SpanId
from tests.unit.traces.recordings import all_recordings

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_PROTOBUF = {"content-type": "application/x-protobuf"}
_LOST = "connection lost"
_TRY_AGAIN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "503", _LOST})
_LATE_S = 4.0
LINGER_S = 20.0
"""How long the collector keeps the spans of a trace that it has settled."""
_SHARES = {"rag": 64, "chat": 12, "duplicate": 6, "late": 6, "feedback": 6}


@dataclass(frozen=True, slots=True)
class Template:
    """One trace to send again and again under other ids."""

    spans: tuple[Span, ...]
    answers: tuple[str, ...]
    """Span ids of the RAG answers in it, read when it is whole."""


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Sends, and counts what was acknowledged."""

    ports: Sequence[tuple[int, int]]
    """Of gRPC and HTTP, of each collector: any of them may get any span."""
    random: Random
    sent: Counter[str] = field(default_factory=Counter)
    """By kind; ``answers`` is what the collector has to account for. A machine that stands still may hold up
    the second part of a trace until the collector has let go of the first: each of its spans may be an answer
    more (``answers torn apart``)."""
    unexpected: Counter[str] = field(default_factory=Counter)
    """Answers of the collector that no sender should get."""
    answers: list[SpanId] = field(default_factory=list)
    """All that are to be accounted for by name: not those that may have been torn apart."""
    _templates: Sequence[Template] = field(default_factory=lambda: tuple(_templates()))
    _recent: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=50))

    async def run(self, *, a_second: float, seconds: float) -> None:
        """Send for so long, then wait for what is under way."""
        loop = asyncio.get_running_loop()
        until_s, due_s = loop.time() + seconds, loop.time()
        async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
            wires = [await opened.enter_async_context(open_wire(*each)) for each in self.ports]
            while loop.time() < until_s:
                tasks.create_task(self._one(wires))
                due_s += self.random.expovariate(a_second)
                await asyncio.sleep(max(0.0, due_s - loop.time()))

    def differs_from(self, ledger: Ledger) -> Iterator[str]:
        if not 0 <= ledger.seen - self.sent["answers"] <= self.sent["answers torn apart"]:
            yield f"{self.sent['answers']} answers were sent, and {ledger.seen} are accounted for"

    async def _one(self, wires: Sequence[Wire]) -> None:
        (kind,) = self.random.choices(list(_SHARES), weights=list(_SHARES.values()))
        if kind == "feedback":
            await self._send_feedback(wires)
        else:
            template = _CHAT if kind == "chat" else self.random.choice(self._templates)
            await self._send_trace(wires, template, kind)
        self.sent[kind] += 1

    async def _send_trace(self, wires: Sequence[Wire], template: Template, kind: str) -> None:
        spans = list(_renamed(template.spans, self.random))
        self.random.shuffle(spans)
        self.sent["answers"] += len(template.answers)  # before: the collector may know it before we know it
        began_s = time.monotonic()
        cut = self.random.randrange(len(spans))
        first, second = spans[:cut], spans[cut:]
        await self._send(wires, first)
        await asyncio.sleep(_LATE_S if kind == "late" else self.random.uniform(0, 0.2))
        await self._send(wires, second)
        if kind == "duplicate":
            await self._send(wires, spans)
        if time.monotonic() - began_s > LINGER_S / 2:
            self.sent["answers torn apart"] += len(spans)
        else:
            self.answers += [SpanId(spans[0].trace_id, answer) for answer in template.answers]
        self._recent.append((spans[0].trace_id, spans[0].span_id))

    async def _send_feedback(self, wires: Sequence[Wire]) -> None:
        if not self._recent:
            return
        trace_id, parent = self.random.choice(self._recent)
        told = {semconv.FEEDBACK_NAME: "thumbs", semconv.FEEDBACK_LABEL: self.random.choice(["up", "down"])}
        span = Span(
            trace_id=trace_id,
            span_id=f"{self.random.getrandbits(64) | 1:016x}",
            parent_span_id=parent,
            name=semconv.FEEDBACK_SPAN,
            start_ns=1,
            end_ns=2,
            attributes=told,
            resource=Resource(attributes={semconv.SERVICE_NAME: "feedback"}),
            scope=Scope(name=semconv.SCOPE_CAPTURE),
        )
        await self._send(wires, [span])

    async def _send(self, wires: Sequence[Wire], spans: Sequence[Span]) -> None:
        """Send as an SDK does: by one of the protocols, again where it is put off."""
        if not spans:
            return
        body, loop = encode(spans), asyncio.get_running_loop()
        by_grpc = self.random.random() < 0.5

        async def sent() -> str:
            wire = self.random.choice(wires)
            return await (wire.by_grpc(body) if by_grpc else wire.by_http(body))

        until_s = loop.time() + PATIENCE_S
        while (answer := await sent()) in _TRY_AGAIN and loop.time() < until_s:
            self.sent["connections lost" if answer == _LOST else "put off"] += 1
            await asyncio.sleep(0.5)
        if answer not in ("OK", "200"):
            self.unexpected[f"{answer} to spans"] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The two protocols; each answers with a code."""

    export: Any
    client: httpx.AsyncClient

    async def by_grpc(self, body: bytes) -> str:
        try:
            await self.export(body, timeout=30)
        except grpc.aio.AioRpcError as exc:
            return exc.code().name
        return "OK"

    async def by_http(self, body: bytes) -> str:
        try:
            answer = await self.client.post("/v1/traces", content=body, headers=_PROTOBUF)
        except httpx.TransportError:  # a connection that was idle for too long, say
            return _LOST
        return str(answer.status_code)


@asynccontextmanager
async def open_wire(grpc_port: int, http_port: int) -> AsyncIterator[Wire]:
    options = [("grpc.max_send_message_length", -1)]
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}", options=options) as channel,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=30) as client,
    ):
        yield Wire(export=channel.unary_unary(_EXPORT), client=client)


def _templates() -> Iterator[Template]:
    """Every trace of every recording, and as many made by hand whose judge replies are to the point."""
    for recording in all_recordings():
        by_trace = sorted(recording.spans, key=lambda span: span.trace_id)
        for _, spans in groupby(by_trace, key=lambda span: span.trace_id):
            yield _template(tuple(spans))
            yield _template(rag_trace(0, answer=ANSWER))


def _template(spans: tuple[Span, ...]) -> Template:
    records = extract_records(Trace.of(spans[0].trace_id, spans)).records
    targets = (record.target for record in records)
    return Template(spans=spans, answers=tuple(target.span_id for target in targets if target))


_CHAT = _template((chat_span(0, question="Hi?", answer="Hello."),))
"""Seen too, and then ineligible: nothing was retrieved for it."""


def _renamed(spans: Sequence[Span], random: Random) -> tuple[Span, ...]:
    """Give a trace an id of its own; span ids are its own affair."""
    trace_id = f"{random.getrandbits(128) | 1:032x}"
    return tuple(
        replace(span, trace_id=trace_id, links=tuple(replace(link, trace_id=trace_id) for link in span.links))
        for span in spans
    )
