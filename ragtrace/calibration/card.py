"""What a measurement leaves behind: the card of a judge, and its calibration."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from ragtrace.calibration.agreement import IntervalEstimate
from ragtrace.calibration.results import AgreementLevel, CandidateResult, GroupResult, Results
from ragtrace.judge.lexical import WordShareJudge
from ragtrace.metrics.judge_card import (
    DEFAULT_THRESHOLD,
    AnswerErrors,
    Calibration,
    CardAnswers,
    CardFigure,
    CardSet,
    JudgeCard,
    MeasuredOn,
    MeasuredShare,
    RiskCoverage,
    RiskPoint,
)
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import JudgeIdentity


def judge_card(
    results: Results, judge: JudgeIdentity, digests: Mapping[str, str], *, date: str | None = None
) -> JudgeCard:
    """Return the card of the recommended candidate, with a set a file.

    ``digests`` are by the names of the groups. ``date`` is by default today, in UTC.
    """
    chosen = results.recommended
    files = results.groups[:-1] or results.groups
    return JudgeCard(
        provider=judge.provider,
        model=judge.model,
        screen=judge.screen,
        date=date or datetime.now(UTC).date().isoformat(),
        sets=[_set(group, chosen.name, digests.get(group.name, "")) for group in files] if chosen else [],
    )


def digest_of(path: str | Path) -> str:
    """Return the first 16 hex digits of a file's sha256; empty for standard input."""
    return "" if str(path) == "-" else hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _set(group: GroupResult, chosen: str, digest: str) -> CardSet:
    found = next(candidate for candidate in group.candidates if candidate.name == chosen)
    identity = WordShareJudge.identity
    name = identity.name
    floor = next((candidate for candidate in group.candidates if candidate.name == name), None)
    lead = next((lead for lead in group.leads if (lead.first, lead.second) == (chosen, name)), None)
    return CardSet(
        name=group.name,
        digest=digest,
        answers=group.answers,
        documents=lead.documents if lead else None,
        claims=found.claims.things,
        unsupported=found.claims.unsupported,
        decided=_figure(found.claims.decided),
        precision=_figure(found.claims.precision),
        recall=_figure(found.claims.recall),
        recall_of_decided=_figure(found.claims.recall_of_decided),
        contradicted_precision=_contradicted(found),
        two_way=_figure(found.claims.two_way),
        auc=_figure(found.claims.auc),
        calibration_error=_rounded(found.calibration_error),
        floor_two_way=_figure(floor.claims.two_way) if floor else None,
        floor_auc=_figure(floor.claims.auc) if floor else None,
        two_way_lead=_figure(lead.difference) if lead else None,
        auc_lead=_figure(lead.auc) if lead else None,
        of_answers=_answers(found.answers),
        risk_coverage_area=_figure(found.risk_coverage_area),
        floor_risk_coverage_area=_figure(floor.risk_coverage_area) if floor else None,
        risk_limits=list(_risk_limits(found)),
        risk_coverage=[RiskPoint(coverage=round(c, 3), risk=round(r, 4)) for c, r in found.risk_coverage],
    )


def _risk_limits(found: CandidateResult) -> Iterator[RiskCoverage]:
    for limit in found.risk_limits:
        if coverage := _figure(limit.coverage):
            yield RiskCoverage(risk=limit.risk, coverage=coverage)


def _contradicted(found: CandidateResult) -> CardFigure | None:
    value = found.contradicted_precision
    return None if value is None else CardFigure(value=round(value, 3))


def _figure(estimate: IntervalEstimate | None) -> CardFigure | None:
    if estimate is None:
        return None
    return CardFigure(
        value=round(estimate.value, 3), low=_rounded(estimate.low), high=_rounded(estimate.high)
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _answers(level: AgreementLevel) -> CardAnswers:
    good, flawed = level.confusion.get("supported", {}), level.confusion.get("unsupported", {})
    words = ("supported", "unsupported", "unjudged")
    of, wrong = ({word: row.get(word, 0) for word in words} for row in (good, flawed))
    return CardAnswers(
        passed=of["supported"] + wrong["supported"],
        passed_flawed=wrong["supported"],
        failed=of["unsupported"] + wrong["unsupported"],
        failed_flawed=wrong["unsupported"],
        undecided=of["unjudged"] + wrong["unjudged"],
        undecided_flawed=wrong["unjudged"],
    )


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
