"""Scores as arithmetic over verdicts; the judge never computes them.

With S supported, C contradicted, N unsupported and U unjudged claims of n:

=============  ====================  ==================================================
reading        formula               answers
=============  ====================  ==================================================
strict         S / (n - U)           what share of the judged claims does the context support?
lenient        (S + N) / (n - U)     what share is at least not contradicted?
lower bound    S / n                 and if every unjudged claim were wrong?
coverage       (n - U) / n           how much of the answer was judged?
=============  ====================  ==================================================

Chunks are graded by relevance to the question: R relevant (they contain a part of what the answer needs), P
partly relevant (background), I irrelevant, U unjudged. If a yes or no is needed, relevant is yes and the rest
no, as in TREC's deep learning track.

=================  ==============================  ======================================================
reading            formula                         answers
=================  ==============================  ======================================================
relevant share     R / (R + P + I)                 what share of the chunks is of use?
serving share      (R + P) / (R + P + I)           what share is of use, or background to it?
mean relevance     (2 R + P) / (2 (R + P + I))     how relevant are the chunks on average?
average precision  sum(P@k for useful k) / useful  do the useful chunks come first? (order counts)
=================  ==============================  ======================================================

If the denominator of a reading is 0, the reading is ``None``, never 0 or 1. The only convention: if chunks
were judged and none is useful, the average precision is 0.

Pass rules are conditions on these readings, also with missing verdicts. A rule is one line of conditions that
must all hold: ``contradicted == 0 and unsupported <= 2``. A condition compares a reading of the verdicts with
a number: `CLAIM_READINGS`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ragtrace.errors import ConfigError
from ragtrace.model import Direction, Verdict, VerdictCounts


def strict_faithfulness(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context supports."""
    return _share(counts.supported, counts.judged)


def lenient_faithfulness(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context does not contradict."""
    return _share(counts.supported + counts.unsupported, counts.judged)


def lower_bound(counts: VerdictCounts) -> float | None:
    """Return the share of all claims that are known to be supported."""
    return _share(counts.supported, counts.total)


def coverage(counts: VerdictCounts) -> float | None:
    """Return the share of all claims that have a verdict."""
    return _share(counts.judged, counts.total)


def contradicted_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context contradicts."""
    return _share(counts.contradicted, counts.judged)


def ungrounded_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context contradicts or does not mention."""
    return _share(counts.contradicted + counts.unsupported, counts.judged)


def relevant_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged chunks that are relevant."""
    return _share(counts.relevant, counts.judged)


def serving_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged statements or chunks that are relevant or partly relevant."""
    return _share(counts.relevant + counts.partly_relevant, counts.judged)


def mean_relevance(counts: VerdictCounts) -> float | None:
    """Return the mean relevance of judged chunks: relevant is 1, partly relevant 0.5, irrelevant 0."""
    return _share(2 * counts.relevant + counts.partly_relevant, 2 * counts.judged)


def average_precision(useful: Sequence[bool]) -> float | None:
    """Return the mean precision at the ranks of the useful items; 0 if none is, ``None`` without items."""
    if not useful:
        return None
    ranks = [rank for rank, is_useful in enumerate(useful, start=1) if is_useful]
    found = sum(hits / rank for hits, rank in enumerate(ranks, start=1))
    return found / len(ranks) if ranks else 0.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


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
