"""Reports of what a command judges: its options, and the files that they open."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from ragtrace.backfill import BackfillReport, DryRun
from ragtrace.cli.terminal import by_kind, many, talk
from ragtrace.errors import RagtraceError
from ragtrace.judge import Prices
from ragtrace.ports import Judge, Metric, passes_when
from ragtrace.reports import SUFFIXES, JudgedAnswer, Report, RunEnd, RunInfo, SkippedAnswers, open_report

Callback: TypeAlias = Callable[..., Any]

_SELECTING: Final = (
    "service",
    "operation",
    "since",
    "until",
    "tags",
    "traceql",
    "trace_ids",
    "ratio",
    "sampling",
    "limit",
    "only_unscored",
    "pilot",
    "resume",
)
"""Parameters of commands that say which answers are judged."""


def report_options(command: Callback) -> Callback:
    """Add ``--out`` and what goes with it; the callback gets ``wanted``, a `ReportChoice`."""

    @click.option(
        "--out",
        "paths",
        type=click.Path(path_type=Path, dir_okay=False),
        multiple=True,
        metavar="FILE",
        callback=_with_known_suffix,
        help="Also write what was judged into a file, with the texts: .html (a page for people), .jsonl, .csv"
        " or .parquet. May be repeated. Rows are added to a .jsonl or .csv that is there; a page or .parquet"
        " takes its place.",
    )
    @click.option(
        "--worst",
        type=click.IntRange(0, 1_000),
        default=50,
        show_default=True,
        metavar="N",
        help="How many of the worst answers stand in the page.",
    )
    @click.option(
        "--trace-url",
        metavar="URL",
        callback=_trace_url,
        help="Where the page leads to from a trace: http://localhost:16686/trace/{trace_id}; {span_id} may be"
        " in it, too.  [default: the pages of the Jaeger that is read]",
    )
    @wraps(command)
    def with_reports(
        *args: Any, paths: tuple[Path, ...], worst: int, trace_url: str | None, **others: Any
    ) -> Any:
        wanted = ReportChoice(paths=paths, worst=worst, trace_url=trace_url)
        return command(*args, wanted=wanted, **others)

    return with_reports


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportChoice:
    """Which reports are wanted."""

    paths: tuple[Path, ...]
    worst: int
    trace_url: str | None

    def reports(
        self,
        *,
        source: str,
        metrics: tuple[Metric, ...],
        judge: Judge,
        second_judge: Judge | None,
        prices: Prices,
    ) -> Reports:
        """Return the reports of a run, which are opened by ``with``: before anything is judged."""
        about = RunInfo(
            source=_without_login(source),
            judge=_name(judge),
            metrics=tuple(map(_passing, metrics)),
            began_at_ns=time.time_ns(),
            selection=dict(_selected(click.get_current_context())),
            second_judge=_name(second_judge) if second_judge else None,
            prices_as_of=prices.as_of,
            trace_url=self.trace_url or _page_of_trace(source),
        )
        return Reports(self, about, prices)


class Reports:
    """All reports of a run: what was judged stays told, however the run ends.

    One that cannot be written any more is given up, and the run goes on: the verdicts are sent all the same.
    """

    def __init__(self, choice: ReportChoice, about: RunInfo, prices: Prices) -> None:
        self._choice, self._about, self._prices = choice, about, prices
        self._open: list[Report] = []
        self._were_there: frozenset[Path] = frozenset()
        self.answers = 0
        """That were told so far."""
        self._ending = RunEnd()
        self.is_whole = True
        """Whether each of them tells all that was judged."""

    def __enter__(self) -> Self:
        """Open them.

        Raises:
            ConfigError: one cannot be written.
        """
        self._were_there = frozenset(path for path in self._choice.paths if path.exists())
        with ExitStack() as undone:
            for path in self._choice.paths:
                report = open_report(path, self._about, worst=self._choice.worst)
                undone.callback(report.abandon)
                self._open.append(report)
            undone.pop_all()
        return self

    def add(self, answer: JudgedAnswer) -> None:
        """Tell each of an answer."""
        self.answers += 1
        priced = replace(answer, cost_usd=self._prices.cost_of(answer.evaluation))
        for report in tuple(self._open):
            try:
                report.add(priced)
            except OSError as exc:
                self._give_up(report, exc)

    def end(self, ending: RunEnd) -> None:
        """Note how the run ended."""
        self._ending = ending

    def __exit__(
        self, _kind: type[BaseException] | None, exc: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        ending = RunEnd(cut_short=_cause(exc)) if exc else self._ending
        for report in tuple(self._open):
            try:
                self._close(report, ending, is_broken=exc is not None)
            except OSError as failure:
                self._give_up(report, failure)

    def _close(self, report: Report, ending: RunEnd, *, is_broken: bool) -> None:
        if self.answers or not (is_broken or report.path in self._were_there):
            report.close(ending)
            return
        report.abandon()
        if not is_broken:
            talk(f"nothing was judged: {str(report.path)!r} stays as it was")

    def _give_up(self, report: Report, exc: OSError) -> None:
        self.is_whole = False
        self._open.remove(report)
        report.abandon()
        talk(f"the report {str(report.path)!r} cannot be written, and is given up: {exc.strerror}")


def ending_of(report: BackfillReport, *, told: int) -> RunEnd:
    """Say how a back-fill ended, and what it did not judge; ``told`` counts its pilot's answers, too."""
    in_run = report.judged + sum(report.ineligible.values()) + sum(report.failed.values())
    earlier = report.already_evaluated - (told - in_run)  # the run finds those of its pilot evaluated
    left_out = _left_out(replace(report, already_evaluated=earlier))
    return RunEnd(cut_short=_cut_short(report), left_out=tuple(left_out))


