"""Judged answers on ragtrace's page, on a real port: a file of traces, a SQLite index, a file of reviews."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Any, TypeVar

from starlette.applications import Starlette

from ragtrace.answer_sources import find_answers, open_source
from ragtrace.answers.index import OwnIndex, open_index
from ragtrace.answers.summary import AnswerKey, FaultKind, SessionFault, SessionSummary
from ragtrace.model import Label, VerdictLabel
from ragtrace.reviews import ReviewFile
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.ui.security import Sessions, UiAccess
from ragtrace_collector.ui.serving import ui_app
from ragtrace_collector.ui.site import Site
from ragtrace_collector.web.server import HttpServer, open_socket
from ragtrace_collector.web.tokens import TokenAuth, TokenGrant
from tests.integration.collector.answer_pages import JudgedTrace, a_result, a_verdict
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

T = TypeVar("T")

_ROOT = "00000000000000a1"
_HOUR_NS = 3_600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTexts:
    """The texts of one judged answer. The first claim is contradicted by the first chunk; the other holds."""

    name: str
    claims: tuple[str, str] = ("Refunds take 30 days.", "Shipping is free.")
    question: str = "How long do refunds take?"
    chunks: Sequence[str] = ("Refunds take 14 days.", "Shipping is free from $50.", "Our shop is in Bern.")
    service: str = "shop"
    note: str = ""
    padding: str = ""
    """Goes between the two claims."""

    @property
    def answer(self) -> str:
        """The answer."""
        return f"{self.claims[0]} {self.padding}{self.claims[1]}"

    def spans(self, number: int) -> Sequence[Span]:
        """Return the trace with its carrier, of a moment ago."""
        start_ns = time_ns() - _HOUR_NS - number * 60 * 10**9
        spans = rag_trace(
            number,
            question=self.question,
            chunks=self.chunks,
            answer=self.answer,
            service=self.service,
            start_ns=start_ns,
        )
        wrong = a_verdict(
            self.claims[0], VerdictLabel.CONTRADICTED, of=self.answer, quote=self.chunks[0][:2_000]
        )
        right = a_verdict(self.claims[1], of=self.answer, index=1, chunk_ids=("chunk-1",))
        reason = self.note or wrong.reason
        trace = JudgedTrace(spans=spans).judged(a_result(replace(wrong, reason=reason), right))
        return (*trace.spans, *(_moved(carrier, spans[0]) for carrier in trace.carriers))


def _moved(carrier: Span, target: Span) -> Span:
    """Date a carrier inside its target."""
    start_ns = target.end_ns - 10**6
    events = tuple(replace(event, time_ns=start_ns) for event in carrier.events)
    return replace(carrier, start_ns=start_ns, end_ns=target.end_ns, events=events)


ORDINARY = tuple(AnswerTexts(name=f"answer {number}") for number in range(3))


@dataclass(kw_only=True)
class SettableClock:
    """The system's clock, and as far ahead as a test says."""

    ahead_ns: int = 0

    def now_ns(self) -> int:
        """Return the time."""
        return time_ns() + self.ahead_ns


@dataclass(frozen=True, kw_only=True)
class ServedPages:
    """The running pages."""

    url: str
    keys: Mapping[str, AnswerKey]
    clock: SettableClock
    reviews: Callable[[AnswerKey], Sequence[str]]
    """The labels that people gave an answer."""

    def path(self, route: str, of: str = ORDINARY[0].name) -> str:
        """Return the URL of a route such as ``/answers/{answer}`` for the answer of this name."""
        key = self.keys[of]
        return self.url + route.replace("{answer}", f"{key.trace_id}/{key.span_id}")


@contextmanager
def serving(
    folder: Path, answers: Sequence[AnswerTexts] = ORDINARY, *, grants: Sequence[TokenGrant] = ()
) -> Iterator[ServedPages]:
    """Serve the pages of these answers on a free port, until the block ends."""
    traces = folder / "traces.jsonl"
    lines = [encode_json(list(answer.spans(number))) for number, answer in enumerate(answers)]
    traces.write_text("".join(f"{json.dumps(json.loads(line))}\n" for line in lines), "utf-8")
    keys = {answer.name: AnswerKey(trace_id_of(number), _ROOT) for number, answer in enumerate(answers)}
    clock, reviews = SettableClock(), ReviewFile(folder / "reviews.db")
    index, source = open_index(), open_source(f"file:{traces}")
    auth = TokenAuth(grants, clock)
    site = Site(
        index=index,
        source=source,
        reviews=reviews,
        clock=clock,
        links={"Jaeger": "http://localhost:16686/trace/{trace_id}"},
    )
    access = UiAccess(tokens=auth, sessions=Sessions(auth, clock, lifetime_s=3_600))

    async def fill() -> None:
        await _fill(index, f"file:{traces}", expected=len(answers))
        await index.add_sessions([_session(list(keys.values()))])

    with _running(ui_app(site, access=access), before=fill, after=lambda: _close(index, source)) as url:
        yield ServedPages(
            url=url,
            keys=keys,
            clock=clock,
            reviews=lambda key: [review.label.value for review in _in_thread(lambda: reviews.of(key))],
        )
    reviews._close()


def _session(keys: Sequence[AnswerKey]) -> SessionSummary:
    """Return a session of these answers, whose last one says the opposite of the first."""
    first, last = keys[0], keys[-1]
    kinds = (FaultKind.CONTRADICTION, FaultKind.REPEATED, FaultKind.CORRECTION)
    return SessionSummary(
        session="chat 1",
        trace_id=last.trace_id,
        answer_span_id=last.span_id,
        span_id="5" * 16,
        time_ns=time_ns(),
        label=Label.FAIL,
        turns=len(keys),
        decided=len(keys),
        faithful=0,
        contradictions=1,
        repeated=1,
        corrections=1,
        unchecked=1,
        faults=tuple(
            SessionFault(kind=kind, turn=len(keys), answer=last, earlier_turn=1, earlier=first)
            for kind in kinds
        ),
    )


async def _fill(index: OwnIndex, address: str, *, expected: int) -> None:
    found = [row async for row in find_answers(address, since_ns=0, until_ns=time_ns())]
    assert len(found) == expected
    await index.add(found)


async def _close(index: OwnIndex, source: Any) -> None:
    await source.aclose()
    await index.aclose()


def _in_thread(call: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine although Playwright's own loop runs in this thread."""
    result: list[T] = []

    async def run() -> None:
        result.append(await call())

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join(PATIENCE_S)
    return result[0]


@contextmanager
def _running(
    app: Starlette, *, before: Callable[[], Awaitable[None]], after: Callable[[], Awaitable[None]]
) -> Iterator[str]:
    listening = open_socket("127.0.0.1:0")
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server, is_up = HttpServer(app, listening), threading.Event()
    failed: list[Exception] = []

    async def run() -> None:
        await before()
        is_up.set()
        await server.serve()
        await after()

    def work() -> None:
        try:
            asyncio.run(run())
        except Exception as exc:  # noqa: BLE001 -- the test's own thread raises it
            failed.append(exc)
        finally:
            is_up.set()

    thread = threading.Thread(target=work, name="pages")
    thread.start()
    try:
        assert is_up.wait(PATIENCE_S)
        if failed:
            raise failed[0]
        yield url
    finally:
        server.stop()
        thread.join(PATIENCE_S)
    if failed:
        raise failed[0]
