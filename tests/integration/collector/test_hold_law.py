"""The law of hold mode: whatever comes in which order, every span goes on once, every score is told once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector, open_collector
from tests.integration.collector.running import config_of, request_of
from tests.integration.collector.stepping import evaluate_next
from tests.rag_spans import chat_span, rag_trace

pytestmark = pytest.mark.slow

SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
BACK_END = "http://localhost:9"
"""Nothing is delivered: what stands in the outbox is what goes on."""
TIMEOUT_S = 30
SPANS = (*rag_trace(0), *rag_trace(1), chat_span(2, question="Hi?", answer="Hello."))
Step = Literal["send", "settle", "judge", "wait", "restart"]


@dataclass(slots=True)
class SetClock:
    """A clock that goes on when it is told to."""

    at_ns: int = 1_760_000_000_000_000_000

    def now_ns(self) -> int:
        self.at_ns += 1_000
        return self.at_ns

    def go_on(self, seconds: float) -> None:
        self.at_ns += int(seconds * 1e9)


@dataclass(slots=True)
class Schedule:
    """What happens to spans in some order."""

    folder: Path
    waiting: list[Span]
    clock: SetClock = field(default_factory=SetClock)
    config: CollectorConfig = field(init=False)

    def __post_init__(self) -> None:
        self.config = config_of(
            self.folder,
            export=[{"endpoint": BACK_END, "forward": True}],
            attach={"mode": "hold", "hold_timeout": f"{TIMEOUT_S}s"},
        )

    async def run(self, steps: Sequence[Step], portions: Sequence[int]) -> list[Span]:
        """Do the steps, then all that is left; return what goes on to the back end, in order."""
        left = list(steps)
        sizes = iter(portions)
        while left:
            async with open_collector(self.config, clock=self.clock) as collector:
                while left and (step := left.pop(0)) != "restart":
                    await self._do(step, collector, next(sizes, 1))
        async with open_collector(self.config, clock=self.clock) as collector:
            await self._do("send", collector, len(self.waiting))
            for step in ("settle", *["judge"] * 4, "wait"):
                await self._do(step, collector, 1)
            await collector.pipeline.holder.release_all()
            outbox_items = await collector.pipeline.store.outbox_items(BACK_END, 1_000)
            return [span for outbox_item in outbox_items for span in decode(outbox_item.payload)]

    async def _do(self, step: Step, collector: Collector, portion: int) -> None:
        match step:
            case "send":
                portion_of_spans, self.waiting = self.waiting[:portion], self.waiting[portion:]
                await collector.pipeline.intake.accept(request_of(*portion_of_spans), encoding="protobuf")
            case "settle":
                await collector.pipeline.sample_stage.step(everything=True)
            case "judge":
                await evaluate_next(collector)
            case "wait":
                self.clock.go_on(TIMEOUT_S + 1)
                await collector.pipeline.holder.step()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    spans=st.permutations(SPANS),
    steps=st.lists(st.sampled_from(["send", "send", "settle", "judge", "wait", "restart"]), max_size=14),
    portions=st.lists(st.integers(1, 4), max_size=14),
)
def test_each_span_goes_on_once_and_each_score_is_told_once(
    spans: list[Span], steps: list[Step], portions: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        went = asyncio.run(Schedule(Path(folder), list(spans)).run(steps, portions))
        judged = _judged(Path(folder))
    carriers = [span for span in went if span.scope.name == semconv.SCOPE_EVALUATION]
    originals = [span for span in went if span.scope.name != semconv.SCOPE_EVALUATION]
    assert Counter(map(_key, originals)) == Counter(map(_key, SPANS))
    on_spans = [_key(span) for span in originals if SCORE in span.attributes]
    on_carriers = [span for span in carriers if SCORE in span.attributes]
    first = [_target(span) for span in on_carriers if semconv.EVAL_SUPERSEDES not in span.attributes]
    assert judged <= {*on_spans, *map(_target, on_carriers)}
    assert len({*on_spans, *first}) == len(on_spans) + len(first)


def test_scores_in_time_stand_on_the_span_and_late_ones_on_a_carrier(tmp_path: Path) -> None:
    def told_by(steps: list[Step], folder: Path) -> list[str]:
        folder.mkdir()
        went = asyncio.run(Schedule(folder, list(rag_trace(0))).run(steps, [3]))
        return [span.name for span in went if SCORE in span.attributes]

    assert told_by(["send", "settle", "judge"], tmp_path / "in_time") == ["invoke_workflow ask"]
    assert told_by(["send", "settle", "wait", "judge"], tmp_path / "late") == ["evaluation pass"]


def _judged(folder: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "store.db")) as db:
        return set(db.execute("SELECT trace_id, span_id FROM job WHERE outcome = 'judged'").fetchall())


def _target(carrier: Span) -> tuple[str, str]:
    return carrier.trace_id, carrier.parent_span_id or ""


def _key(span: Span) -> tuple[str, str]:
    return span.trace_id, span.span_id
