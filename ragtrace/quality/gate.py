"""A rule that says when a comparison fails: ``worse by more than 0.02``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from ragtrace.quality.comparing import MetricComparison, VersionComparison

_RULE: Final = re.compile(
    r"(?:(?!possibly\b|worse\b|mean\b|pass\b)(?P<metric>[\w.-]+)\s+)?(?:(?P<what>mean|pass\s+rate)\s+)?"
    r"(?P<possibly>possibly\s+)?worse(?:\s+by\s+more\s+than\s+(?P<limit>0?\.\d+|[01](?:\.0*)?))?"
)
GRAMMAR: Final = "[METRIC] [mean] [possibly] worse [by more than X], such as 'worse by more than 0.02'"


FAILED: Final = "failed"


class GateVerdict(NamedTuple):
    """What became of a rule with one metric."""

    outcome: str
    """``failed``, ``passed`` or, if it does not fail, ``cannot tell``."""
    said: str

    @property
    def fails(self) -> bool:
        """Whether the rule fails."""
        return self.outcome == FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Fails if B is worse than A by more than a limit.

    Without *possibly* it fails if the 95 % interval shows that: its nearer end is beyond the limit. With
    *possibly* it fails unless the interval rules it out. In between nobody can tell, and it says so.
    """

    rule: str
    metric: str | None
    """``None`` for every metric."""
    is_mean: bool
    """Whether it is about the mean score; else about the pass rate."""
    is_strict: bool
    """Whether it is *possibly* worse that fails."""
    limit: float

    @classmethod
    def of(cls, rule: str) -> Gate:
        """Read a rule.

        Raises:
            ValueError: it is none.
        """
        found = _RULE.fullmatch(rule.strip())
        if found is None:
            raise ValueError(f"{rule!r} is no rule: write {GRAMMAR}")
        return cls(
            rule=rule,
            metric=found["metric"],
            is_mean=found["what"] == "mean",
            is_strict=bool(found["possibly"]),
            limit=float(found["limit"] or 0),
        )

    def check(self, comparison: VersionComparison) -> Iterator[GateVerdict]:
        """Yield the verdict on each metric of the rule. What is not there fails: nobody looked at it."""
        metrics = [each for each in comparison.metrics if self.metric in (None, each.metric)]
        if not metrics:
            yield GateVerdict(
                FAILED, f"{self.metric or 'a metric'} is not in both A and B: nothing shows {_FINE}"
            )
        yield from map(self._check, metrics)

    def _check(self, metric: MetricComparison) -> GateVerdict:
        name = f"{metric.metric}, {'mean score' if self.is_mean else 'pass rate'}"
        found = metric.mean if self.is_mean else metric.passing
        if found is None:
            return GateVerdict(FAILED, f"{name}: there is no score to compare: nothing shows {_FINE}")
        is_lower_better = metric.lower_is_better and self.is_mean
        least, most = (found.low, found.high) if is_lower_better else (-found.high, -found.low)
        by_more = f"worse by more than {self.limit:g}" if self.limit else "worse"
        if least > self.limit:
            return GateVerdict(
                FAILED, f"{name}: B is {by_more}: by {least:.3f} to {most:.3f} (95 % interval)"
            )
        if most <= self.limit:
            return GateVerdict("passed", f"{name}: B is not {by_more}: at most by {max(0.0, most):.3f}")
        said = f"{name}: the interval is too wide to tell if B is {by_more}: B - A is between"
        said += f" {found.low:+.3f} and {found.high:+.3f}"
        if self.limit:
            shorter = (found.high - found.low) / 2 / self.limit
            needed = ceil(min(found.records) * (shorter**2 if found.change else shorter))
            if shorter > 1:
                said += f"; if they are alike, about {needed:,} answers of each would tell"
        return GateVerdict(FAILED if self.is_strict else "cannot tell", said)


_FINE: Final = "that B is no worse"
