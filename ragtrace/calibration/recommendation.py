"""What a measurement recommends: how to ask the judge, and where to cut its scores."""

from __future__ import annotations

from ragtrace.calibration.results import CandidateResult, Results
from ragtrace.metrics.calibration_file import DEFAULT_THRESHOLD, Calibration, MeasuredOn
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
    )
