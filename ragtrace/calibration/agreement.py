"""Agreement of a judge with people: arithmetic over weighted counts and scores, with bootstrap intervals.

Labels are binary: *supported* or *not supported*. A judge may also leave a claim open. Weights are per
cluster: the claims of one answer are not independent, so resampling (Efron 1979) draws whole answers, or
groups of answers about the same document.

Everything is computed for many draws at once: weights are a row a draw and a column a cluster, and a
statistic is a number a draw. It is NaN where it is undefined.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ragtrace.metrics.judge_card import DEFAULT_THRESHOLD, IntervalEstimate

NO_WRONG_CLAIM = 1.0
"""The default threshold for the share of supported claims: an answer with a wrong claim fails."""

Numbers: TypeAlias = npt.NDArray[np.float64]
"""A number a draw."""
Weights: TypeAlias = npt.NDArray[np.float64]
"""The weight of each cluster, in each draw."""

_MARGIN: Final = 1e-12
"""Accuracies that differ by less are equal."""
_BINS: Final = 10


class ConfusionCounts(NamedTuple):
    """The confusion matrix of human and judge labels, as weights: one, or one a draw."""

    passed: float | Numbers = 0.0
    """People and the judge say supported."""
    false_alarms: float | Numbers = 0.0
    """People say supported, the judge does not."""
    open_supported: float | Numbers = 0.0
    """People say supported, the judge left it open."""
    missed: float | Numbers = 0.0
    """People say unsupported, the judge says supported."""
    caught: float | Numbers = 0.0
    """People and the judge say unsupported."""
    open_unsupported: float | Numbers = 0.0
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


def balanced_accuracy(counts: ConfusionCounts) -> Numbers:
    """Return the mean of the accuracies on supported and on unsupported claims.

    Guessing gives 0.5, even if one class is rare. Open ones are left out; NaN if a class has no decided ones.
    """
    of_supported = share(counts.passed, counts.passed + counts.false_alarms)
    of_unsupported = share(counts.caught, counts.caught + counts.missed)
    return (of_supported + of_unsupported) / 2


def cohen_kappa(counts: ConfusionCounts) -> Numbers:
    """Return Cohen's kappa (1960) over the decided ones; NaN if it is undefined."""
    passed, false_alarms, _, missed, caught, _ = counts
    total = passed + false_alarms + missed + caught
    seen = share(passed + caught, total)
    human, judge = share(passed + false_alarms, total), share(passed + missed, total)
    chance = human * judge + (1 - human) * (1 - judge)
    return share(seen - chance, np.where(chance > 1 - _MARGIN, 0.0, 1 - chance))


def precision_of_unsupported(counts: ConfusionCounts) -> Numbers:
    """Return the share of truly unsupported ones among those that the judge calls unsupported."""
    return share(counts.caught, counts.caught + counts.false_alarms)


def recall_of_unsupported(counts: ConfusionCounts) -> Numbers:
    """Return the share of unsupported ones that the judge finds; open ones count as missed."""
    return share(counts.caught, counts.caught + counts.missed + counts.open_unsupported)


def recall_of_decided(counts: ConfusionCounts) -> Numbers:
    """Return the share of unsupported ones that the judge finds among those it decided."""
    return share(counts.caught, counts.caught + counts.missed)


def share_decided(counts: ConfusionCounts) -> Numbers:
    """Return the share that the judge decided."""
    return share(sum(counts) - counts.open_supported - counts.open_unsupported, sum(counts))


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """A score in [0, 1], and the human label."""

    score: float
    supported: bool
    cluster: int


