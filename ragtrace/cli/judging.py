"""What commands that judge share: rows that they read, files that they write, what they say of the judge."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

import click

from ragtrace._input import end_standard_input
from ragtrace._row_files import RowNotices
from ragtrace.backfill import BackfillReport, DryRun
from ragtrace.budget import Prices
from ragtrace.cli.options import ReportOptions, given_selection
from ragtrace.cli.render import by_kind, many, one_line, page_of_trace, shortened, talk, without_login
from ragtrace.errors import InputError, RagtraceError
from ragtrace.judge import spent_by
from ragtrace.judge.spec import JudgeSpec
from ragtrace.model import JudgedAnswer, JudgeIdentity
from ragtrace.pipeline import Evaluator, MetricSpec
from ragtrace.ports import Judge, Metric, pass_condition
from ragtrace.process import SystemClock
from ragtrace.reports import Report, RunEnd, RunInfo, SkippedAnswers, open_report
from ragtrace.sampling import SamplingPlan
from ragtrace.transcripts import TranscriptRecord, Transcripts, recorded


def report_usage(judges: Iterable[Judge], prices: Prices) -> None:
    """Say on stderr what judges that cost anything were asked, and what that comes to."""
    paid = [judge for judge in judges if not judge.identity.computes]
    for judge in paid:
        spent = spent_by(judge)
        cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
        tokens = f"{spent.input_tokens:,}{cached} + {spent.output_tokens:,} tokens"
        cost = prices.cost_usd(spent, judge.identity)
        dollars = "cost unknown" if cost is None else f"${cost:.4f} at the prices of {prices.date}"
        talk(f"{many(spent.calls, 'call')} to {judge.identity.model}: {tokens}, {dollars}")
    warn_of_old_prices(paid, prices)


def warn_of_old_prices(judges: Iterable[Judge], prices: Prices) -> None:
    """Say on stderr, once for a price, that it was looked up long ago."""
    now_ns = SystemClock().now_ns()
    for warning in dict.fromkeys(prices.too_old(each.identity, now_ns=now_ns) for each in judges):
        if warning:
            talk(f"warning: {warning}")


def introduce(judge: Judge) -> None:
    """Say on stderr who judges, and how much that is worth where it is a heuristic."""
    talk(f"judge: {judge.identity.provider} ({judge.identity.model})")
    if judge.identity.screen:
        talk(f"  after the screen {judge.identity.screen}")
    if judge.identity.provider == "lexical":
        talk(
            "  a heuristic of numbers, names and wording: it leaves many claims unjudged.\n"
            "  Do not base an alert on it alone. Use a model with --judge openai:MODEL."
        )


def is_free(evaluator: Evaluator, spec: JudgeSpec) -> bool:
    """Say whether judging costs nothing: by code, at a price of 0, or at an endpoint of this machine without
    a price."""
    return all(_is_free(judge.identity, evaluator.prices, spec) for judge in evaluator.judges)


def _is_free(who: JudgeIdentity, prices: Prices, spec: JudgeSpec) -> bool:
    if who.computes:
        return True
    price = prices.price_of(who)
    if price is not None:
        return price.input == price.output == 0
    named = spec.base_url if spec.kind == who.provider else None
    url = named or os.environ.get(f"{who.provider.upper()}_BASE_URL", "")
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


T = TypeVar("T")

_MOST_SAID: Final = 20
_MOST_WRITTEN: Final = 200


class LeftOutRows(RowNotices):
    """Says on stderr which rows and fields of a file are left out, and counts the rows."""

    def __init__(self) -> None:
        self.number = 0
        self._told: set[str] = set()

    def row_refused(self, fault: InputError) -> None:
        """Say it of the first rows; the others are only counted. What is read twice is told once."""
        told = one_line(str(fault))
        if told in self._told:
            return
        self.number += 1
        if self.number <= _MOST_SAID:
            self._told.add(told)
            talk(f"left out: {told}")
        elif self.number == _MOST_SAID + 1:
            talk("left out: more rows, counted at the end")

    def fields_ignored(self, warning: str) -> None:
        """Say it."""
        talk(f"warning: {one_line(warning)}")

    def check_any(self, path: str, read: int) -> None:
        """Say that there was no row; raise if there were some and none is readable.

        Raises:
            InputError: no row could be read.
        """
        if read:
            return
        name = shown_path(path)
        if self.number:
            raise InputError(f"{name}: {many(self.number, 'row')}, and none is readable")
        talk(f"{name} has no records")

    def ending(self) -> RunEnd:
        """Return what reports are to say of it."""
        why = "They are not records: stderr says what is wrong with each."
        unreadable = SkippedAnswers(what="unreadable", number=self.number, unit="row", why=why)
        return RunEnd(left_out=(unreadable,) if self.number else ())

    def exit_code(self) -> int:
        """Return 2, and say why, where rows were left out."""
        if not self.number:
            return 0
        talk(f"failed: {many(self.number, 'row')} could not be read and are in no number")
        return 2


def shown_path(path: str) -> str:
    """Name a file, or standard input, for people."""
    return "standard input" if path == "-" else path


async def in_background(items: Iterator[T]) -> AsyncGenerator[T, None]:
    """Yield items that may have to be waited for, such as lines that somebody types; it can be called off."""
    try:
        while (item := await asyncio.to_thread(next, items, None)) is not None:
            yield item
    finally:
        end_standard_input()


class Reports:
    """All reports of a run, and its transcripts; they keep what was judged, however the run ends.

    One that cannot be written any more is given up, and the run goes on: the verdicts are sent all the same.
    """

    def __init__(
        self,
        choice: ReportOptions,
        about: RunInfo,
        prices: Prices,
    ) -> None:
        self._choice, self._about, self._prices = choice, about, prices
        self._transcripts = Transcripts(choice.transcripts) if choice.transcripts else None
        self._as_kept: Callable[..., TranscriptRecord] = TranscriptRecord
        self._open: list[Report] = []
        self._were_there: frozenset[Path] = frozenset()
        self.answers = 0
        """That were told so far."""
        self._ending = RunEnd()
        self._were_given_up = False

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
        second, given = evaluator.second_judge, given_selection(click.get_current_context())
        about = RunInfo(
            source=without_login(source),
            judge=evaluator.judge.identity.name,
            metrics=tuple(map(_passing, evaluator.metrics)),
            began_at_ns=time.time_ns(),
            selection={name: _written(value) for name, value in given},
            second_judge=second.identity.name if second else None,
            prices_as_of=evaluator.prices.date,
            trace_url=next(iter(links.values()), None) or page_of_trace(source),
        )
        return cls(options, about, evaluator.prices)

    @property
    def is_whole(self) -> bool:
        """Whether each of them tells all that was judged."""
        return not self._were_given_up and (self._transcripts is None or self._transcripts.is_whole)

    def recorded(self, evaluator: Evaluator, metrics: tuple[MetricSpec, ...]) -> Evaluator:
        """Write down what the judges say in the transcripts, if they are wanted."""
        if (kept := self._transcripts) is None:
            return evaluator
        second = evaluator.second_judge
        self._as_kept = partial(
            TranscriptRecord,
            second_judge=second.identity if second else None,
            limits=evaluator.limits,
            metrics=metrics,
            session=kept.session,
        )
        judge = recorded(evaluator.judge, kept)
        return replace(evaluator, judge=judge, second_judge=recorded(second, kept) if second else None)

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
            if self._transcripts:
                undone.enter_context(self._transcripts)
            undone.pop_all()
        return self

    def add(self, answer: JudgedAnswer) -> None:
        """Tell each of an answer."""
        self.answers += 1
        if self._transcripts:
            fields = {"record": answer.record, "evaluation": answer.evaluation, "sample": answer.sample}
            self._transcripts.keep(self._as_kept(**fields))
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
        if self._transcripts:
            self._transcripts.__exit__()
        ending = RunEnd(cut_short=_cause(exc)) if exc else self._ending
        for report in tuple(self._open):
            if not self.answers and (exc or report.path in self._were_there):
                report.abandon()
                if not exc:
                    talk(f"nothing was judged: {str(report.path)!r} is unchanged")
                continue
            try:
                report.close(ending)
            except OSError as failure:
                self._give_up(report, failure)

    def _give_up(self, report: Report, exc: OSError) -> None:
        self._were_given_up = True
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
    if isinstance(exc, KeyboardInterrupt | asyncio.CancelledError):
        return "it was interrupted"
    if isinstance(exc, click.Abort):
        return "nobody agreed to it after the pilot"
    return f"an error ended it ({exc if isinstance(exc, RagtraceError) else type(exc).__name__})"


def _written(value: object) -> str:
    if isinstance(value, SamplingPlan):
        return "of a file"
    if isinstance(value, tuple):
        value = ", ".join("=".join(each) if isinstance(each, tuple) else str(each) for each in value)
    return "" if value is True else shortened(str(value), _MOST_WRITTEN)


def _passing(metric: Metric) -> str:
    name = metric.name if metric.profile == "ragtrace" else f"{metric.name}.{metric.profile}"
    return f"{name} (pass when {pass_condition(metric)})"
