"""Formats results as text, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator

from ragtrace.calibration.intervals import FEWEST_CLUSTERS, IntervalEstimate
from ragtrace.calibration.results import (
    AccuracyLead,
    CandidateResult,
    GroupResult,
    Results,
    ScoreCutoff,
    is_clear,
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


def basis(results: Results) -> Iterator[str]:
    """Yield sentences about the data behind the results."""
    if results.sampled:
        yield (
            "A sample: answers with an unsupported claim were drawn at a rate of their own, and every figure"
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
    first = lead.first == chosen.name
    other = lead.second if first else lead.first
    sign = 1 if first else -1
    low, high = sorted(sign * (end or 0.0) for end in (lead.difference.low, lead.difference.high))
    shown = f"{sign * lead.difference.value:+.2f} [{low:+.2f}, {high:+.2f}]"
    if lead.difference.low is None:
        return f"Against {other}: {sign * lead.difference.value:+.2f}; too few answers for an interval."
    return f"Against {other}: {shown}{'' if lead.is_clear else ', which may be chance'}."


def _cut(what: str, cut: ScoreCutoff) -> str:
    if not cut.is_moved:
        return f"{what} {cut.recommended:.2f} on, the default: no other does better on held-out answers."
    spread = interval(cut.best).partition(" ")[2] or "the same"
    return (
        f"{what} {cut.recommended:.2f} on (95 % of bootstrap samples: {spread}):"
        f" {interval(cut.held_out)} on held-out answers, {interval(cut.at_default)} at {cut.default:g}."
    )