class Ranking:
    """A ranking by score: how well it separates the labels, and its best threshold."""

    def __init__(self, scored: Iterable[ScoredAnswer], *, default: float = DEFAULT_THRESHOLD) -> None:
        self.default = default
        """The threshold unless a better one is found."""
        ascending = sorted(scored, key=lambda answer: answer.score)
        self._clusters = np.array([answer.cluster for answer in ascending], dtype=np.intp)
        self._is_supported = np.array([answer.supported for answer in ascending], dtype=bool)
        scores = np.array([answer.score for answer in ascending], dtype=np.float64)
        self._scores, self._starts = np.unique(scores, return_index=True)

    def __bool__(self) -> bool:
        return bool(len(self._scores))

    def auc(self, weights: Weights) -> Numbers:
        """Return the probability that a supported one scores above an unsupported one; ties count half."""
        supported, unsupported = self._by_score(weights)
        below = np.cumsum(unsupported, axis=1) - unsupported / 2
        area = (supported * below).sum(axis=1)
        return share(area, supported.sum(axis=1) * unsupported.sum(axis=1))

    def best_threshold(self, weights: Weights) -> Numbers:
        """Return the threshold (*supported* from there on) with the highest balanced accuracy.

        The default stays if none is better; among equals, the nearest to it wins. NaN if a class is missing.
        """
        cuts, accuracies = self._cuts(weights)
        at_default = self.accuracy_at(self.default, weights)
        best = np.maximum(at_default, accuracies.max(axis=1, initial=-np.inf))
        is_best = accuracies >= best[:, None] - _MARGIN
        distances = np.where(is_best, abs(cuts - self.default), np.inf)
        nearest = cuts[np.arange(len(cuts)), distances.argmin(axis=1)] if cuts.size else at_default
        found = np.where(at_default >= best - _MARGIN, self.default, nearest)
        return np.where(np.isnan(at_default), np.nan, found)

    def accuracy_at(self, threshold: float, weights: Weights) -> Numbers:
        """Return the balanced accuracy at a threshold."""
        return balanced_accuracy(self.counts_at(threshold, weights))

    def counts_at(self, threshold: float, weights: Weights) -> ConfusionCounts:
        """Return the confusion counts at a threshold."""
        supported, unsupported = self._by_score(weights)
        passes = self._scores >= threshold
        return ConfusionCounts(
            passed=supported @ passes,
            false_alarms=supported @ ~passes,
            missed=unsupported @ passes,
            caught=unsupported @ ~passes,
        )

    def calibration_error(self, weights: Weights) -> float:
        """Return the expected calibration error of the first draw, in ten bins (Naeini et al. 2015)."""
        supported, unsupported = (of_score[0] for of_score in self._by_score(weights))
        bin_of = np.minimum((self._scores * _BINS).astype(np.intp), _BINS - 1)
        surplus = self._scores * (supported + unsupported) - supported
        total = float((supported + unsupported).sum())
        return float(abs(np.bincount(bin_of, surplus, minlength=_BINS)).sum()) / total if total else math.nan

    def risk_coverage_area(self, weights: Weights) -> Numbers:
        """Return the area under the curve of risk by coverage (AURC, Geifman et al. 2019): 0 is best.

        It is the mean share of errors over all coverages; NaN if there is no claim.
        """
        claims, errors = self._surest_first(weights)
        of_each = np.diff(claims, axis=1, prepend=0.0)
        risks = share(errors, np.where(claims > 0, claims, 1.0))
        return share((of_each * risks).sum(axis=1), self._total(weights))

    def coverage_at(self, risk: float, weights: Weights) -> Numbers:
        """Return the largest share of claims, the surest first, of which at most ``risk`` are wrong."""
        claims, errors = self._surest_first(weights)
        kept = np.where(errors <= risk * claims + _MARGIN, claims, 0.0)
        return share(kept.max(axis=1, initial=0.0), self._total(weights))

    def _surest_first(self, weights: Weights) -> tuple[Numbers, Numbers]:
        """Return the sums of claims and of errors, a column for each certainty, in descending order."""
        if not self:
            return np.zeros((len(weights), 0)), np.zeros((len(weights), 0))
        supported, unsupported = self._by_score(weights)
        wrong = np.where(self._scores >= 0.5, unsupported, supported)
        certainty, place = np.unique(-np.round(abs(self._scores - 0.5), 12), return_inverse=True)
        order = np.argsort(place, kind="stable")
        starts = np.searchsorted(place[order], np.arange(len(certainty)))
        claims, errors = (
            np.cumsum(np.add.reduceat(of_score[:, order], starts, axis=1), axis=1)
            for of_score in (supported + unsupported, wrong)
        )
        return claims, errors

    def _total(self, weights: Weights) -> Numbers:
        supported, unsupported = self._by_score(weights)
        total: Numbers = (supported + unsupported).sum(axis=1)
        return total

    def _by_score(self, weights: Weights) -> tuple[Numbers, Numbers]:
        """Return the weights of supported and of unsupported ones at each score, in ascending order."""
        if not self:
            empty = np.zeros((len(weights), 0))
            return empty, empty
        of_each = weights[:, self._clusters]
        supported = np.add.reduceat(of_each * self._is_supported, self._starts, axis=1)
        return supported, np.add.reduceat(of_each * ~self._is_supported, self._starts, axis=1)

    def _cuts(self, weights: Weights) -> tuple[Numbers, Numbers]:
        """Return the thresholds between scores that were drawn, and their balanced accuracies, a row a draw.

        The accuracy of one that is no threshold there is minus infinity.
        """
        supported, unsupported = self._by_score(weights)
        is_drawn = supported + unsupported > 0
        following = np.minimum.accumulate(np.where(is_drawn, self._scores, np.inf)[:, ::-1], axis=1)[:, ::-1]
        following = following[:, 1:]
        cuts = (self._scores[:-1] + following) / 2
        below = share(np.cumsum(supported, axis=1), supported.sum(axis=1, keepdims=True))
        caught = share(np.cumsum(unsupported, axis=1), unsupported.sum(axis=1, keepdims=True))
        accuracies = (1 - below + caught)[:, :-1] / 2
        is_cut = is_drawn[:, :-1] & np.isfinite(following) & ~np.isnan(accuracies)
        return cuts, np.where(is_cut, accuracies, -np.inf)


