"""The worst answers of a run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from ragtrace.model import Direction, MetricResult, VerdictLabel
from ragtrace.outcomes import JudgedAnswer


class WorstAnswers:
    """Keeps the answers with the lowest scores, up to a number; never those without a flaw."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen = 0
        self._heap: list[tuple[_Badness, JudgedAnswer]] = []

    def add(self, answer: JudgedAnswer) -> None:
        """Add an answer if it is among the worst."""
        self._seen += 1
        badness = _badness(answer, self._seen)
        if self._most == 0 or badness is None:
            return
        keep = heapq.heappush if len(self._heap) < self._most else heapq.heappushpop
        keep(self._heap, (badness, answer))

    def __iter__(self) -> Iterator[JudgedAnswer]:
        """Yield them, the worst first."""
        return (answer for _, answer in sorted(self._heap, key=lambda each: each[0], reverse=True))


class _Badness(NamedTuple):
    lack: float
    """The largest distance of a metric from its best score."""
    contradicted: int
    unsupported: int
    earliness: int
    """Unique, so that answers themselves are never compared."""


def _badness(answer: JudgedAnswer, number: int) -> _Badness | None:
    lacks = [_lack(result) for result in answer.evaluation.results if result.score is not None]
    labels = [verdict.label for result in answer.evaluation.results for verdict in result.verdicts]
    if not lacks or not any(lacks):
        return None
    return _Badness(
        lack=max(lacks),
        contradicted=labels.count(VerdictLabel.CONTRADICTED),
        unsupported=labels.count(VerdictLabel.UNSUPPORTED),
        earliness=-number,
    )


def _lack(result: MetricResult) -> float:
    assert result.score is not None
    return 1 - result.score if result.direction is Direction.HIGHER_IS_BETTER else result.score
