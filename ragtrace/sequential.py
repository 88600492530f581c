"""Watch a share of a stream at each new value: the bound on false alarms holds however often one looks.

A test that is looked at again and again alarms some day, even if nothing changed. The e-detector here is made
of bets against "at most this share fails", and no strategy of betting makes money against a true claim
(Waudby-Smith and Ramdas 2023, "Estimating means of bounded random variables by betting"). Its sum over all
moments at which trouble may have begun finds a change whenever it comes (Shiryaev 1963 and Roberts 1966; as
e-detectors: Shin, Ramdas and Rinaldo 2023, "E-detectors: a nonparametric framework for sequential change
detection").

**Weights.** An answer that was sampled with probability ``p`` represents ``1 / p`` answers. Its value
here is ``x (f - q)``: ``f`` is 1 if it fails, ``q`` the share that may fail, and ``x`` is ``1 / p``
divided by ``most_weight``, at most 1. Over the sampling, each answer of the traffic has the mean ``(f -
q) / most_weight``: at most 0 on average, as long as at most the share ``q`` of all traffic fails. It is
at least ``-q``, so that a bet below ``1 / q`` never loses all. A weight above ``most_weight`` counts as
that: the claim is then about traffic that counts such answers less.

**Promise.** Within ``n`` values, the chance of an alarm at ``limit`` while the claim holds is at most
``n / limit`` (Doob's inequality: the evidence minus the number of values is a supermartingale), and until a
false alarm there are ``limit`` values on average, at least. It holds whatever the order of the answers, if at
most the share ``q`` is expected to fail at every moment, given what came before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Final, NamedTuple

__all__ = ["ShareDetector", "SinceChange"]

_GAINS: Final = (0.08, 0.11, 0.2)
"""The rises of the share for which three of the bets are best."""
_SHARES_OF_MONEY: Final = (0.35, 0.45, 0.15, 0.05)
"""How the first stake is split over the bets; the last one is for values of little weight."""
_LARGEST: Final = 0.95
"""Of the bet that could lose everything."""


class SinceChange(NamedTuple):
    """What was seen since the share last looked as claimed: where trouble began, if it did."""

    values: int = 0
    happened: int = 0
    weight: float = 0.0
    """Sums of ``x``."""
    weight_happened: float = 0.0
    first: int = 0
    """The time of the first value, as the caller counts it."""
    evidence: float = 0.0
    """Of this alone (Page's CUSUM, as a product)."""

    @property
    def share(self) -> float | None:
        """The weighted share, too high by selection; ``None`` without a value."""
        return self.weight_happened / self.weight if self.weight else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDetector:
    """Evidence against "at most this share"."""

    most: float
    """The claimed share, in (0, 1)."""
    evidence: tuple[float, ...] = (0.0,) * len(_SHARES_OF_MONEY)
    """Of each bet."""
    since: SinceChange = field(default=SinceChange())

    @property
    def total(self) -> float:
        """The evidence: an alarm is due where it reaches its limit."""
        return sum(share * evidence for share, evidence in zip(_SHARES_OF_MONEY, self.evidence, strict=True))

    def after(self, happened: bool, *, weight: float = 1.0, time: int = 0) -> ShareDetector:
        """Return the detector after one more value.

        Args:
            happened: Whether it is of those whose share is claimed to be small.
            weight: ``x``, in (0, 1]; more counts as 1.
            time: Kept for `SinceChange.first`, and not used otherwise.

        Raises:
            ValueError: the weight is not positive.
        """
        if not weight > 0:
            raise ValueError(f"a value of weight {weight} was never sampled")
        weight = min(1.0, weight)
        gain = weight * (happened - self.most)
        bets = bets_against(self.most)
        return replace(
            self,
            evidence=tuple(
                (1 + before) * (1 + bet * gain) for before, bet in zip(self.evidence, bets, strict=True)
            ),
            since=_continued(self.since, happened, weight, time, factor=1 + bets[1] * gain),
        )


def bets_against(most: float) -> tuple[float, ...]:
    """Return the bets against a claimed share: each below the one that could lose everything.

    The first ones grow fastest if the share rises by `_GAINS` (Kelly 1956, for weights of 1).
    """
    largest = _LARGEST / most
    kelly = [min(largest, gain / (most * (1 - most))) for gain in _GAINS]
    return (*kelly, sqrt(kelly[-1] * largest))


def _continued(since: SinceChange, happened: bool, weight: float, time: int, *, factor: float) -> SinceChange:
    if since.evidence <= 1:
        since = SinceChange(first=time, evidence=1.0)
    return SinceChange(
        values=since.values + 1,
        happened=since.happened + happened,
        weight=since.weight + weight,
        weight_happened=since.weight_happened + weight * happened,
        first=since.first,
        evidence=since.evidence * factor,
    )
