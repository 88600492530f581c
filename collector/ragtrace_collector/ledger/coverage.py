"""Which share of the chosen answers got a score, by metric, over the last minutes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ragtrace.model import Evaluation, Label
from ragtrace.ports import Clock, Metric
from ragtrace_collector.ledger.outcomes import FinalOutcome, State

WINDOW_MINUTES: Final = 10
_MINUTE_NS: Final = 60 * 10**9
_SEVERAL: Final = 5
_WITHOUT_SCORE: Final = (State.FAILED, State.EXPIRED, State.OVER_BUDGET)


class CoverageOf(NamedTuple):
    """Of one metric."""

    scored: int
    chosen: int
    """Answers that were to be judged: scored, failed, or waiting after a failed attempt."""


class _Minute(NamedTuple):
    number: int
    """Since 1970."""
    scored: Counter[str]
    chosen: Counter[str]
    lost: Counter[str]
    """Answers without any score, by outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts the answers that ended in the last `WINDOW_MINUTES`, without those with nothing to judge."""

    clock: Clock
    _minutes: deque[_Minute] = field(default_factory=lambda: deque(maxlen=WINDOW_MINUTES))

    def note(self, outcome: str, evaluation: Evaluation | None, metrics: Sequence[Metric]) -> None:
        """Count an answer that ended; ``metrics`` are what it was to be judged by."""
        if FinalOutcome.of(outcome).state in _WITHOUT_SCORE:
            self._now().chosen.update(_names((metric.name, metric.profile) for metric in metrics))
            self._now().lost[outcome] += 1
            return
        outcomes = evaluation.outcomes if evaluation else ()
        names = _names((each.metric, each.profile) for each in outcomes)
        for name, each in zip(names, outcomes, strict=True):
            if each.label is not Label.SKIPPED:
                self._now().chosen[name] += 1
                self._now().scored[name] += each.label is not Label.ERROR

    def by_metric(self, metrics: Sequence[Metric], *, waiting: int) -> Mapping[str, CoverageOf]:
        """Return the coverage of each metric; ``waiting`` answers wait after a failed attempt."""
        recent = self._recent()
        scored = sum((minute.scored for minute in recent), Counter[str]())
        chosen = sum((minute.chosen for minute in recent), Counter[str]())
        names = {*_names((metric.name, metric.profile) for metric in metrics), *chosen}
        return {name: CoverageOf(scored[name], chosen[name] + waiting) for name in sorted(names)}

    def why_none(self) -> str | None:
        """Return the outcome of most answers if none of several got a score; ``None`` if one did."""
        recent = self._recent()
        lost = sum((minute.lost for minute in recent), Counter[str]())
        if lost.total() < _SEVERAL or any(minute.scored.total() for minute in recent):
            return None
        return lost.most_common(1)[0][0]

    def _recent(self) -> Sequence[_Minute]:
        oldest = self._now().number - WINDOW_MINUTES
        return [minute for minute in self._minutes if minute.number > oldest]

    def _now(self) -> _Minute:
        number = self.clock.now_ns() // _MINUTE_NS
        if not self._minutes or self._minutes[-1].number < number:
            self._minutes.append(_Minute(number, Counter(), Counter(), Counter()))
        return self._minutes[-1]


def _names(metrics: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the name of each metric as its scores have it: with the profile if the metric came before."""
    known: set[str] = set()
    for name, profile in metrics:
        yield f"{name}.{profile}" if name in known else name
        known.add(name)
