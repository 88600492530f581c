"""What a measurement recommends: how to ask the judge, and where to cut its scores."""

from __future__ import annotations

from ragtrace.calibration.results import CandidateResult, Results
from ragtrace.metrics.calibration_file import (
    DEFAULT_THRESHOLD,
    AnswerErrors,
    Calibration,
    MeasuredOn,
    MeasuredShare,
)
from ragtrace.metrics.verify_settings import VerifyForm
from ragtrace.model import JudgeIdentity


def recommended_calibration(results: Results, identity: JudgeIdentity) -> Calibration | None:
    """Return what the results recommend for a judge; ``None`` if they recommend nothing."""
    chosen = results.recommended
    if chosen is None or chosen.two_way is None:
        return None
    return Calibration(
        provider=identity.provider,
        model=identity.model,
        screen=identity.screen,
        form=VerifyForm(chosen.form),
        threshold=chosen.claim_cut.recommended if chosen.claim_cut else DEFAULT_THRESHOLD,
        answer_threshold=chosen.answer_threshold,
        measured_on=_measured_on(results, chosen),
    )


def _measured_on(results: Results, chosen: CandidateResult) -> MeasuredOn:
    found = chosen.two_way
    assert found is not None
    files = results.groups[:-1] or results.groups
    return MeasuredOn(
        files=[group.name for group in files],
        answers=results.overall.answers,
        claims=chosen.claims.things,
        balanced_accuracy=found.value,
        low=found.low,
        high=found.high,
        answer_errors=_answer_errors(chosen),
    )


def _answer_errors(chosen: CandidateResult) -> AnswerErrors | None:
    """Return how often whole answers were judged right, end to end if that was measured."""
    cuts = (chosen.claim_cut, chosen.answer_cut)
    if any(cut is not None and cut.is_moved for cut in cuts):
        return None
    table = (chosen.end_to_end or chosen.answers).confusion

    def decided(human: str, right: str) -> MeasuredShare:
        row = table.get(human, {})
        return MeasuredShare(right=row.get(right, 0), of=row.get("supported", 0) + row.get("unsupported", 0))

    return AnswerErrors(
        sensitivity=decided("supported", "supported"), specificity=decided("unsupported", "unsupported")
    )
