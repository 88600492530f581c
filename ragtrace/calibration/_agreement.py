"""How far a judge agrees with people: arithmetic over weighted counts and over scores.

Everything is two-way: *supported* or *not supported*. A judge may also leave something open. Weights come
by cluster: the claims of one answer are not independent, so whatever is drawn again is drawn by answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from ragtrace.metrics.calibration_file import DEFAULT_THRESHOLD

"""Of the probability that a claim is supported."""
NO_WRONG_CLAIM = 1.0
"""Of the share of supported claims, where an answer with a wrong one fails: the default rule of a pass."""

Weights: TypeAlias = Sequence[float]
"""How much each cluster counts."""


class ConfusionCounts(NamedTuple):
    """How much weight fell where: what people say, against what the judge says."""

    passed: float = 0.0
    """People say supported, and so does the judge."""
    false_alarms: float = 0.0
    """People say supported, the judge does not."""
    open_supported: float = 0.0
    """People say supported, the judge leaves it open."""
    missed: float = 0.0
    """People say unsupported, the judge says supported."""
    caught: float = 0.0
    """People say unsupported, and so does the judge."""
    open_unsupported: float = 0.0
    """People say unsupported, the judge leaves it open."""

    @classmethod
    def of(cls, supported: bool, judged: bool | None) -> ConfusionCounts:
        """Count one thing."""
        at = (0 if supported else 3) + {True: 0, False: 1, None: 2}[judged]
        return cls(*(float(place == at) for place in range(6)))

    @classmethod
    def total(cls, counts: Iterable[ConfusionCounts]) -> ConfusionCounts:
        """Add up."""
        return cls(*map(sum, zip(cls(), *counts, strict=True)))

    @property
    def with_open_as_unsupported(self) -> ConfusionCounts:
        """Read what was left open as *not supported*."""
        return ConfusionCounts(
            passed=self.passed,
            false_alarms=self.false_alarms + self.open_supported,
            missed=self.missed,
            caught=self.caught + self.open_unsupported,
        )


def balanced_accuracy(counts: ConfusionCounts) -> float | None:
    """Return the mean of the shares that are right among the supported and among the unsupported.

    0.5 is guessing, however rare one of the two is. What was left open is left out; ``None`` where one of
    the two sides has nothing decided.
    """
    of_supported = _share(counts.passed, counts.passed + counts.false_alarms)
    of_unsupported = _share(counts.caught, counts.caught + counts.missed)
    if of_supported is None or of_unsupported is None:
        return None
    return (of_supported + of_unsupported) / 2


def cohen_kappa(counts: ConfusionCounts) -> float | None:
    """Return the agreement beyond chance (Cohen 1960) over what was decided; ``None`` where chance is all."""
    passed, false_alarms, _, missed, caught, _ = counts
    total = passed + false_alarms + missed + caught
    if not total:
        return None
    seen = (passed + caught) / total
    human, judge = (passed + false_alarms) / total, (passed + missed) / total
    chance = human * judge + (1 - human) * (1 - judge)
    return None if chance > 1 - 1e-12 else (seen - chance) / (1 - chance)


def precision_of_unsupported(counts: ConfusionCounts) -> float | None:
    """Return how much of what the judge calls unsupported is so."""
    return _share(counts.caught, counts.caught + counts.false_alarms)


def recall_of_unsupported(counts: ConfusionCounts) -> float | None:
    """Return how much of all that is unsupported the judge calls so: what it leaves open is missed."""
    return _share(counts.caught, counts.caught + counts.missed + counts.open_unsupported)


def recall_of_decided(counts: ConfusionCounts) -> float | None:
    """Return how much of what is unsupported the judge calls so, out of what it decided."""
    return _share(counts.caught, counts.caught + counts.missed)


def share_decided(counts: ConfusionCounts) -> float | None:
    """Return how much the judge decided at all."""
    return _share(sum(counts) - counts.open_supported - counts.open_unsupported, sum(counts))


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """A score in [0, 1], and what people say."""

    score: float
    supported: bool
    cluster: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBin:
    """Scores that are near each other, and how often people said *supported* there."""

    mean_score: float
    share_supported: float
    weight: float


class Ranking:
    """Scored things in order: how well the order separates them, and where best to cut."""

    def __init__(self, scored: Iterable[ScoredAnswer], *, default: float = DEFAULT_THRESHOLD) -> None:
        self.default = default
        """Where they are cut unless something better is found."""
        ascending = sorted(scored, key=lambda each: each.score)
        self._groups = [
            (score, tuple((each.cluster, each.supported) for each in group))
            for score, group in groupby(ascending, key=lambda each: each.score)
        ]

    def __bool__(self) -> bool:
        return bool(self._groups)

    def auc(self, weights: Weights) -> float | None:
        """Return the probability that something supported scores above something unsupported, ties half."""
        below = area = supported_total = 0.0
        for _, supported, unsupported in self._steps(weights):
            area += supported * (below + unsupported / 2)
            below += unsupported
            supported_total += supported
        return _share(area, below * supported_total)

    def best_threshold(self, weights: Weights) -> float | None:
        """Return where to cut (*supported* from there on) for the highest balanced accuracy.

        The default stays where nothing is better; of several as good, the nearest to it is taken.
        ``None`` where one of the two sides is missing.
        """
        steps = list(self._steps(weights))
        best = self.accuracy_at(self.default, weights)
        if best is None:
            return None
        found, margin = self.default, 1e-12
        for cut, accuracy in _cuts(steps):
            nearer = abs(cut - self.default) < abs(found - self.default)
            if accuracy > best + margin or (nearer and accuracy > best - margin):
                best, found = max(best, accuracy), cut
        return found

    def accuracy_at(self, threshold: float, weights: Weights) -> float | None:
        """Return the balanced accuracy of cutting there."""
        return balanced_accuracy(self.counts_at(threshold, weights))

    def counts_at(self, threshold: float, weights: Weights) -> ConfusionCounts:
        """Return what is right and wrong of cutting there."""
        passed = false_alarms = missed = caught = 0.0
        for score, supported, unsupported in self._steps(weights):
            if score >= threshold:
                passed, missed = passed + supported, missed + unsupported
            else:
                false_alarms, caught = false_alarms + supported, caught + unsupported
        return ConfusionCounts(passed=passed, false_alarms=false_alarms, missed=missed, caught=caught)

    def curve(self, weights: Weights) -> tuple[tuple[float, float], ...]:
        """Return the ROC curve: share of the unsupported that passes, share of the supported that passes."""
        steps = list(self._steps(weights))
        all_supported = sum(supported for _, supported, _ in steps)
        all_unsupported = sum(unsupported for _, _, unsupported in steps)
        if not all_supported or not all_unsupported:
            return ()
        points, passed, missed = [(0.0, 0.0)], 0.0, 0.0
        for _, supported, unsupported in reversed(steps):
            passed, missed = passed + supported, missed + unsupported
            points.append((missed / all_unsupported, passed / all_supported))
        return tuple(points)

    def reliability(self, weights: Weights, *, bins: int = 10) -> tuple[ScoreBin, ...]:
        """Return how often people said *supported* where the scores were about the same."""
        steps = list(self._steps(weights))
        found: list[ScoreBin] = []
        for index in range(bins):
            held = [step for step in steps if min(int(step[0] * bins), bins - 1) == index]
            weight = sum(supported + unsupported for _, supported, unsupported in held)
            if not weight:
                continue
            mean = sum(score * (supported + unsupported) for score, supported, unsupported in held) / weight
            share = sum(supported for _, supported, _ in held) / weight
            found.append(ScoreBin(mean_score=mean, share_supported=share, weight=weight))
        return tuple(found)

    def _steps(self, weights: Weights) -> Iterator[tuple[float, float, float]]:
        """Yield each score from below, with the weight of the supported and of the unsupported there."""
        for score, members in self._groups:
            supported = unsupported = 0.0
            for cluster, is_supported in members:
                if is_supported:
                    supported += weights[cluster]
                else:
                    unsupported += weights[cluster]
            if supported or unsupported:
                yield score, supported, unsupported


def _cuts(steps: Sequence[tuple[float, float, float]]) -> Iterator[tuple[float, float]]:
    """Yield each cut between two neighbours, with its balanced accuracy."""
    all_supported = sum(supported for _, supported, _ in steps)
    all_unsupported = sum(unsupported for _, _, unsupported in steps)
    lost = caught = 0.0
    for (score, supported, unsupported), (following, _, _) in pairwise(steps):
        lost, caught = lost + supported, caught + unsupported
        right = (all_supported - lost) / all_supported
        yield (score + following) / 2, (right + caught / all_unsupported) / 2


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
