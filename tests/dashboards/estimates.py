"""PromQL of Hájek means and pass rates, with 95 % intervals under unequal sampling probabilities.

With S the sum of w·y, W of w, A of w², B of w²·y and C of w²·y² (w = 1 / sampling probability): the mean is
S / W, its linearized variance V is (C - 2 (S/W) B + (S/W)² A) / W² (Särndal, Swensson, Wretman 1992, 5.7),
and Kish's sample size n is W² / A. The interval is Wilson's (1927) with V in place of m(1 - m)/n, so that it
is wide, not of length zero, where a few answers all have the same score. ``ragtrace report`` also corrects V
for small samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

from ragtrace import semconv
from ragtrace.model import Label
from ragtrace_collector.telemetry.scores import (
    PASS_SQUARED,
    SCORE,
    SCORE_PRODUCT,
    SCORE_SQUARED,
    WEIGHT_SQUARED,
    WEIGHTED,
    ScoreMetric,
)
from tests.dashboards.series import METRIC, WINDOW, Amount, label

ONE_METRIC: Final = f'{label(semconv.EVALUATION_NAME)}="${METRIC}"'
_PASSES: Final = f'{label(semconv.EVALUATION_LABEL)}="{Label.PASS}"'
_Z: Final = round(NormalDist().inv_cdf(0.975), 4)
_Z2: Final = _Z**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over all traffic of what is 0 to 1 in each judged answer."""

    of_passes: bool
    """Of 1 for each answer that passes, not of the scores."""

    def value(self, *, by: Sequence[str] = (), window: str = WINDOW) -> str:
        return f"{self._sum(by, window)} / ({_weight(by, window)} > 0)"

    def end(self, sign: Literal["-", "+"], *, window: str = WINDOW) -> str:
        s, w = self._sum((), window), _weight((), window)
        a, b, c = (self._squares(square, window) for square in ("w²", "w²y", "w²y²"))
        variance = f"clamp_min({w} ^ 2 * {c} - 2 * {s} * {w} * {b} + {s} ^ 2 * {a}, 0)"
        half = f"{_Z} * sqrt({variance} + {_Z2 / 4:.4f} * {a} ^ 2)"
        return f"({s} * {w} + {_Z2 / 2:.4f} * {a} {sign} {half}) / ({w} ^ 2 + {_Z2:.4f} * {a} > 0)"

    def _sum(self, by: Sequence[str], window: str) -> str:
        if not self.of_passes:
            return str(Amount(metric=WEIGHTED, part="sum", matchers=(ONE_METRIC,), by=by, window=window))
        passing = Amount(metric=WEIGHTED, part="count", matchers=(ONE_METRIC, _PASSES), by=by, window=window)
        return f"({passing} or 0 * {_weight(by, window)})"  # there is no series of passes before the first

    def _squares(self, square: str, window: str) -> str:
        metric = (_SQUARES_OF_PASSES if self.of_passes else _SQUARES_OF_SCORES)[square]
        return str(Amount(metric=metric, matchers=(ONE_METRIC,), window=window))


def _weight(by: Sequence[str], window: str) -> str:
    return str(Amount(metric=WEIGHTED, part="count", matchers=(ONE_METRIC,), by=by, window=window))


def judged(*, by: Sequence[str] = (), window: str = WINDOW) -> str:
    """Return the PromQL of the number of scores that an estimate is made of."""
    return str(Amount(metric=SCORE, part="count", matchers=(ONE_METRIC,), by=by, window=window))


_SQUARES_OF_SCORES: Final[dict[str, ScoreMetric]] = {
    "w²": WEIGHT_SQUARED,
    "w²y": SCORE_PRODUCT,
    "w²y²": SCORE_SQUARED,
}
_SQUARES_OF_PASSES: Final[dict[str, ScoreMetric]] = {
    "w²": WEIGHT_SQUARED,
    "w²y": PASS_SQUARED,
    "w²y²": PASS_SQUARED,
}

MEAN: Final = Estimate(of_passes=False)
PASS_RATE: Final = Estimate(of_passes=True)
