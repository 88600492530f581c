"""What a back-fill tells: each answer as it is judged, and in the end what became of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TypeAlias

from ragtrace.backfill import BackfillReport, DryRun
from ragtrace.budget import Prices
from ragtrace.cli.backfill.estimate import estimate_json, estimate_lines
from ragtrace.cli.outcomes import OutcomeTable
from ragtrace.cli.render import by_kind, open_console, print_json
from ragtrace.model import JudgedAnswer
from ragtrace.ports import Metric

if TYPE_CHECKING:
    from rich.console import Console


_MOST_SHOWN: Final = 20

OnEvaluated: TypeAlias = Callable[[JudgedAnswer], None]


def answer_listener(
    listeners: Sequence[OnEvaluated], metrics: Sequence[Metric], console: Console | None
) -> OnEvaluated:
    """Return what tells everyone of an answer, and writes its row if there is a console."""
    table = console and OutcomeTable(console, metrics=metrics, id_title="trace", id_width=32)

    def tell(answer: JudgedAnswer) -> None:
        for listener in listeners:
            listener(answer)
        if table:
            table.print_evaluation(answer.record, answer.evaluation)

    return tell


def if_kept(tell: OnEvaluated) -> OnEvaluated:
    """Tell of a pilot's answers whose verdicts are kept: the run judges the others again."""
    return lambda answer: tell(answer) if answer.carrier_span_id else None


def print_report(
    report: BackfillReport, preview: DryRun | None, *, prices: Prices, dry_run: bool, as_json: bool
) -> None:
    """Print what became of all, and what a dry run says it will take."""
    if as_json:
        told = estimate_json(preview) if preview else {}
        print_json({"dry_run": dry_run, **asdict(report), **told})
        return
    console = open_console()
    console.print()
    for line in _lines(report, dry_run=dry_run):
        console.print(line)
    if dry_run and preview:
        for line in estimate_lines(preview, prices):
            console.print(line, soft_wrap=True)


def _lines(report: BackfillReport, *, dry_run: bool) -> Iterator[str]:
    labels = f" ({', '.join(f'{label} {number}' for label, number in sorted(report.labels.items()))})"
    yield f"traces   {report.traces} read, {report.without_record} of them without a RAG call"
    if report.unreadable:
        yield f"         {by_kind(report.unreadable)} could not be read"
    if report.not_found:
        yield f"         not found: {', '.join(report.not_found[:_MOST_SHOWN])}{_and_more(report.not_found)}"
    if report.unread:
        yield f"         not readable: {', '.join(report.unread[:_MOST_SHOWN])}{_and_more(report.unread)}"
    if report.cut_windows:
        yield f"         {report.cut_windows} moments had more traces than the source gives: some are missing"
    yield f"records  {report.records}, of these:"
    yield f"  judged             {report.judged}{labels if report.labels else ''}"
    yield f"  ineligible         {by_kind(report.ineligible)}"
    yield f"  failed             {by_kind(report.failed)}"
    yield f"  sampled out        {report.sampled_out}"
    yield f"  already evaluated  {report.already_evaluated}"
    if report.left or report.is_stopped:
        yield f"  left               {report.left}"
    yield from _session_lines(report)
    if dry_run:
        yield "dry run: nothing was sent; `judged` are those that would be"
        return
    usage = report.usage
    yield f"sent     {report.sent}, rejected {by_kind(report.rejected)}"
    yield f"calls    {usage.calls}, tokens {usage.input_tokens} in, {usage.output_tokens} out"


def _session_lines(report: BackfillReport) -> Iterator[str]:
    other = (
        (report.sessions_known, "judged before"),
        (report.sessions_open, "not over yet"),
        (report.sessions_left, "left"),
    )
    told = [f"{number} {what}" for number, what in other if number]
    if report.sessions_failed:
        told.append(f"failed {by_kind(report.sessions_failed)}")
    if report.sessions or told:
        labels = ", ".join(f"{label} {number}" for label, number in sorted(report.sessions.items()))
        judged = f"{sum(report.sessions.values())} judged{f' ({labels})' if labels else ''}"
        yield f"sessions {', '.join((judged, *told))}"


def _and_more(listed: Sequence[object]) -> str:
    return f" and {len(listed) - _MOST_SHOWN} more" if len(listed) > _MOST_SHOWN else ""
