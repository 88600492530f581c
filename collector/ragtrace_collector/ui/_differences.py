"""Two evaluations of an answer compared: scores, and claims added, removed or judged otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ragtrace.answers.shown import ShownClaim, shown_answer
from ragtrace.model import (
    Direction,
    Evaluation,
    JudgedAnswer,
    Label,
    MetricOutcome,
    MetricResult,
    VerdictLabel,
)

MOST_CHANGES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """One metric in both."""

    metric: str
    before: float | None
    after: float | None
    label_before: Label | None
    """``None`` if the metric did not run."""
    label_after: Label | None
    is_lower_better: bool

    @property
    def is_better(self) -> bool:
        """Whether the score changed for the better."""
        return self.delta is not None and (self.delta < 0) == self.is_lower_better

    @property
    def delta(self) -> float | None:
        """By how much the score changed; ``None`` if one has none."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChange:
    """A claim that is not the same in both."""

    text: str
    before: VerdictLabel | None
    """``None`` if it is only in the later one."""
    after: VerdictLabel | None
    reason: str
    """Of the later verdict, or of the earlier one if there is no later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDifference:
    """What changed from one evaluation to another."""

    scores: tuple[ScoreChange, ...]
    claims: tuple[ClaimChange, ...]
    more_claims: int
    """Changes that are not shown."""
    unchanged: int
    """Claims with the same verdict in both."""
    evaluator_changed: bool
    input_changed: bool


def difference(before: JudgedAnswer, after: JudgedAnswer) -> VersionDifference:
    """Compare two evaluations of an answer. Claims are matched by their text."""
    earlier, later = _claims(before), _claims(after)
    changes = list(_changes(earlier, later))
    first, second = before.evaluation, after.evaluation
    return VersionDifference(
        scores=tuple(_scores(first, second)),
        claims=tuple(changes[:MOST_CHANGES]),
        more_claims=max(len(changes) - MOST_CHANGES, 0),
        unchanged=sum(_label(later.get(key)) == _label(claim) for key, claim in earlier.items()),
        evaluator_changed=first.evaluator_version != second.evaluator_version,
        input_changed=first.input_sha256 != second.input_sha256,
    )


_ClaimKey: TypeAlias = tuple[str, str, int]


def _claims(judged: JudgedAnswer) -> Mapping[_ClaimKey, ShownClaim]:
    shown = shown_answer(judged)
    found: dict[_ClaimKey, ShownClaim] = {}
    repetitions: dict[tuple[str, str], int] = {}
    for claim in (*shown.claims, *shown.of_reference):
        key = (claim.verdict.claim.kind, " ".join(claim.verdict.claim.text.split()))
        repetitions[key] = repetitions.get(key, -1) + 1
        found[*key, repetitions[key]] = claim
    return found


def _changes(
    earlier: Mapping[_ClaimKey, ShownClaim], later: Mapping[_ClaimKey, ShownClaim]
) -> Iterator[ClaimChange]:
    for key in dict.fromkeys((*later, *earlier)):
        before, after = earlier.get(key), later.get(key)
        told = after or before
        if told is None or _label(before) == _label(after):
            continue
        yield ClaimChange(
            text=told.verdict.claim.text,
            before=_label(before),
            after=_label(after),
            reason=told.verdict.reason or "",
        )


def _label(claim: ShownClaim | None) -> VerdictLabel | None:
    return claim.verdict.label if claim else None


def _scores(first: Evaluation, second: Evaluation) -> Iterator[ScoreChange]:
    earlier, later = _by_metric(first), _by_metric(second)
    for name in dict.fromkeys((*later, *earlier)):
        before, after = earlier.get(name), later.get(name)
        yield ScoreChange(
            metric=name[0] if name[1] == "ragtrace" else f"{name[0]} ({name[1]})",
            before=_score(before),
            after=_score(after),
            label_before=before.label if before else None,
            label_after=after.label if after else None,
            is_lower_better=isinstance(after, MetricResult) and after.direction is Direction.LOWER_IS_BETTER,
        )


def _by_metric(evaluation: Evaluation) -> Mapping[tuple[str, str], MetricOutcome]:
    return {(outcome.metric, outcome.profile): outcome for outcome in evaluation.outcomes}


def _score(outcome: MetricOutcome | None) -> float | None:
    return outcome.score if isinstance(outcome, MetricResult) else None
