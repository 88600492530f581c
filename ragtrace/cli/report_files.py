"""The files that a command writes about what it judges: reports, and transcripts for `ragtrace rejudge`."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from ragtrace.backfill import BackfillReport, DryRun
from ragtrace.budget import Prices
from ragtrace.cli.options import ReportOptions
from ragtrace.cli.render import by_kind, many, talk
from ragtrace.cli.settings import given_selection
from ragtrace.errors import RagtraceError
from ragtrace.metrics import StepLimits
from ragtrace.model import JudgedAnswer, JudgeIdentity
from ragtrace.pipeline import Evaluator, MetricSpec
from ragtrace.ports import Judge, Metric, pass_condition
from ragtrace.reports import Report, RunEnd, RunInfo, SkippedAnswers, open_report
from ragtrace.transcripts import TranscriptRecord, Transcripts, recorded


class Reports:
    """All reports of a run; they keep what was judged, however the run ends.

    One that cannot be written any more is given up, and the run goes on: the verdicts are sent all the same.
    """

    def __init__(self, choice: ReportOptions, about: RunInfo, prices: Prices) -> None:
        self._choice, self._about, self._prices = choice, about, prices
        self._open: list[Report] = []
        self._were_there: frozenset[Path] = frozenset()
        self.answers = 0
        """That were told so far."""
        self._ending = RunEnd()
        self.is_whole = True
        """Whether each of them tells all that was judged."""

    @classmethod
    def of(
        cls,
        options: ReportOptions,
        *,
        source: str,
        evaluator: Evaluator,
        links: Mapping[str, str],
    ) -> Self:
        """Return the reports of a run, which are opened by ``with``: before anything is judged.

        The first of the ``links`` leads to a trace; by default it is the page of the Jaeger that is read.
        """
        second = evaluator.second_judge
        about = RunInfo(
            source=_without_login(source),
            judge=_name(evaluator.judge),
            metrics=tuple(map(_passing, evaluator.metrics)),
            began_at_ns=time.time_ns(),
            selection=dict(_selected(click.get_current_context())),
            second_judge=_name(second) if second else None,
            prices_as_of=evaluator.prices.date,
            trace_url=next(iter(links.values()), None) or _page_of_trace(source),
        )
        return cls(options, about, evaluator.prices)

    def __enter__(self) -> Self:
        """Open them.

        Raises:
            ConfigError: one cannot be written.
        """
        self._were_there = frozenset(path for path in self._choice.paths if path.exists())
        with ExitStack() as undone:
            for path in self._choice.paths:
                report = open_report(path, self._about)
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
            talk(f"nothing was judged: {str(report.path)!r} is unchanged")

    def _give_up(self, report: Report, exc: OSError) -> None:
        self.is_whole = False
        self._open.remove(report)
        report.abandon()
        talk(f"the report {str(report.path)!r} cannot be written, so it ends here: {exc.strerror}")


def ending_of(report: BackfillReport, *, told: int) -> RunEnd:
    """Say how a back-fill ended, and what it did not judge; ``told`` counts its pilot's answers, too."""
    in_run = report.judged + sum(report.ineligible.values()) + sum(report.failed.values())
    earlier = report.already_evaluated - (told - in_run)  # the run finds those of its pilot evaluated
    left_out = _left_out(replace(report, already_evaluated=earlier))
    return RunEnd(cut_short=_cut_short(report), left_out=tuple(left_out))


def ending_of_pilot(preview: DryRun) -> RunEnd:
    """Say how a pilot ended, and what is left to the run."""
    left = preview.report.judged - preview.pilot.judged
    left_out = _left_out(replace(preview.report, left=max(0, left)))
    return RunEnd(cut_short=_cut_short(preview.pilot), left_out=tuple(left_out))


def _cut_short(report: BackfillReport) -> str | None:
    if report.is_stopped:
        return "it was stopped"
    if report.over_budget:
        return f"the budget is spent ({report.over_budget})"
    return f"the source was read no further ({report.broken_off})" if report.broken_off else None


