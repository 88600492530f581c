"""What a back-fill tells: how far it is, each answer as it is judged, and in the end what became of all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ragtrace.backfill import BackfillReport, DryRun
from ragtrace.backfill.report import RunCounts
from ragtrace.budget import Prices
from ragtrace.cli.backfill_cost import estimate_json, estimate_lines
from ragtrace.cli.outcomes import OutcomeTable
from ragtrace.cli.render import by_kind, one_line, open_console, print_json, share_bar, talk, utc
from ragtrace.errors import ReadError
from ragtrace.model import JudgedAnswer
from ragtrace.ports import Metric, TraceQuery, TraceReader

if TYPE_CHECKING:
    from rich.console import Console


_MOST_SHOWN: Final = 20
_MOST_NAMED: Final = 10
_REFRESH_HZ: Final = 4
_WIDEST: Final = 20
_UNITS: Final = ((3_600.0, "h"), (60.0, "min"), (1.0, "s"))

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


async def report_not_found(reader: TraceReader, query: TraceQuery | None, report: BackfillReport) -> None:
    """Say on stderr that a search found nothing, if so: where it looked, and whether its service is known."""
    if query is not None and not (report.traces or report.not_found or report.unread or report.is_stopped):
        talk(await _message(reader, query))


async def _message(reader: TraceReader, query: TraceQuery) -> str:
    found_none = f"no trace was found from {utc(query.since_ns)} to {utc(query.until_ns)}"
    names = await _services(reader) if query.service is not None else ()
    if not names or query.service in names:
        return f"{found_none}: --since searches further back, --min-age 0s includes the newest traces"
    others = ", ".join(map(one_line, sorted(names)[:_MOST_NAMED]))
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f"{found_none}: there is no service {query.service!r}, but {others}{more}"


async def _services(reader: TraceReader) -> tuple[str, ...]:
    """Return the services that the back end knows, if it tells them."""
    ask = getattr(reader, "services", None)
    try:
        return tuple(await ask()) if ask is not None else ()
    except ReadError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What the line tells."""

    done: int
    """Answers that are judged, failed, or had nothing to judge."""
    total: int | None
    """How many there will be, if it is known."""
    share: float | None
    """How much of the source is done, from 0 to 1, if it is known."""
    seconds: float
    """Since the run began."""
    spent: str
    """Money or tokens, in words; empty where nothing is spent."""
    waiting_for: int = 0
    """Live answers that go first."""

    @property
    def share_done(self) -> float | None:
        """How much of the run is done, from 0 to 1, if anything tells."""
        share = self.done / self.total if self.total else self.share
        return None if share is None else min(1.0, max(0.0, share))


def bar_line(gauge: Gauge, *, width: int) -> str:
    """Write the line, in no more than so many columns: what matters least is left out first."""
    share = gauge.share_done
    told = [_counted(gauge), _pace(gauge), gauge.spent, _left(gauge.seconds, share)]
    text = " · ".join(filter(None, told))
    if share is None:
        return text[:width]
    room = min(_WIDEST, width - len(text) - len("100%  "))
    drawn = f"{share_bar(share, room)} " if room >= _WIDEST // 4 else ""
    return f"{share:4.0%} {drawn}{text}"[:width]


class ProgressBar:
    """Shows how far a run is, on a terminal; everywhere else it shows nothing."""

    def __init__(self, *, spent: Callable[[], str], waiting_for: Callable[[], int], is_wanted: bool) -> None:
        self._spent = spent
        self._waiting_for = waiting_for
        self._console = open_console(stderr=True) if is_wanted and sys.stderr.isatty() else None
        self._ledger = RunCounts()
        self._began = time.monotonic()
        self.total: int | None = None
        """Answers to judge, if it is known."""
        self.share: Callable[[RunCounts], float | None] = lambda _: None
        """How much of the source is done."""

    def watch(self, ledger: RunCounts) -> None:
        """Look at these counts from now on."""
        self._ledger = ledger

    def console(self) -> Console:
        """Return where tables are printed: above the line, where both are on the terminal.

        Raises:
            ConfigError: rich is not installed.
        """
        is_above = self._console is not None and sys.stdout.isatty()
        return self._console if is_above and self._console else open_console()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line until the block ends."""
        if self._console is None:
            yield
            return
        from rich.live import Live
        from rich.text import Text

        self._began, width = time.monotonic(), self._console.width - 1
        line = Live(
            console=self._console,
            get_renderable=lambda: Text(bar_line(self._gauge(), width=width), no_wrap=True),
            refresh_per_second=_REFRESH_HZ,
            transient=True,
            redirect_stdout=False,
        )
        with line:
            yield

    def _gauge(self) -> Gauge:
        ledger = self._ledger
        return Gauge(
            done=ledger.judged + sum([*ledger.failed.values(), *ledger.ineligible.values()]),
            total=self.total,
            share=self.share(ledger),
            seconds=time.monotonic() - self._began,
            spent=self._spent(),
            waiting_for=self._waiting_for(),
        )


def share_of(reader: TraceReader, query: TraceQuery | None) -> Callable[[RunCounts], float | None]:
    """Return what tells how much of a source is done: by time in a search, else by what is read."""
    if query is None:
        return lambda _: getattr(reader, "share_read", None)
    since_ns, length_ns = query.since_ns, query.until_ns - query.since_ns
    return lambda ledger: max(0, ledger.reached_ns - since_ns) / length_ns


def _counted(gauge: Gauge) -> str:
    return f"{gauge.done:,} of {gauge.total:,}" if gauge.total else f"{gauge.done:,} judged"


def _pace(gauge: Gauge) -> str:
    if gauge.waiting_for:
        return f"waiting for {gauge.waiting_for:,} live"
    return f"{gauge.done / gauge.seconds:.1f}/s" if gauge.done and gauge.seconds else ""


def _left(seconds: float, share: float | None) -> str:
    """Say how long it will take as it goes, where that can be said."""
    if not share or share >= 1:
        return ""
    left_s = seconds * (1 - share) / share
    unit_s, unit = next((each for each in _UNITS if left_s >= each[0]), _UNITS[-1])
    return f"{left_s / unit_s:.0f} {unit} left"
