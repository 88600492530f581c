"""Any order, delay, split or duplication of spans, and crashes between: in the end the same is said."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from ragtrace import semconv
from ragtrace.traces.trace import Span
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import StandingClock, Stepped, final_carriers, stepped_collector
from tests.rag_spans import rag_trace

T = TypeVar("T")
Sayings = Mapping[tuple[str, str | None], Mapping[str, Any]]

QUIET_S: Final = 5
DEADLINE_S: Final = 60
_NOT_JUDGED: Final = frozenset(
    {
        *(semconv.EVAL_RUN_ID, semconv.EVAL_STARTED_AT, semconv.EVAL_DURATION_MS, semconv.EVAL_SUPERSEDES),
        *(semconv.SESSION_ID, semconv.TARGET_ROOT_NAME, semconv.TARGET_MODEL),
    }
)
"""When, and after what, a carrier was written, and what it copies for filtering, of spans that were there."""


def a_session() -> list[Span]:
    """Return a trace with two RAG calls under one root; a retrieval of one is of another service."""
    (top, *_) = rag_trace(0)
    root = replace(top, span_id="0" * 15 + "1", attributes={semconv.SESSION_ID: "s-1"}, name="session")
    first = _renumbered(rag_trace(0), "1", under=root)
    second = rag_trace(0, question="Is it free?", answer="It costs 5 euros.", chunks=["It costs 5 euros."])
    call, retrieval, generation = _renumbered(second, "2", under=root)
    client = replace(retrieval, span_id="0" * 14 + "2c", attributes={}, name="GET /search")
    return [root, *first, call, client, replace(retrieval, parent_span_id=client.span_id), generation]


def _renumbered(spans: Sequence[Span], digit: str, *, under: Span) -> list[Span]:
    return [
        replace(
            span,
            span_id=span.span_id[:-2] + digit + span.span_id[-1],
            parent_span_id=span.parent_span_id[:-2] + digit + "1" if span.parent_span_id else under.span_id,
        )
        for span in spans
    ]


def an_unmarked_call() -> list[Span]:
    """Return a RAG call that does not say it is one, and what a person said of it."""
    root, retrieval, generation = rag_trace(1, answer="Refunds take 30 days.")
    said = {semconv.FEEDBACK_NAME: "thumbs", semconv.REFERENCE_ANSWER: "Refunds take 14 days."}
    feedback = replace(
        root, span_id="0" * 15 + "f", parent_span_id=root.span_id, name=semconv.FEEDBACK_SPAN, attributes=said
    )
    return [replace(root, attributes={}, name="POST /ask"), retrieval, generation, feedback]


def no_rag_call() -> list[Span]:
    root, *_ = rag_trace(2)
    return [replace(root, attributes={}, name="GET /health")]


SPANS: Final = (*a_session(), *an_unmarked_call(), *no_rag_call())


class World:
    """A folder, a clock, and one process of a collector after the other."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = StandingClock()
        self.process: AbstractAsyncContextManager[Stepped] | None = None
        self.spans: Stepped

    async def start(self) -> None:
        times = {"quiet_period": f"{QUIET_S}s", "deadline": f"{DEADLINE_S}s", "linger": "1h"}
        config = config_of(
            self.folder,
            assemble={**times, "max_revisions": 20},
            judge={"use": "lexical"},
            evaluate={"metrics": ["faithfulness", "context_recall"]},
            attach={"carrier_time": "target"},
        )
        self.process = stepped_collector(config, clock=self.clock)
        self.spans = await self.process.__aenter__()

    async def crash(self) -> None:
        if self.process is not None:
            await self.process.__aexit__(None, None, None)
            self.process = None

    async def settle(self) -> Sayings:
        """Wait until nothing moves any more, and return what is said of each answer in the end."""
        for _ in range(3):
            await self.spans.pass_time(DEADLINE_S)
        final = final_carriers(self.spans.carriers())
        assert len({(span.trace_id, span.parent_span_id) for span in final}) == len(final)
        return {(span.trace_id, span.parent_span_id): what_it_says(span) for span in final}


def what_it_says(carrier: Span) -> Mapping[str, Any]:
    """Return all of a carrier that must not depend on the order of spans, nor on crashes."""
    attributes = {key: value for key, value in carrier.attributes.items() if key not in _NOT_JUDGED}
    return {"name": carrier.name, **attributes, "events": [event.attributes for event in carrier.events]}


class OrderMachine(RuleBasedStateMachine):
    """Sends spans however Hypothesis likes, and ends the collector when it likes."""

    expected: ClassVar[Sayings] = {}
    unsent: Bundle[Span] = Bundle("unsent")
    sent: Bundle[Span] = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.runner = asyncio.Runner()
        self.left = dict.fromkeys(SPANS_BY_ID)

    @initialize(target=unsent)
    def start(self) -> Any:
        self.run(self.world.start())
        return multiple(*SPANS)

    @rule(target=sent, span=consumes(unsent))
    def send(self, span: Span) -> Span:
        self.hand_over([span])
        return span

    @rule(target=sent, several=st.lists(consumes(unsent), min_size=2, max_size=5))
    def send_together(self, several: list[Span]) -> Any:
        self.hand_over(several)
        return multiple(*several)

    @rule(span=sent)
    def send_again(self, span: Span) -> None:
        self.hand_over([span])

    @rule(seconds=st.sampled_from([0.5, QUIET_S, DEADLINE_S]))
    def wait(self, seconds: float) -> None:
        self.run(self.world.spans.pass_time(seconds))

    @rule()
    def crash(self) -> None:
        self.run(self.world.crash())
        self.run(self.world.start())

    def teardown(self) -> None:
        try:
            if self.world.process is not None:
                self.hand_over([SPANS_BY_ID[each] for each in self.left])
                assert self.run(self.world.settle()) == self.expected
                assert self.run(self.world.spans.outcomes()) == {"judged": len(self.expected)}
        finally:
            self.run(self.world.crash())
            self.runner.close()
            shutil.rmtree(self.world.folder)

    def hand_over(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self.left.pop((span.trace_id, span.span_id), None)
        if spans:
            self.run(self.world.spans.send(*spans))

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)


SPANS_BY_ID: Final = {(span.trace_id, span.span_id): span for span in SPANS}


async def said_where_all_comes_at_once() -> Sayings:
    world = World()
    try:
        await world.start()
        await world.spans.send(*SPANS)
        return await world.settle()
    finally:
        await world.crash()
        shutil.rmtree(world.folder)


@pytest.mark.slow
def test_the_order_of_spans_changes_nothing_that_is_said_in_the_end() -> None:
    OrderMachine.expected = asyncio.run(said_where_all_comes_at_once())
    assert len(OrderMachine.expected) == 3
    run_machine(
        OrderMachine,
        settings=settings(
            stateful_step_count=25,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