def _left_out(report: BackfillReport) -> Iterator[SkippedAnswers]:
    told = (
        ("sampled out", report.sampled_out, "answer", "the rate or the rules of the selection left them out"),
        ("already evaluated", report.already_evaluated, "answer", "the same evaluator judged them before"),
        ("not begun", report.left, "answer", "left to a run with --resume"),
        ("no RAG call", report.without_record, "trace", "nothing in them asks, retrieves and answers"),
        ("unreadable", sum(report.unreadable.values()), "trace", by_kind(report.unreadable)),
        ("not found", len(report.not_found), "trace", "the source has none of this id"),
        ("not given", len(report.unread), "trace", "the source has them, but could not return them"),
        ("cut", report.cut_windows, "moment", "it had more traces than the source returns"),
        (
            "rejected",
            sum(report.rejected.values()),
            "verdict",
            "judged, but the destination did not accept it",
        ),
    )
    for what, number, unit, why in told:
        if number:
            yield SkippedAnswers(what=what, number=number, unit=unit, why=why)


def _cause(exc: BaseException) -> str:
    if isinstance(exc, KeyboardInterrupt | CancelledError):
        return "it was interrupted"
    if isinstance(exc, click.Abort):
        return "nobody agreed to it after the pilot"
    return f"an error ended it ({exc if isinstance(exc, RagtraceError) else type(exc).__name__})"


def _selected(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the options that were given to choose answers, as they are written."""
    for name, value in given_selection(context):
        yield name, _written(value)


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
    return f"{name} (pass when {pass_condition(metric)})"


def _name(judge: Judge) -> str:
    return judge.identity.name


def _without_login(source: str) -> str:
    """Leave out a user and password from an address."""
    start, mark, rest = source.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2] if mark and '@' in rest.partition('/')[0] else rest}"


def _page_of_trace(source: str) -> str | None:
    """Return the address of a trace's page, where it is known by that of the source: Jaeger's."""
    address = _without_login(source).removeprefix("jaeger:")
    is_jaeger = source.startswith(("jaeger:http", "http"))
    return f"{address.rstrip('/')}/trace/{{trace_id}}" if is_jaeger else None


class TranscriptFile:
    """Keeps what is judged while it is open, if a file was named."""

    def __init__(self, path: Path | None) -> None:
        self._transcripts = Transcripts(path) if path else None
        self._second: JudgeIdentity | None = None
        self._limits = StepLimits()
        self._metrics: tuple[MetricSpec, ...] = ()

    def recorded(self, evaluator: Evaluator, metrics: tuple[MetricSpec, ...]) -> Evaluator:
        """Write down what the judges say, who they are, and which metrics ask them within which limits."""
        if self._transcripts is None:
            return evaluator
        second = evaluator.second_judge
        self._metrics = metrics
        self._second, self._limits = second.identity if second else None, evaluator.limits
        return replace(
            evaluator,
            judge=recorded(evaluator.judge, self._transcripts),
            second_judge=recorded(second, self._transcripts) if second else None,
        )

    @property
    def is_whole(self) -> bool:
        """Whether all that was to be kept is."""
        return self._transcripts is None or self._transcripts.is_whole

    def __enter__(self) -> Self:
        """Open the file.

        Raises:
            ConfigError: it cannot be used.
        """
        if self._transcripts:
            self._transcripts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transcripts:
            self._transcripts.__exit__(kind, exc, traceback)

    def keep(self, answer: JudgedAnswer) -> None:
        """Keep what came of a record."""
        if self._transcripts:
            self._transcripts.keep(
                TranscriptRecord(
                    record=answer.record,
                    evaluation=answer.evaluation,
                    sample=answer.sample,
                    second_judge=self._second,
                    limits=self._limits,
                    metrics=self._metrics,
                    session=self._transcripts.session,
                )
            )
