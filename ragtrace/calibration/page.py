"""What a measurement leaves behind: sentences and one self-contained HTML file, the card of a judge, and its
calibration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ragtrace.calibration.agreement import FEWEST_CLUSTERS
from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, judged_supported
from ragtrace.calibration.summary import (
    AccuracyLead,
    AgreementLevel,
    CandidateResult,
    GroupResult,
    Results,
    ScoreCutoff,
    is_clear,
)
from ragtrace.judge.lexical import WordShareJudge
from ragtrace.labeled_data import HumanLabel
from ragtrace.metrics.judge_card import (
    DEFAULT_THRESHOLD,
    Calibration,
    CardAnswers,
    CardSet,
    IntervalEstimate,
    JudgeCard,
    MeasuredOn,
)
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import JudgeIdentity
from ragtrace.reports.report import open_template
from ragtrace.stats import CountedShare, JudgeErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A claim on which people and a judge disagree. It contains judged text."""

    file: str
    answer_id: str
    claim: str
    human: str
    judge: str
    said: str
    reason: str


def disagreements(
    measured: Sequence[MeasuredAnswer], candidates: Sequence[JudgeCandidate], *, at_most: int
) -> Iterator[Example]:
    """Yield claims that a judge (not the floor) decided differently than people, in the sample's order."""
    left = at_most
    for each in sorted(measured, key=lambda answer: answer.position):
        for candidate, runs in zip(candidates, each.runs, strict=True):
            if candidate.is_floor or not runs[0].verdicts:
                continue
            for label, verdict in zip(each.answer.labels, runs[0].verdicts, strict=True):
                said = judged_supported(verdict)
                if said is None or said == (label is HumanLabel.SUPPORTED) or not left:
                    continue
                left -= 1
                yield Example(
                    file=each.answer.file,
                    answer_id=each.answer.record.id,
                    claim=verdict.claim.text,
                    human=str(label),
                    judge=candidate.name,
                    said=str(verdict.label),
                    reason=verdict.reason or "",
                )


_OF_CLAIMS: Final = {"thing": "claim", "things": "claims"}
_OF_CRITERIA: Final = {
    "thing": "criterion",
    "things": "criteria",
    "supported": "met",
    "unsupported": "not met",
    "not_met": "not met",
}


def render_page(results: Results, examples: Iterable[Example] = (), *, of_criteria: bool = False) -> str:
    """Write the report. Only ``examples`` contain judged text."""
    words: Mapping[str, str] = _OF_CRITERIA if of_criteria else _OF_CLAIMS
    template = open_template(
        "calibration/page.html",
        count="{:,}".format,
        counted=counted,
        interval=interval,
        word=lambda word: words.get(word, word),
        money=money,
        percent=percent,
    )
    return template.render(
        basis=basis(results, of_criteria=of_criteria),
        recommendations=[] if of_criteria else list(recommendations(results)),
        of_criteria=of_criteria,
        groups=results.groups,
        leads={group.name: list(floor_leads(group)) for group in results.groups},
        examples=list(examples),
    )


def interval(estimate: IntervalEstimate | None) -> str:
    """Format an estimate: ``0.76 [0.74, 0.78]``."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def percent(estimate: IntervalEstimate | None) -> str:
    """Format a share: ``54 %``."""
    return "-" if estimate is None else f"{100 * estimate.value:.0f} %"


def money(dollars: float | None) -> str:
    """Format US dollars; say so if the amount is unknown."""
    if dollars is None:
        return "unknown"
    return f"${dollars:.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 answer``, ``2,000 answers``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def basis(results: Results, *, of_criteria: bool = False) -> Iterator[str]:
    """Yield sentences about the data behind the results."""
    if results.sampled:
        wrong = "a criterion not met" if of_criteria else "an unsupported claim"
        yield (
            f"A sample: answers with {wrong} were drawn at a rate of their own, and every figure"
            " weights each answer by how many it represents."
        )
    else:
        yield "All answers were measured."
    drawn = f"{results.resamples:,} bootstrap samples of {_drawn(results)}"
    yield f"Intervals: 95 %, {drawn}, seed {results.seed}."
    if results.left_out:
        yield f"Left out: {', '.join(f'{what} ({number:,})' for what, number in results.left_out.items())}."


def _drawn(results: Results) -> str:
    if results.documents is None:
        return "whole answers"
    return f"{counted(results.documents, 'document')}, each with all answers about it"


def recommendations(results: Results) -> Iterator[str]:
    """Yield the recommendations with their certainty."""
    chosen = results.recommended
    if chosen is None:
        yield "Nothing follows: too little was measured of both supported and unsupported claims."
        return
    yield f"{chosen.name}: balanced accuracy {interval(chosen.two_way)} on claims."
    yield from (
        _lead(lead, chosen) for lead in results.overall.leads if chosen.name in (lead.first, lead.second)
    )
    if chosen.claim_cut is not None:
        yield _cut("Call a claim supported from P(Yes)", chosen.claim_cut)
    if chosen.answer_cut is not None:
        if chosen.answer_cut.is_moved:
            yield _cut("Pass an answer from faithfulness", chosen.answer_cut)
        else:
            yield "Pass an answer if no claim is wrong, the default: no share does better on other answers."


def floor_leads(group: GroupResult) -> Iterator[tuple[str, str]]:
    """Yield each judge's paired differences from each floor: what is compared, and the figures."""
    floors = {candidate.name for candidate in group.candidates if candidate.is_floor}
    for lead in group.leads:
        if lead.first in floors or lead.second not in floors:
            continue  # candidates come before the floors
        yield f"{lead.first} minus {lead.second}", "; ".join(_paired(lead))


