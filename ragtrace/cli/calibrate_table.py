"""The figures of ``ragtrace calibrate`` on the terminal, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from ragtrace.calibration.agreement import IntervalEstimate
from ragtrace.calibration.page import (
    basis,
    counted,
    floor_leads,
    interval,
    money,
    percent,
    recommendations,
    risk_limits,
)
from ragtrace.calibration.results import AgreementLevel, CandidateResult, GroupResult, Results
from ragtrace.cli.render import by_kind, one_line, open_console, print_indented

_WIDTHS = (16, 9, 19, 19, 8, 9)
_HEAD = ("", "decided", "balanced accuracy", "of the decided", "kappa", "AUC")


def print_results(results: Results) -> None:
    """Print the results, by file and together, and the recommendations."""
    console = open_console()
    for group in results.groups:
        console.print(one_line(_title(group)), style="bold", soft_wrap=True)
        console.print(_columns(*_HEAD), style="dim", soft_wrap=True)
        for candidate in group.candidates:
            console.print(f"  {one_line(candidate.name)}{_kind(candidate)}")
            for line in _lines(candidate):
                console.print(line, soft_wrap=True)
        for compared, found in floor_leads(group):
            console.print(f"  {one_line(compared)}", soft_wrap=True)
            print_indented(console, 4, found)
        console.print()
    for line in basis(results):
        print_indented(console, 0, line)
    console.print()
    console.print("What follows", style="bold")
    for line in recommendations(results):
        print_indented(console, 2, line)


def _kind(candidate: CandidateResult) -> str:
    if not candidate.is_floor:
        return ""
    return " (the judge without a key)" if candidate.name.startswith("lexical:") else " (the floor)"


def _title(group: GroupResult) -> str:
    return f"{group.name}: {group.answers:,} of {counted(group.of_answers, 'answer')}"


def _lines(candidate: CandidateResult) -> Iterator[str]:
    yield from _level("claim", candidate.claims)
    yield from _level("answer", candidate.answers)
    if missed := _missed(candidate.answers):
        yield f"      {missed}"
    if candidate.calibration_error is not None:
        yield f"    calibration error of the probability {candidate.calibration_error:.2f}"
        yield f"    {_surest(candidate)}"
        if candidate.risk_coverage_area is not None:
            yield f"    area under risk by coverage (AURC) {interval(candidate.risk_coverage_area)}"
        if candidate.risk_limits:
            yield f"    can decide {risk_limits(candidate)}"
    if candidate.end_to_end is not None:
        yield f"    end to end, the claims worded by {one_line(candidate.name)}"
        if candidate.end_to_end_claims is not None:
            yield from _level("claim", candidate.end_to_end_claims)
        yield from _level("answer", candidate.end_to_end)
    yield f"    {_effort(candidate)}"
    if candidate.runs > 1:
        yield f"    {percent(candidate.flips)} of the verdicts are not the same in {candidate.runs} runs"
    for what, counts in (("failed", candidate.failures), ("skipped", candidate.skipped)):
        if counts:
            yield f"    {what}  {by_kind(counts)}"


def _level(name: str, level: AgreementLevel) -> Iterator[str]:
    yield _columns(
        counted(level.things, name),
        percent(level.decided),
        interval(level.two_way),
        interval(level.balanced_accuracy),
        _point(level.kappa),
        _point(level.auc),
    )
    if level.unsupported:
        found = f"found {level.caught:,} of {level.unsupported:,} unsupported"
        yield f"      {found}: recall {interval(level.recall)}"
        of_decided = f"of the decided {interval(level.recall_of_decided)}"
        yield f"        ({of_decided}); precision {interval(level.precision)}"


def _missed(answers: AgreementLevel) -> str:
    passed = {human: row.get("supported", 0) for human, row in answers.confusion.items()}
    of = sum(passed.values())
    return f"of {counted(of, 'answer')} that pass, {passed.get('unsupported', 0):,} are flawed" if of else ""


def _surest(candidate: CandidateResult) -> str:
    half = next((point for point in candidate.risk_coverage if point[0] >= 0.5), None)
    return "" if half is None else f"the surest {half[0]:.0%} of the claims: {half[1]:.1%} are wrong"


def _effort(candidate: CandidateResult) -> str:
    usage = candidate.usage
    tokens = usage.input_tokens + usage.output_tokens
    return (
        f"{counted(usage.calls, 'call')}, {counted(tokens, 'token')}, cost {money(candidate.cost)},"
        f" {candidate.seconds_an_answer:.3g} s an answer"
    )


def _columns(*cells: str) -> str:
    return ("    " + "".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))).rstrip()


def _point(estimate: IntervalEstimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value:.2f}"
