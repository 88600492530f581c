"""The evaluator of live traffic: behind its guards, with the cheaper one that a spent budget leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.clock import SystemClock
from ragtrace.judge.spec import JudgeSpec
from ragtrace.pipeline.evaluator import EmbedderAround, Evaluator, EvaluatorSpec, JudgeAround, JudgeRole
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge.guard import JudgeGuard, JudgeGuards, Unavailable, guards_of
from ragtrace_collector.judge.spec import cheaper_spec_of, evaluator_spec_of

_CHEAPER_FROM: Final = 0.8
"""Where the budget asks a cheaper judge at its limit, that one judges from this share of it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedEvaluator:
    """An evaluator, and whether it may be asked."""

    evaluator: Evaluator
    guards: JudgeGuards
    """The guards of every judge and embedder."""
    name: str = "judge"
    """The name of the judge's own guard."""
    cheaper: GuardedEvaluator | None = None
    """The evaluator with the cheaper judge, used if the budget has nothing left for this one."""

    @property
    def now(self) -> GuardedEvaluator:
        """The evaluator to use now: the cheaper one, if it exists and the budget requires it."""
        is_spent = any(guard.refusal for guard in self._guards(self.name))
        return self.cheaper if self.cheaper and is_spent else self

    def closed(self) -> Unavailable | None:
        """Return until when the judge may not be asked, if so."""
        return next((guard.closed() for guard in self._guards(self.name)), None)

    def stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome; ``None`` if no reason is known."""
        return next((guard.stopped() for guard in self._guards(self.name)), None)

    def opens_ns(self) -> int:
        """Return when every judge may be asked again, in Unix nanoseconds; 0 if they may now."""
        closed = (guard.closed() for guard in self._guards(self.name, "second", "embedder"))
        return max((unavailable.until_ns for unavailable in closed if unavailable), default=0)

    def _guards(self, *names: str) -> Iterator[JudgeGuard]:
        return (self.guards.by_name[name] for name in names if name in self.guards.by_name)


def old_prices(guarded: GuardedEvaluator, *, now_ns: int) -> tuple[str, ...]:
    """Return one line for each model whose price is old."""
    prices = guarded.guards.prices
    asked = (guarded, guarded.cheaper) if guarded.cheaper else (guarded,)
    said = (
        prices.too_old(identity, now_ns=now_ns)
        for asked_one in asked
        for identity in asked_one.evaluator.identities
    )
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
    spec, cheaper = evaluator_spec_of(config), cheaper_spec_of(config)
    share = _CHEAPER_FROM if cheaper else 1.0
    key_place = spec.embedder.key_place if spec.embedder else ""
    around_embedder = guards.embedder("embedder", key_place=key_place)
    async with _opened("judge", spec, guards, share=share, around_embedder=around_embedder) as guarded:
        if cheaper is None:
            yield guarded
            return
        async with _opened("cheaper", cheaper, guards) as other:
            # one embedder, behind one guard
            shared = replace(other.evaluator, embedder=guarded.evaluator.embedder)
            yield replace(guarded, cheaper=replace(other, evaluator=shared))


@asynccontextmanager
async def _opened(
    name: str,
    spec: EvaluatorSpec,
    guards: JudgeGuards,
    *,
    share: float = 1.0,
    around_embedder: EmbedderAround | None = None,
) -> AsyncIterator[GuardedEvaluator]:
    def around(role: JudgeRole, judge: JudgeSpec) -> JudgeAround:
        guard_name = name if role is JudgeRole.JUDGE else str(role)
        return guards.judge(guard_name, share=share, key_place=judge.key_place)

    opened = spec.open(around=around, around_embedder=around_embedder, prices=guards.prices)
    async with aclosing(opened):
        yield GuardedEvaluator(evaluator=opened, guards=guards, name=name)
