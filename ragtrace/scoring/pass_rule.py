"""Pass rules: conditions on the readings of verdicts, also with missing verdicts.

A rule is one line of conditions that must all hold: ``contradicted == 0 and unsupported <= 2``. A condition
compares a reading of the verdicts with a number: `CLAIM_READINGS`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ragtrace.errors import ConfigError
from ragtrace.model import Direction, Verdict, VerdictCounts
from ragtrace.scoring.formulas import coverage, lenient_faithfulness, lower_bound

Readings: TypeAlias = Mapping[str, float | None]
"""Numbers computed from verdicts, by name."""

SCORE: Final = "score"
_COVERAGE: Final = "coverage"
CLAIM_READINGS: Final = (
    SCORE,
    "lenient",
    "lower_bound",
    _COVERAGE,
    "supported",
    "contradicted",
    "unsupported",
    "material_contradicted",
    "material_unsupported",
)
"""The readings of verdicts on claims: the score, three shares, the counts by verdict, and how many flaws are
more than incidental."""

_RELATIONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION: Final = re.compile(r"\s*([a-z_]+)\s*(>=|<=|==|=|>|<)\s*(\d+(?:\.\d*)?|\.\d+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A reading, a relation and a bound: ``coverage >= 0.5``."""

    reading: str
    relation: str
    bound: float

    def __str__(self) -> str:
        return f"{self.reading} {self.relation} {self.bound:g}"

    def holds(self, readings: Readings) -> bool:
        """Return whether it holds; it never holds without the reading."""
        value = readings.get(self.reading)
        return value is not None and _RELATIONS[self.relation](round(value, 9), self.bound)


_HALF_DECIDED: Final = Condition(reading=_COVERAGE, relation=">=", bound=0.5)
"""What every pass of claims needs, unless its rule has another condition on coverage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRule:
    """Conditions that must all hold for a pass."""

    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))

    @classmethod
    def parse(cls, text: str, *, known: Collection[str] = CLAIM_READINGS) -> PassRule:
        """Read a rule: ``score >= 0.8``, ``contradicted == 0 and unsupported <= 2``.

        Args:
            text: Conditions, joined by ``and`` or a comma.
            known: The available readings.

        Raises:
            ConfigError: it is not a rule, or uses an unknown reading.
        """
        parts = re.split(r"\band\b|,|&&", text)
        return cls(conditions=tuple(_condition(part, text, known) for part in parts))

    @classmethod
    def at(cls, threshold: float, direction: Direction) -> PassRule:
        """Make the rule that the score must reach a threshold, or not exceed it if lower is better."""
        relation = ">=" if direction is Direction.HIGHER_IS_BETTER else "<="
        return cls(conditions=(Condition(reading=SCORE, relation=relation, bound=float(threshold)),))

    @property
    def threshold(self) -> float | None:
        """The score where ``pass`` begins, if the rule has no other condition."""
        first, *others = self.conditions
        is_threshold = first.reading == SCORE and first.relation in (">=", "<=") and not others
        return first.bound if is_threshold else None

    @property
    def limits_coverage(self) -> bool:
        """Whether it says how much must be decided."""
        return any(condition.reading == _COVERAGE for condition in self.conditions)

    def complete(self, given: Readings) -> PassRule:
        """Return the rule with how much must be decided, if these readings tell how much is."""
        if self.limits_coverage or _COVERAGE not in given:
            return self
        return PassRule(conditions=(*self.conditions, _HALF_DECIDED))

    def decide(self, given: Readings, *, worst: Readings, best: Readings) -> bool | None:
        """Return whether a result passes, or ``None`` if its verdicts cannot decide it.

        An *omitted* verdict, which the judge left out without abstaining, could have been any. A result
        passes only if the rule holds with every omitted verdict wrong, and fails only if the rule breaks with
        every omitted verdict right. So omitting a verdict cannot turn one into the other. Items that the
        judge *abstains* from are left out of the readings; conditions on ``coverage`` limit their share. If
        only such a condition breaks, the result is undecided, too. Without such a condition, a pass needs
        half of the items decided: a label must not promise what was not found.

        Args:
            given: The readings of the existing verdicts.
            worst: The same with every omitted verdict wrong.
            best: The same with every omitted verdict right.
        """
        quality = [condition for condition in self.conditions if condition.reading != _COVERAGE]
        if not _hold(quality, best):
            return False
        decided = [
            condition for condition in self.complete(given).conditions if condition.reading == _COVERAGE
        ]
        return True if _hold(quality, worst) and _hold(decided, given) else None

    def broken(self, readings: Readings) -> Iterator[Condition]:
        """Yield the broken conditions."""
        return (condition for condition in self.conditions if not condition.holds(readings))


def claim_readings(score: float | None, verdicts: Sequence[Verdict]) -> Readings:
    """Return the readings of verdicts on claims: `CLAIM_READINGS`."""
    counts = VerdictCounts.of(verdicts)
    material = VerdictCounts.of(verdict for verdict in verdicts if not verdict.is_incidental)
    return {
        SCORE: score,
        "lenient": lenient_faithfulness(counts),
        "lower_bound": lower_bound(counts),
        _COVERAGE: coverage(counts),
        "supported": counts.supported,
        "contradicted": counts.contradicted,
        "unsupported": counts.unsupported,
        "material_contradicted": material.contradicted,
        "material_unsupported": material.unsupported,
    }


def _hold(conditions: Sequence[Condition], readings: Readings) -> bool:
    return all(condition.holds(readings) for condition in conditions)


def _condition(part: str, text: str, known: Collection[str]) -> Condition:
    match = _CONDITION.fullmatch(part)
    if match is None:
        raise ConfigError(
            f"`pass_when` is {text!r}: {part.strip()!r} is not a condition such as `score >= 0.8` or"
            " `contradicted == 0`; join several by `and`"
        )
    reading, relation, bound = match.groups()
    if reading not in known:
        raise ConfigError(
            f"`pass_when` is {text!r}: there is no {reading!r} to compare: choose from {', '.join(known)}"
        )
    return Condition(reading=reading, relation="==" if relation == "=" else relation, bound=float(bound))
