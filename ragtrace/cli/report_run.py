"""One run of `ragtrace report`: reads the answers, makes the estimates, shows them in 80 columns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragtrace.answer_sources import BACK_ENDS, SearchProgress, find_answers, open_source, parse_address
from ragtrace.answers.index import AnswerIndex, open_index
from ragtrace.answers.port import AnswerFilter, AnswerSource, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary, ScreenedAnswer
from ragtrace.cli.options import DEFAULT_SINCE, Moment, RangeOptions, access, needs_extra
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json, shortened, talk, utc
from ragtrace.cli.report import FigureOptions, ReportOutputOptions
from ragtrace.clock import SystemClock
from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.files import replace_file
from ragtrace.metrics.judge_card import read_calibration
from ragtrace.model import Label
from ragtrace.quality import (
    AnswerCollector,
    GroupFigures,
    LedgerCoverage,
    MeasuredJudge,
    MetricFigures,
    QualityReport,
    ReportDimension,
    ReportRequest,
    ReviewedPairs,
    quality_report,
    report_as_json,
    source_of,
)
from ragtrace.quality.collecting import is_judge
from ragtrace.quality.wording import (
    ABSENT,
    below,
    change,
    compared,
    disputes,
    effort,
    ledger,
    left_out,
    measured,
    rate,
    reviewed,
    score,
    sentence,
    shares,
    unjudged_claims,
)
from ragtrace.reviews import ReviewFile, random_prefix
from ragtrace.stats import CountedShare, JudgeErrors

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.backends.http_api import ConnectionSettings
    from ragtrace_collector.config import CollectorConfig


_STORE: Final = "store:"
_DAY_NS: Final = 86_400 * 10**9
_AT_ONCE: Final = 500
MOST_ANSWERS: Final = 1_000_000
"""So many evaluations are read, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The time range of the answers."""

    now_ns: int
    since_ns: int | None
    until_ns: int
    baseline_ns: int | None

    @classmethod
    def of(cls, place: RangeOptions, source: str | None, *, baseline: timedelta | None = None) -> Times:
        """Return the range that the options name.

        Raises:
            ConfigError: it is empty, or the baseline has no end.
        """
        is_file, now_ns = _is_file(source), SystemClock().now_ns()
        since = place.since or (None if is_file else Moment(DEFAULT_SINCE))
        since_ns = since.at(now_ns) if since else None
        until_ns = place.until.at(now_ns) if place.until else now_ns
        if since_ns is not None and since_ns >= until_ns:
            raise ConfigError(f"--since {since} is not before --until {place.until or 'now'}")
        if baseline is not None and since_ns is None:
            raise ConfigError("--baseline needs --since: where does it end?")
        length_ns = int(baseline.total_seconds() * 1e9) if baseline else 0
        baseline_ns = since_ns - length_ns if since_ns is not None and length_ns else None
        return cls(now_ns=now_ns, since_ns=since_ns, until_ns=until_ns, baseline_ns=baseline_ns)

    @property
    def first_ns(self) -> int | None:
        """Where the reading begins."""
        return self.since_ns if self.baseline_ns is None else self.baseline_ns


def _is_file(source: str | None) -> bool:
    if source is None or source.startswith(_STORE):
        return False
    return parse_address(source).kind not in BACK_ENDS


@dataclass(slots=True, kw_only=True)
class Place:
    """Opened answers, and what is missing among them."""

    name: str
    index: AnswerIndex
    source: AnswerSource
    notices: list[str] = field(default_factory=list)
    states: Callable[[], Mapping[str, int]] | None = None
    """Counts all answers that a collector ever saw, by their state in its ledger."""
    screened: Callable[[int, int], Sequence[ScreenedAnswer]] | None = None
    """Returns the answers between two times that a screen looked at, judged or not."""


@asynccontextmanager
async def open_place(options: RangeOptions, source: str | None, times: Times) -> AsyncIterator[Place]:
    """Open the answers of a source: a collector's store as it is, others in an index of their own.

    Raises:
        ConfigError: the configuration cannot be used, or the source has another form.
        ReadError: it cannot be read.
    """
    config = options.config.read(only=("extract", "store", "index"), needs_secrets=False)
    if source is None or source.startswith(_STORE):
        async with _opened_store(config, (source or "").removeprefix(_STORE)) as place:
            yield place
        return
    given = access(options.headers)
    answers = open_source(source, access=given, rules=config.extract.opened())
    async with aclosing(answers), aclosing(open_index()) as index:
        place = Place(name=answers.name, index=index, source=answers)
        waiting: list[AnswerSummary] = []
        async for summary in _searched(source, options.service, times, given, place.notices):
            waiting.append(summary)
            if len(waiting) == _AT_ONCE:
                await index.add(waiting)
                waiting.clear()
        await index.add(waiting)
        yield place


@asynccontextmanager
async def _opened_store(configured: CollectorConfig, store: str) -> AsyncIterator[Place]:
    """Open the answers of the named store, else of the configured or the default one."""
    with needs_extra("collector"):
        from ragtrace_collector.service.page import place_over
        from ragtrace_collector.store.ledger import read_screened, take_stock
        from ragtrace_collector.store.open import open_reading, require_store

    section = configured.store.at(store) if store else configured.store
    require_store(section)
    found = open_reading(section)
    async with place_over(found, configured) as opened:

        def states() -> Mapping[str, int]:
            return take_stock(found.database).by(lambda account: account.state)

        def screened(since_ns: int, until_ns: int) -> Sequence[ScreenedAnswer]:
            return read_screened(found.database, since_ns, until_ns)

        yield Place(
            name=found.name, index=opened.index, source=opened.source, states=states, screened=screened
        )


async def _searched(
    source: str, service: str | None, times: Times, given: ConnectionSettings, notices: list[str]
) -> AsyncIterator[AnswerSummary]:
    """Yield the answers of a back end or file; those of a clock that is ahead, too."""
    last: list[SearchProgress] = []

    def keep(progress: SearchProgress) -> None:
        last[:] = [progress]

    async for summary in find_answers(
        source,
        since_ns=times.first_ns or 0,
        until_ns=times.now_ns + _DAY_NS,
        service=service,
        access=given,
        on_progress=keep,
    ):
        yield summary
    notices.extend(last[0].notices if last else ())


_DROP: Final = 0.05
"""Of the pass rate: the report says how many answers it takes to detect it."""
_OPENED_AT_ONCE: Final = 8
_MOST_OPENED: Final = 500
_MOST_REVIEWED: Final = 5_000


def run_report(place: RangeOptions, figures: FigureOptions, output: ReportOutputOptions) -> None:
    """Make the report and show it.

    Raises:
        ConfigError: an option, the configuration or the calibration cannot be used.
        InputError: there is no such store.
        ReadError: the place cannot be read.
    """
    request = _request(figures)
    times = Times.of(place, place.source, baseline=figures.baseline)
    report = asyncio.run(_report(place, figures, request, times))
    if output.out is not None:
        _write(output.out, report)
        talk(f"report: {output.out}")
    if output.as_json:
        print_json(report_as_json(report))
    else:
        print_report(report)


def _request(figures: FigureOptions) -> ReportRequest:
    return ReportRequest(
        by=ReportDimension(figures.by) if figures.by else None,
        metrics=figures.metrics,
        judge=figures.judge,
        cheap=figures.cheap,
        measured=_measured(figures.calibration) if figures.calibration else None,
        drop=_DROP,
    )


def _measured(path: Path) -> MeasuredJudge:
    calibration = read_calibration(path)
    errors = calibration.measured_on.answer_errors
    if errors is None:
        raise ConfigError(
            f"the calibration {str(path)!r} does not say how often whole answers are judged right: an earlier"
            " version wrote it, or it moves a threshold; measure again with `ragtrace calibrate --save`"
        )
    return MeasuredJudge(
        name=f"{calibration.provider}:{calibration.model}",
        errors=JudgeErrors(
            sensitivity=CountedShare(hits=errors.sensitivity.right, of=errors.sensitivity.of),
            specificity=CountedShare(hits=errors.specificity.right, of=errors.specificity.of),
        ),
    )


async def _report(
    options: RangeOptions, figures: FigureOptions, request: ReportRequest, times: Times
) -> QualityReport:
    async with open_place(options, options.source, times) as place:
        scope = TrafficScope(since_ns=times.first_ns, until_ns=times.until_ns, service=options.service)
        has_screen = place.screened is not None
        found, baseline = request.collector(joins_screen=has_screen), request.collector()
        notices = place.notices + await _collect(place.index, scope, times, found, baseline)
        if place.screened is not None and request.cheap is None:
            screened = await asyncio.to_thread(place.screened, times.since_ns or 0, times.until_ns)
            found.add_screened(one for one in screened if options.service in (None, one.service))
        within = TrafficScope(since_ns=times.since_ns, until_ns=times.until_ns, service=options.service)
        if request.by is ReportDimension.SOURCE:
            notices.append(await _collect_sources(place, within, found))
        if ahead := await _ahead(place.index, options, times):
            notices.append(
                f"{many(ahead, 'answer')} with a date after this moment left out: the clock of what gave the"
                " answer is ahead"
            )
        return quality_report(
            request,
            found,
            place=place.name,
            since_ns=times.since_ns,
            until_ns=times.until_ns,
            baseline=baseline if times.baseline_ns is not None else None,
            baseline_ns=times.baseline_ns,
            pairs=await _reviewed(place.index, within, figures.reviews, request) if figures.reviews else None,
            ledger=LedgerCoverage.of(await asyncio.to_thread(place.states)) if place.states else None,
            notices=notices,
        )


async def _collect(
    index: AnswerIndex,
    scope: TrafficScope,
    times: Times,
    found: AnswerCollector,
    baseline: AnswerCollector,
) -> list[str]:
    number = 0
    async for answer in index.every(AnswerFilter(scope=scope)):
        if number == MOST_ANSWERS:
            return [f"only the newest {MOST_ANSWERS:,} evaluations were read: choose a later --since"]
        number += 1
        is_early = times.since_ns is not None and answer.time_ns < times.since_ns
        (baseline if is_early else found).add(answer)
    return []


async def _ahead(index: AnswerIndex, options: RangeOptions, times: Times) -> int:
    """Count answers dated after now, which no range reaches."""
    scope = TrafficScope(since_ns=times.now_ns + 1, service=options.service)
    number = 0
    async for _ in index.every(AnswerFilter(scope=scope)):
        number += 1
        if number == MOST_ANSWERS:
            break
    return number


async def _collect_sources(place: Place, scope: TrafficScope, found: AnswerCollector) -> str:
    """Open answers drawn at random, and put them into the groups of their sources."""
    drawn: dict[AnswerKey, list[AnswerSummary]] = {}
    after, has_more = -1.0, True
    while has_more and len(drawn) < _MOST_OPENED:
        batch = await place.index.random_order(scope, after=after, limit=_AT_ONCE)
        has_more = len(batch) == _AT_ONCE
        for position, answer in batch:
            after = position
            if answer.key in drawn or len(drawn) < _MOST_OPENED:
                drawn.setdefault(answer.key, []).append(answer)
    read = 0
    keys = list(drawn)
    for first in range(0, len(keys), _OPENED_AT_ONCE):
        some = keys[first : first + _OPENED_AT_ONCE]
        for key, sources in zip(
            some, await asyncio.gather(*(_sources(place, key) for key in some)), strict=True
        ):
            if sources is not None:
                read += 1
                for answer in drawn[key]:
                    found.add_sources(answer, sources)
    total = (
        f"all {len(keys):,}"
        if not has_more and len(keys) < _MOST_OPENED
        else f"{len(keys):,} drawn at random"
    )
    gone = f"; {len(keys) - read:,} cannot be opened any more" if read < len(keys) else ""
    return f"sources are those of {read:,} opened answers, of {total}{gone}"


async def _sources(place: Place, key: AnswerKey) -> list[str] | None:
    try:
        opened = await place.source.open(key)
    except RagtraceError:
        return None  # counted as one that cannot be opened
    return [name for chunk in opened.record.chunks if (name := source_of(chunk))]


async def _reviewed(
    index: AnswerIndex, scope: TrafficScope, path: Path, request: ReportRequest
) -> ReviewedPairs:
    """Return what people said of the answers of the random order, up to the first that nobody reviewed."""
    async with aclosing(ReviewFile(path)) as file:
        reviews, gone = await file.reviewed(tenant=None), await file.passed_over(tenant=None)
    in_order: list[tuple[float, AnswerSummary]] = []
    after, has_more = -1.0, bool(reviews)
    while has_more and len(in_order) < _MOST_REVIEWED:
        batch = await index.random_order(scope, after=after, limit=_AT_ONCE)
        has_more = len(batch) == _AT_ONCE
        for position, answer in batch:
            after = position
            if _is_asked(answer, request):
                in_order.append((position, answer))
    return ReviewedPairs(
        random_prefix(in_order, reviews, gone=gone), random_prefix(in_order, reviews, gone=gone, scores=True)
    )


def _is_asked(answer: AnswerSummary, request: ReportRequest) -> bool:
    """Whether the random queue of the page asks about an answer, and the report is about its judge."""
    is_decided = answer.label in (Label.PASS, Label.FAIL) and answer.claims.total > 0
    return is_decided and (request.judge is None or is_judge(answer.judge, request.judge))


def _write(path: Path, report: QualityReport) -> None:
    if path.suffix.lower() == ".html":
        from ragtrace.quality.page import render_page

        text = render_page(report)
    else:
        text = _indented(report_as_json(report))
    replace_file(path, text)


def _indented(value: Mapping[str, object]) -> str:
    import json

    return f"{json.dumps(value, indent=2, allow_nan=False)}\n"


_WIDTHS: Final = (24, 6, 18, 14, 6, 6)
_HEAD: Final = ("", "judged", "mean [95 %]", "pass [95 %]", "median", "worst")


def print_report(report: QualityReport) -> None:
    """Print all groups, what differs, and what the numbers do not have."""
    console = open_console()
    since = "all" if report.since_ns is None else f"{utc(report.since_ns)} to"
    until = f" until {utc(report.until_ns)}" if report.since_ns is None else f" {utc(report.until_ns)}"
    print_indented(console, 0, f"{one_line(report.place)}, {since}{until}", style="bold")
    if report.whole.answers:
        console.print(_columns(*_HEAD), style="dim", soft_wrap=True)
        _group(console, report.whole, "all")
        for group in report.groups:
            _group(console, group, f"{_named(report.by)} {one_line(group.name)}")
        if more := left_out(report):
            print_indented(console, 0, more, style="dim")
        print_indented(console, 0, _legend(report), style="dim")
    _comparisons(console, report)
    if report.measured is not None:
        console.print()
        print_indented(console, 0, f"Calibration: {measured(report.measured)}.")
    if report.reviewed is not None:
        console.print()
        print_indented(console, 0, f"{reviewed(report.reviewed)}.")
    if report.disputes.of:
        console.print()
        print_indented(console, 0, f"{disputes(report.disputes)}.")
    if report.ledger is not None:
        console.print()
        print_indented(console, 0, f"{ledger(report.ledger)}.")
    if report.effort is not None:
        console.print()
        print_indented(console, 0, effort(report.effort))
    if report.notices:
        console.print()
        console.print("Note", style="bold")
    for notice in report.notices:
        print_indented(console, 2, sentence(notice))


def _named(by: ReportDimension | None) -> str:
    return "" if by is None else by.value.replace("_", " ")


def _group(console: Console, group: GroupFigures, title: str) -> None:
    said = (
        f"{many(group.answers, 'answer')}, {unjudged_claims(group)}"
        if group.claims
        else many(group.answers, "answer")
    )
    print_indented(console, 0, f"{shortened(title, 60)}: {said}", style="bold")
    for metric in group.metrics:
        console.print(_line(metric), soft_wrap=True)
        print_indented(console, 4, shares(metric), style="dim")
        for line in below(metric):
            print_indented(console, 4, line)


def _line(metric: MetricFigures) -> str:
    median, worst = (
        ABSENT if one is None else f"{one.value:.2f}" for one in (metric.median, metric.worst_tenth)
    )
    name = shortened(f"  {one_line(metric.metric)}", _WIDTHS[0] - 1)
    return _columns(name, f"{metric.judged:,}", score(metric.mean), rate(metric.passing), median, worst)


def _columns(*cells: str) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    return " ".join((first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others))).rstrip()


def _legend(report: QualityReport) -> str:
    lower = [metric.metric for metric in report.whole.metrics if metric.lower_is_better]
    worst = "worst: a tenth of the answers scores this or less"
    return f"{worst} ({', '.join(lower)}: or more)" if lower else worst


def _comparisons(console: Console, report: QualityReport) -> None:
    if report.comparisons:
        console.print()
        console.print("Differences, newer minus older", style="bold")
    for one in report.comparisons:
        print_indented(console, 2, one_line(compared(one)))
        if one.mean is None or one.passing is None:
            print_indented(console, 4, "no difference: one of them has no score")
            continue
        chance = one.passing.is_chance and one.mean.is_chance
        mean, passing = change(one.mean, is_share=False), change(one.passing, is_share=True)
        verdict = "chance alone may explain it" if chance else "more than chance"
        print_indented(console, 4, f"mean {mean}, pass rate {passing}: {verdict}")
