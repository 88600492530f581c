"""The evaluator of live traffic, behind its guards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from ragtrace.clock import SystemClock
from ragtrace.judge.spec import JudgeSpec
from ragtrace.pipeline import Evaluator, JudgeAround, JudgeRole
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge.guard import JudgeGuard, JudgeGuards, Unavailable, guards_of
from ragtrace_collector.judge.spec import evaluator_spec_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedEvaluator:
    """An evaluator, and whether it may be asked."""

    evaluator: Evaluator
    guards: JudgeGuards
    """The guards of every judge and embedder."""

    def closed(self) -> Unavailable | None:
        """Return until when the judge may not be asked, if so."""
        return next((guard.closed() for guard in self._guards("judge")), None)

    def stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome; ``None`` if no reason is known."""
        return next((guard.stopped() for guard in self._guards("judge")), None)

    def opens_ns(self) -> int:
        """Return when every judge may be asked again, in Unix nanoseconds; 0 if they may now."""
        closed = (guard.closed() for guard in self._guards("judge", "second", "embedder"))
        return max((unavailable.until_ns for unavailable in closed if unavailable), default=0)

    def _guards(self, *names: str) -> Iterator[JudgeGuard]:
        return (self.guards.by_name[name] for name in names if name in self.guards.by_name)


def old_prices(guarded: GuardedEvaluator, *, now_ns: int) -> tuple[str, ...]:
    """Return one line for each model whose price is old."""
    prices = guarded.guards.prices
    said = (prices.too_old(identity, now_ns=now_ns) for identity in guarded.evaluator.identities)
    return tuple(dict.fromkeys(line for line in said if line))


@asynccontextmanager
async def open_evaluator(
    config: CollectorConfig, guards: JudgeGuards | None = None
) -> AsyncIterator[GuardedEvaluator]:
    """Open the evaluator behind its guards; close it at the end.

    Raises:
        ConfigError: a metric, judge, embedder, calibration or price table cannot be used.
    """
    guards = guards or guards_of(config, clock=SystemClock(), spend_ledger=None)
    spec = evaluator_spec_of(config)

    def around(role: JudgeRole, judge: JudgeSpec) -> JudgeAround:
        return guards.judge(str(role), key_place=judge.key_place)

    key_place = spec.embedder.key_place if spec.embedder else ""
    opened = spec.open(
        around=around,
        around_embedder=guards.embedder("embedder", key_place=key_place),
        prices=guards.prices,
    )
    async with aclosing(opened):
        yield GuardedEvaluator(evaluator=opened, guards=guards)