def share(part: float | Numbers, whole: float | Numbers) -> Numbers:
    """Return the quotient; NaN for a whole of 0."""
    whole = np.asarray(whole, dtype=np.float64)
    found: Numbers = np.full(np.broadcast(part, whole).shape, np.nan)
    np.divide(part, whole, out=found, where=whole != 0)
    return found


Statistic: TypeAlias = Callable[[Weights], Numbers]
"""Computes a number for each draw of cluster weights; NaN where it is undefined."""

FEWEST_CLUSTERS: Final = 5
"""The least number of clusters; with fewer, the draws are too similar."""
_TAIL: Final = 0.025
_AT_ONCE: Final = 64
"""Draws that are computed together: more need more memory, and are no faster."""


class Resampling:
    """Draws clusters with replacement within their strata, reproducibly by seed.

    Clusters of the same group are drawn together: answers about one document are not independent. A group
    belongs to the stratum of its first cluster.
    """

    def __init__(
        self,
        weights: Sequence[float],
        strata: Sequence[Hashable],
        groups: Sequence[Hashable] | None = None,
        *,
        resamples: int = 1000,
        seed: int = 0,
    ) -> None:
        self.weights: Weights = np.array(weights, dtype=np.float64).reshape(1, -1)
        """Those of the sample itself, as one draw."""
        members = _members(groups or range(len(weights)))
        by_stratum: dict[Hashable, list[int]] = {}
        for group, clusters in enumerate(members):
            by_stratum.setdefault(strata[clusters[0]], []).append(group)
        place = {cluster: group for group, clusters in enumerate(members) for cluster in clusters}
        self._group_of = np.array([place[cluster] for cluster in range(len(weights))], dtype=np.intp)
        enough = len(members) >= FEWEST_CLUSTERS
        drawn = np.random.default_rng(seed)
        numbers = [
            min(_AT_ONCE, resamples - start) for start in range(0, resamples if enough else 0, _AT_ONCE)
        ]
        self._times = [_times_drawn(number, list(by_stratum.values()), drawn) for number in numbers]

    def _draws(self) -> Iterator[Weights]:
        for times in self._times:
            yield self.weights * times[:, self._group_of]

    def estimate(self, statistic: Statistic) -> IntervalEstimate | None:
        """Return the statistic with its percentile interval; ``None`` if it is undefined.

        There is no interval if most draws leave it undefined, or if all draws are equal: seven right of seven
        are no certainty, which resampling cannot show.
        """
        [value] = statistic(self.weights).tolist()
        if np.isnan(value):
            return None
        drawn = [statistic(weights) for weights in self._draws()]
        every = np.concatenate(drawn) if drawn else np.zeros(0)
        found = np.sort(every[~np.isnan(every)]).tolist()
        if len(found) * 2 <= len(every) or found[0] == found[-1]:
            return IntervalEstimate(value=value)
        at_low = int(_TAIL * len(found))
        return IntervalEstimate(value=value, low=found[at_low], high=found[len(found) - 1 - at_low])


def _times_drawn(
    number: int, strata: Sequence[Sequence[int]], drawn: np.random.Generator
) -> npt.NDArray[np.uint16]:
    """Draw from each stratum as many groups as it has; return how often each was drawn, a row a draw."""
    groups = sum(map(len, strata))
    rows = np.arange(number)[:, None] * groups
    times = np.zeros(number * groups, dtype=np.uint16)
    for stratum in map(np.array, strata):
        chosen = stratum[drawn.integers(len(stratum), size=(number, len(stratum)))]
        times += np.bincount((rows + chosen).ravel(), minlength=len(times)).astype(np.uint16)
    return times.reshape(number, groups)


def fold_of(
    strata: Sequence[Hashable], groups: Sequence[Hashable] | None = None, *, folds: int, seed: int
) -> tuple[int, ...]:
    """Distribute the clusters of each stratum evenly over the folds; groups stay together."""
    members = _members(groups or range(len(strata)))
    shuffled = random.Random(seed).sample(range(len(members)), k=len(members))
    order = sorted(shuffled, key=lambda group: str(strata[members[group][0]]))
    place = {cluster: position % folds for position, group in enumerate(order) for cluster in members[group]}
    return tuple(place[cluster] for cluster in range(len(strata)))


def _members(groups: Iterable[Hashable]) -> list[list[int]]:
    """Return the clusters of each group, ordered by their first cluster."""
    members: dict[Hashable, list[int]] = {}
    for cluster, group in enumerate(groups):
        members.setdefault(group, []).append(cluster)
    return list(members.values())
