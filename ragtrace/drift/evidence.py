"""Whether a judge has changed: an exact comparison with the first runs, valid however often one looks.

**One look.** If the judge is the same, a run is exchangeable with the runs before it, anchor by anchor:
each of the scores that an anchor ever got is as likely the last one. So, for a stake in [0, 1) and the
deviations ``d`` of an anchor's scores from their mean,

    prod over anchors of  1 + stake * d_last / (-lowest d)

has the expected value 1 (an e-value: Vovk and Wang, *E-values: calibration, combination and applications*,
Annals of Statistics 2021; the null of permutations within strata is that of Lehmann and Romano, *Testing
Statistical Hypotheses*, chapter 15). With ``-d`` it bets on lower scores. It is averaged over stakes, up
and down, scores and verdicts, and metrics: the average is an e-value too. An anchor that always gets the
same score has the factor 1, so it costs nothing. Half of the bets stake less on an anchor whose scores are
at odds.

**Many looks.** All looks share the first runs, so their e-values depend on each other and may not be
multiplied. Each look gets a weight, and the weights of all looks to come sum to 1. The weighted sum only
grows, and its expected value is at most 1 at every time: an e-process under any dependence. By Markov's
inequality it reaches ``1/alpha`` with a probability of at most ``alpha``, over the whole life of a
baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from ragtrace.drift.runs import AnchorFlip, AnchorRun

REFERENCE_RUNS: Final = 7
"""So many first runs are the baseline. Later ones only compare: a slow drift does not become normal."""
DRIFT_FROM: Final = 100.0
"""What ``1/alpha`` is: of a hundred steady judges, one at most is ever accused."""
_STAKES: Final = (0.5, 0.9)
_EQUAL: Final = 1e-12
_YEAR: Final = 365
_MOST_LOG: Final = 500.0
"""A larger e-value is cut here: it stays one."""

_Values: TypeAlias = Mapping[tuple[str, str], float]
"""By metric and anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvidence:
    """What one more run adds."""

    total: float
    """The e-process after the run."""
    e_value: float
    """Of this run alone."""

    @property
    def is_drift(self) -> bool:
        """Whether a steady judge reaches this in at most one of a hundred baselines."""
        return self.total >= DRIFT_FROM


def look_weight(look: int) -> float:
    """Return the weight of a look, counted from 1: half is spread over a year of days, half falls as 1/n².

    >>> sum(look_weight(look) for look in range(1, 100_000)) <= 1
    True
    """
    return 0.5 / (look * (look + 1)) + (0.5 / _YEAR if look <= _YEAR else 0.0)


def weigh(earlier: Sequence[AnchorRun], run: AnchorRun) -> DriftEvidence:
    """Compare a run with the complete runs of its series before it, the oldest first; at least one."""
    reference = earlier[:REFERENCE_RUNS]
    e_value = _mean(list(_e_values(reference, run)))
    return DriftEvidence(total=earlier[-1].evidence + look_weight(len(earlier)) * e_value, e_value=e_value)


def flips(earlier: Sequence[AnchorRun], run: AnchorRun) -> tuple[AnchorFlip, ...]:
    """Return the anchors whose verdict is another one than in most reference runs, the largest change first.

    An anchor on which the reference runs are at odds is left out.
    """
    reference = earlier[:REFERENCE_RUNS]
    passed, scores = ([_values(each_run, kind) for each_run in reference] for kind in ("passed", "score"))
    found = []
    for (metric, anchor), now in _values(run, "passed").items():
        before = [values[metric, anchor] for values in passed if (metric, anchor) in values]
        if not before or abs(sum(before) / len(before) - now) <= 0.5:
            continue
        old = [values[metric, anchor] for values in scores if (metric, anchor) in values]
        new = _values(run, "score")[metric, anchor]
        found.append(AnchorFlip(anchor=anchor, metric=metric, before=sum(old) / len(old), now=new))
    return tuple(sorted(found, key=lambda flip: (-abs(flip.now - flip.before), flip.anchor, flip.metric)))


def _e_values(reference: Sequence[AnchorRun], run: AnchorRun) -> Iterator[float]:
    """Yield an e-value for each metric, kind of value and bet."""
    for kind in ("score", "passed"):
        last, before = _values(run, kind), [_values(each_run, kind) for each_run in reference]
        for metric in dict.fromkeys(metric for metric, _ in last):
            pairs = [
                (now, [values[key] for values in before if key in values])
                for key, now in last.items()
                if key[0] == metric
            ]
            for stake, direction, is_wary in product(_STAKES, (1, -1), (False, True)):
                logs = (_log_factor(stake, direction, is_wary, *pair) for pair in pairs)
                yield math.exp(min(_MOST_LOG, sum(logs)))


def _log_factor(stake: float, direction: int, is_wary: bool, now: float, before: Sequence[float]) -> float:
    """Return the logarithm of an anchor's factor. Over all orders of its scores, factors have the mean 1."""
    scores = (now, *before)
    mean = sum(scores) / len(scores)
    lowest = min(direction * (score - mean) for score in scores)
    if lowest > -_EQUAL:
        return 0.0
    if is_wary:
        stake *= max(Counter(scores).values()) / len(scores)
    return math.log1p(stake * direction * (now - mean) / -lowest)


def _values(run: AnchorRun, kind: str) -> _Values:
    return {(score.metric, score.anchor): float(getattr(score, kind)) for score in run.scores}


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 1.0
