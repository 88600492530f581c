"""A collector driven step by step, through the door that every receiver calls, on the test's own clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ragtrace import semconv
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector, open_collector
from tests.integration.collector.running import carriers_in
from tests.rag_spans import START_NS


class StandingClock:
    """A clock that a test moves, and sets wrong if it likes."""

    def __init__(self) -> None:
        self.time_ns = START_NS + 1_000_000_000
        self.wrong_by_ns = 0

    def now_ns(self) -> int:
        """Tell what may be set."""
        return self.time_ns + self.wrong_by_ns

    def monotonic_ns(self) -> int:
        """Tell what cannot."""
        return self.time_ns


@dataclass(slots=True, kw_only=True)
class Stepped:
    """One process of a collector, of which nothing moves by itself."""

    collector: Collector
    clock: StandingClock
    out: Path

    async def send(self, *spans: Span) -> None:
        """Hand over one export request, and have it acknowledged."""
        await self.collector.pipeline.intake.accept(encode(spans), encoding="protobuf")

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and every stage do what is due then."""
        await self.work()
        self.clock.time_ns += int(seconds * 1e9)
        await self.work()

    async def work(self) -> None:
        """Let every stage do what is due now."""
        stages = (
            self.collector.pipeline.sample_stage.step,
            partial(evaluate_next, self.collector),
            self.collector.pipeline.sessions.step,
            *(deliverer.step for deliverer in self.collector.pipeline.deliverers),
        )
        while any([await step() for step in stages]):
            pass

    def carriers(self) -> Sequence[Span]:
        """Return all the carriers that were delivered, in their order."""
        return carriers_in(self.out)

    async def outcomes(self) -> dict[str, int]:
        """Return how the answers that were seen ended, or where they wait."""
        counts = (await self.collector.pipeline.store.ledger()).by_name()
        others = [
            "open_traces",
            "held_traces",
            "poison_traces",
            "unread_traces",
            "undelivered",
            "unconfirmed",
            "rejected",
        ]
        return {name: number for name, number in counts.items() if number and name not in others}


@asynccontextmanager
async def stepped_collector(
    config: CollectorConfig, *, clock: StandingClock | None = None
) -> AsyncIterator[Stepped]:
    """Open a collector, and close it as a process that is killed does: nothing is drained."""
    clock = clock or StandingClock()
    async with open_collector(config, clock=clock, monotonic_ns=clock.monotonic_ns) as collector:
        out = Path(config.export[0].endpoint.removeprefix("otlp-file:"))
        yield Stepped(collector=collector, clock=clock, out=out)


def final_carriers(carriers: Sequence[Span]) -> Sequence[Span]:
    """Return the carriers that no other supersedes."""
    past = {span.attributes.get(semconv.EVAL_SUPERSEDES) for span in carriers}
    return [span for span in carriers if span.span_id not in past]


async def evaluate_next(collector: Collector) -> bool:
    """Evaluate the next due answer; say whether there was one."""
    jobs = await collector.pipeline.evaluator.take(1)
    for job in jobs:
        await collector.pipeline.evaluator.attempt(job)
    return bool(jobs)