def ending_of_pilot(rehearsal: DryRun) -> RunEnd:
    """Say how a pilot ended, and what is left to the run."""
    left = rehearsal.report.judged - rehearsal.pilot.judged
    left_out = _left_out(replace(rehearsal.report, left=max(0, left)))
    return RunEnd(cut_short=_cut_short(rehearsal.pilot), left_out=tuple(left_out))


def _cut_short(report: BackfillReport) -> str | None:
    if report.is_stopped:
        return "it was stopped"
    if report.over_budget:
        return f"what may be spent is spent ({report.over_budget})"
    return f"the source was read no further ({report.broken_off})" if report.broken_off else None


def _left_out(report: BackfillReport) -> Iterator[SkippedAnswers]:
    told = (
        ("sampled out", report.sampled_out, "answer", "the rate or the rules of the selection left them out"),
        ("already evaluated", report.already_evaluated, "answer", "the same evaluator judged them before"),
        ("not begun", report.left, "answer", "left to a run that goes on (--resume)"),
        ("no RAG call", report.without_record, "trace", "nothing in them asks, retrieves and answers"),
        ("unreadable", sum(report.unreadable.values()), "trace", by_kind(report.unreadable)),
        ("not found", len(report.not_found), "trace", "the source has none of this id"),
        ("not given", len(report.unread), "trace", "the source has them, and could not give them"),
        ("cut", report.cut_windows, "moment", "it had more traces than the source gives"),
        ("rejected", sum(report.rejected.values()), "verdict", "judged, and the destination did not take it"),
    )
    for what, number, unit, why in told:
        if number:
            yield SkippedAnswers(what=what, number=number, unit=unit, why=why)


def _cause(exc: BaseException) -> str:
    if isinstance(exc, KeyboardInterrupt | CancelledError):
        return "it was interrupted"
    if isinstance(exc, click.Abort):
        return "after its pilot, it was not agreed to"
    return f"an error ended it ({exc if isinstance(exc, RagtraceError) else type(exc).__name__})"


def _selected(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the options that were given to choose answers, as they are written."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
        if given and parameter.name in _SELECTING:
            yield parameter.opts[0], _written(context.params[parameter.name])


def _written(value: object) -> str:
    match value:
        case True:
            return ""
        case tuple():
            shown = ["=".join(each) if isinstance(each, tuple) else str(each) for each in value]
            return ", ".join(shown[:3]) + (f" and {many(len(shown) - 3, 'more')}" if len(shown) > 3 else "")
        case str() | int() | float():
            return str(value)
        case _:
            return "of a file"


def _passing(metric: Metric) -> str:
    name = metric.name if metric.profile == "ragtrace" else f"{metric.name}.{metric.profile}"
    return f"{name} (pass when {passes_when(metric)})"


def _name(judge: Judge) -> str:
    return f"{judge.identity.provider}:{judge.identity.model}"


def _without_login(source: str) -> str:
    """Leave out a user and password from an address."""
    start, mark, rest = source.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2] if mark and '@' in rest.partition('/')[0] else rest}"


def _page_of_trace(source: str) -> str | None:
    """Return the address of a trace's page, where it is known by that of the source: Jaeger's."""
    address = _without_login(source).removeprefix("jaeger:")
    is_jaeger = source.startswith(("jaeger:http", "http"))
    return f"{address.rstrip('/')}/trace/{{trace_id}}" if is_jaeger else None


def _trace_url(_: click.Context, __: click.Parameter, url: str | None) -> str | None:
    if url is None:
        return None
    if urlsplit(url).scheme not in ("http", "https") or "{trace_id}" not in url:
        raise click.BadParameter("write an address with {trace_id}: http://localhost:16686/trace/{trace_id}")
    return url


def _with_known_suffix(_: click.Context, __: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            raise click.BadParameter(f"{path.name!r} is no report: its name ends with {', '.join(SUFFIXES)}")
    return tuple(dict.fromkeys(paths))
