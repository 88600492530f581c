"""Agreement of a judge with people: arithmetic over weighted counts and scores.

Labels are binary: *supported* or *not supported*. A judge may also leave a claim open. Weights are per
cluster: the claims of one answer are not independent, so resampling draws whole answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from ragtrace.metrics.calibration_file import DEFAULT_THRESHOLD

NO_WRONG_CLAIM = 1.0
"""The default threshold for the share of supported claims: an answer with a wrong claim fails."""

Weights: TypeAlias = Sequence[float]
"""The weight of each cluster."""


class ConfusionCounts(NamedTuple):
    """The confusion matrix of human and judge labels, as weights."""

    passed: float = 0.0
    """People and the judge say supported."""
    false_alarms: float = 0.0
    """People say supported, the judge does not."""
    open_supported: float = 0.0
    """People say supported, the judge left it open."""
    missed: float = 0.0
    """People say unsupported, the judge says supported."""
    caught: float = 0.0
    """People and the judge say unsupported."""
    open_unsupported: float = 0.0
    """People say unsupported, the judge left it open."""

    @classmethod
    def of(cls, supported: bool, judged: bool | None) -> ConfusionCounts:
        """Return the counts of one claim or answer."""
        at = (0 if supported else 3) + {True: 0, False: 1, None: 2}[judged]
        return cls(*(float(place == at) for place in range(6)))

    @classmethod
    def total(cls, counts: Iterable[ConfusionCounts]) -> ConfusionCounts:
        """Return the sum."""
        return cls(*map(sum, zip(cls(), *counts, strict=True)))

    @property
    def with_open_as_unsupported(self) -> ConfusionCounts:
        """Return the counts with open ones counted as *not supported*."""
        return ConfusionCounts(
            passed=self.passed,
            false_alarms=self.false_alarms + self.open_supported,
            missed=self.missed,
            caught=self.caught + self.open_unsupported,
        )


def balanced_accuracy(counts: ConfusionCounts) -> float | None:
    """Return the mean of the accuracies on supported and on unsupported claims.

    Guessing gives 0.5, even if one class is rare. Open ones are left out; ``None`` if a class has no decided
    ones.
    """
    of_supported = _share(counts.passed, counts.passed + counts.false_alarms)
    of_unsupported = _share(counts.caught, counts.caught + counts.missed)
    if of_supported is None or of_unsupported is None:
        return None
    return (of_supported + of_unsupported) / 2


def cohen_kappa(counts: ConfusionCounts) -> float | None:
    """Return Cohen's kappa (1960) over the decided ones; ``None`` if it is undefined."""
    passed, false_alarms, _, missed, caught, _ = counts
    total = passed + false_alarms + missed + caught
    if not total:
        return None
    seen = (passed + caught) / total
    human, judge = (passed + false_alarms) / total, (passed + missed) / total
    chance = human * judge + (1 - human) * (1 - judge)
    return None if chance > 1 - 1e-12 else (seen - chance) / (1 - chance)


def precision_of_unsupported(counts: ConfusionCounts) -> float | None:
    """Return the share of truly unsupported ones among those that the judge calls unsupported."""
    return _share(counts.caught, counts.caught + counts.false_alarms)


def recall_of_unsupported(counts: ConfusionCounts) -> float | None:
    """Return the share of unsupported ones that the judge finds; open ones count as missed."""
    return _share(counts.caught, counts.caught + counts.missed + counts.open_unsupported)


def recall_of_decided(counts: ConfusionCounts) -> float | None:
    """Return the share of unsupported ones that the judge finds among those it decided."""
    return _share(counts.caught, counts.caught + counts.missed)


def share_decided(counts: ConfusionCounts) -> float | None:
    """Return the share that the judge decided."""
    return _share(sum(counts) - counts.open_supported - counts.open_unsupported, sum(counts))


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """A score in [0, 1], and the human label."""

    score: float
    supported: bool
    cluster: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBin:
    """A bin of similar scores, with the share that people call *supported*."""

    mean_score: float
    share_supported: float
    weight: float


class Ranking:
    """A ranking by score: how well it separates the labels, and its best threshold."""

    def __init__(self, scored: Iterable[ScoredAnswer], *, default: float = DEFAULT_THRESHOLD) -> None:
        self.default = default
        """The threshold unless a better one is found."""
        ascending = sorted(scored, key=lambda answer: answer.score)
        self._groups = [
            (score, tuple((answer.cluster, answer.supported) for answer in group))
            for score, group in groupby(ascending, key=lambda answer: answer.score)
        ]

    def __bool__(self) -> bool:
        return bool(self._groups)

    def auc(self, weights: Weights) -> float | None:
        """Return the probability that a supported one scores above an unsupported one; ties count half."""
        below = area = supported_total = 0.0
        for _, supported, unsupported in self._steps(weights):
            area += supported * (below + unsupported / 2)
            below += unsupported
            supported_total += supported
        return _share(area, below * supported_total)

    def best_threshold(self, weights: Weights) -> float | None:
        """Return the threshold (*supported* from there on) with the highest balanced accuracy.

        The default stays if none is better; among equals, the nearest to it wins. ``None`` if a class is
        missing.
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
        """Return the balanced accuracy at a threshold."""
        return balanced_accuracy(self.counts_at(threshold, weights))

    def counts_at(self, threshold: float, weights: Weights) -> ConfusionCounts:
        """Return the confusion counts at a threshold."""
        passed = false_alarms = missed = caught = 0.0
        for score, supported, unsupported in self._steps(weights):
            if score >= threshold:
                passed, missed = passed + supported, missed + unsupported
            else:
                false_alarms, caught = false_alarms + supported, caught + unsupported
        return ConfusionCounts(passed=passed, false_alarms=false_alarms, missed=missed, caught=caught)

    def curve(self, weights: Weights) -> tuple[tuple[float, float], ...]:
        """Return the ROC curve: false positive rate, true positive rate."""
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
        """Return the share that people call *supported*, by bins of similar scores."""
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
        """Yield each score in ascending order, with the weights of supported and unsupported there."""
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
    """Yield each threshold between two adjacent scores, with its balanced accuracy."""
    all_supported = sum(supported for _, supported, _ in steps)
    all_unsupported = sum(unsupported for _, _, unsupported in steps)
    lost = caught = 0.0
    for (score, supported, unsupported), (following, _, _) in pairwise(steps):
        lost, caught = lost + supported, caught + unsupported
        right = (all_supported - lost) / all_supported
        yield (score + following) / 2, (right + caught / all_unsupported) / 2


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