def _paired(lead: AccuracyLead) -> Iterator[str]:
    for what, found in (("AUC", lead.auc), ("balanced accuracy", lead.difference)):
        if found is not None:
            is_open = found.low is not None and not is_clear(found)
            yield f"{what} {signed(found)}{' (may be chance)' if is_open else ''}"
    if lead.documents < FEWEST_CLUSTERS:
        yield f"no interval: {counted(lead.documents, 'document')}, {FEWEST_CLUSTERS} are needed"
    else:
        yield counted(lead.documents, "document")


def signed(difference: IntervalEstimate) -> str:
    """Format a difference: ``+0.04 [+0.01, +0.07]``."""
    if difference.low is None or difference.high is None:
        return f"{difference.value:+.2f}"
    return f"{difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"


def risk_limits(candidate: CandidateResult) -> str:
    """Format how much a judge can decide within a limit of errors; empty without probabilities."""
    return "; ".join(
        f"at {limit.risk:.0%} errors {_shares(limit.coverage)}" for limit in candidate.risk_limits
    )


def _shares(found: IntervalEstimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.0%}"
    return f"{found.value:.0%} [{found.low:.0%}, {found.high:.0%}]"


def _lead(lead: AccuracyLead, chosen: CandidateResult) -> str:
    found, other = lead.difference, lead.second
    if lead.first != chosen.name:
        low, high = (None if end is None else -end for end in (found.high, found.low))
        found, other = IntervalEstimate(value=-found.value, low=low, high=high), lead.first
    if found.low is None:
        return f"Against {other}: {signed(found)}; too few answers for an interval."
    return f"Against {other}: {signed(found)}{'' if lead.is_clear else ', which may be chance'}."


def _cut(what: str, cut: ScoreCutoff) -> str:
    if not cut.is_moved:
        return f"{what} {cut.recommended:.2f} on, the default: no other does better on held-out answers."
    spread = interval(cut.best).partition(" ")[2] or "the same"
    return (
        f"{what} {cut.recommended:.2f} on (95 % of bootstrap samples: {spread}):"
        f" {interval(cut.held_out)} on held-out answers, {interval(cut.at_default)} at {cut.default:g}."
    )


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
        **{figure: _figure(getattr(found.claims, figure)) for figure in _OF_CLAIMS_ON_CARD},
        contradicted_precision=_contradicted(found),
        calibration_error=_rounded(found.calibration_error),
        floor_two_way=_figure(floor.claims.two_way) if floor else None,
        floor_auc=_figure(floor.claims.auc) if floor else None,
        two_way_lead=_figure(lead.difference) if lead else None,
        auc_lead=_figure(lead.auc) if lead else None,
        of_answers=_card_answers(found.answers),
        risk_coverage_area=_figure(found.risk_coverage_area),
        floor_risk_coverage_area=_figure(floor.risk_coverage_area) if floor else None,
        risk_limits=[replace(limit, coverage=_short(limit.coverage)) for limit in found.risk_limits],
    )


_OF_CLAIMS_ON_CARD: Final = ("decided", "precision", "recall", "recall_of_decided", "two_way", "auc")


def _contradicted(found: CandidateResult) -> IntervalEstimate | None:
    value = found.contradicted_precision
    return None if value is None else IntervalEstimate(value=round(value, 3))


def _figure(estimate: IntervalEstimate | None) -> IntervalEstimate | None:
    return None if estimate is None else _short(estimate)


def _short(estimate: IntervalEstimate) -> IntervalEstimate:
    low, high = _rounded(estimate.low), _rounded(estimate.high)
    return IntervalEstimate(value=round(estimate.value, 3), low=low, high=high)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _card_answers(level: AgreementLevel) -> CardAnswers:
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


def _answer_errors(chosen: CandidateResult) -> JudgeErrors | None:
    """Return how often whole answers were judged right, end to end if that was measured."""
    cuts = (chosen.claim_cut, chosen.answer_cut)
    if any(cut is not None and cut.is_moved for cut in cuts):
        return None
    table = (chosen.end_to_end or chosen.answers).confusion

    def decided(human: str, right: str) -> CountedShare:
        row = table.get(human, {})
        return CountedShare(right=row.get(right, 0), of=row.get("supported", 0) + row.get("unsupported", 0))

    return JudgeErrors(
        sensitivity=decided("supported", "supported"), specificity=decided("unsupported", "unsupported")
    )
