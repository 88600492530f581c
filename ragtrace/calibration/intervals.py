"""Bootstrap intervals (Efron 1979) over answers, or over groups of answers about the same document."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ragtrace.calibration._agreement import Numbers, Weights

Statistic: TypeAlias = Callable[[Weights], Numbers]
"""Computes a number for each draw of cluster weights; NaN where it is undefined."""

FEWEST_CLUSTERS: Final = 5
"""The least number of clusters; with fewer, the draws are too similar."""
_TAIL: Final = 0.025
_AT_ONCE: Final = 64
"""Draws that are computed together: more need more memory, and are no faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEstimate:
    """A number with its 95% interval, if the sample allows one."""

    value: float
    low: float | None = None
    high: float | None = None


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
        """Yield the weights of the draws, some at once."""
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
