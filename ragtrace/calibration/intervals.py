"""Bootstrap intervals (Efron 1979) over answers, or over groups of answers about the same document."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ragtrace.calibration._agreement import Weights

Statistic: TypeAlias = Callable[[Weights], float | None]
"""Computes a number from cluster weights; ``None`` if it is undefined."""

_FEWEST_CLUSTERS: Final = 5
"""The least number of clusters; with fewer, the draws are too similar."""
_TAIL: Final = 0.025


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
        weights: Weights,
        strata: Sequence[Hashable],
        groups: Sequence[Hashable] | None = None,
        *,
        resamples: int = 1000,
        seed: int = 0,
    ) -> None:
        self.weights = weights
        members = _members(groups or range(len(weights)))
        by_stratum: dict[Hashable, list[list[int]]] = {}
        for group in members:
            by_stratum.setdefault(strata[group[0]], []).append(group)
        drawn = random.Random(seed)
        enough = len(members) >= _FEWEST_CLUSTERS
        self._draws = [self._draw(by_stratum.values(), drawn) for _ in range(resamples if enough else 0)]

    def _draw(self, strata: Iterable[list[list[int]]], drawn: random.Random) -> Weights:
        weights = array("d", bytes(8 * len(self.weights)))
        for groups in strata:
            for group in drawn.choices(groups, k=len(groups)):
                for cluster in group:
                    weights[cluster] += self.weights[cluster]
        return weights

    def estimate(self, statistic: Statistic) -> IntervalEstimate | None:
        """Return the statistic with its percentile interval; ``None`` if it is undefined.

        There is no interval if most draws leave it undefined, or if all draws are equal: seven right of seven
        are no certainty, which resampling cannot show.
        """
        value = statistic(self.weights)
        if value is None:
            return None
        found = sorted(each for draw in self._draws if (each := statistic(draw)) is not None)
        if len(found) * 2 <= len(self._draws) or found[0] == found[-1]:
            return IntervalEstimate(value=value)
        at_low = int(_TAIL * len(found))
        return IntervalEstimate(value=value, low=found[at_low], high=found[len(found) - 1 - at_low])


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
