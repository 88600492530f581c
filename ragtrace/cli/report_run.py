"""One run of `ragtrace report` or `ragtrace compare`: reads the answers, and shows figures in 80 columns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.answer_sources import (
    BACK_ENDS,
    SearchProgress,
    find_answers,
    holds_report,
    open_source,
    parse_address,
)
from ragtrace.answers.index import AnswerIndex, open_index
from ragtrace.answers.port import AnswerFilter, AnswerSource, TrafficScope
from ragtrace.answers.rows import read_line, report_lines
from ragtrace.answers.summary import AnswerKey, AnswerSummary, ScreenedAnswer
from ragtrace.backends import holds_traces
from ragtrace.cli.options import DEFAULT_SINCE, Moment, RangeOptions, access, needs_extra
from ragtrace.cli.render import (
    many,
    one_line,
    open_console,
    print_indented,
    print_json,
    printable,
    shortened,
    talk,
    utc,
)
from ragtrace.cli.report import ComparedOptions, CompareOutput, FigureOptions, ReportOutputOptions
from ragtrace.errors import ConfigError, InputError, RagtraceError
from ragtrace.files import replace_file
from ragtrace.metrics.judge_card import read_calibration
from ragtrace.model import Label, VerdictLabel
from ragtrace.process import SystemClock
from ragtrace.quality import (
    AnswerCollector,
    GroupFigures,
    LedgerCoverage,
    MeasuredJudge,
    MetricFigures,
    QualityReport,
    ReportRequest,
    ReviewedPairs,
    quality_report,
    report_as_json,
    source_of,
)
from ragtrace.quality.compared import (
    comparison_as_json,
    comparison_as_markdown,
    render_comparison,
)
from ragtrace.quality.comparing import (
    ComparedAnswer,
    ComparedSide,
    VersionComparison,
    changed_claims,
    claims_of,
    compare,
    newest_answers,
)
from ragtrace.quality.report import group_of, is_judge
from ragtrace.quality.wording import (
    ABSENT,
    below,
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
from ragtrace.transcripts import Transcripts

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

    @classmethod
    def of(cls, place: RangeOptions, source: str | None) -> Times:
        """Return the range that the options name.

        Raises:
            ConfigError: it is empty.
        """
        is_file, now_ns = _is_file(source), SystemClock().now_ns()
        since = place.since or (None if is_file else Moment(DEFAULT_SINCE))
        since_ns = since.at(now_ns) if since else None
        until_ns = place.until.at(now_ns) if place.until else now_ns
        if since_ns is not None and since_ns >= until_ns:
            raise ConfigError(f"--since {since} is not before --until {place.until or 'now'}")
        return cls(now_ns=now_ns, since_ns=since_ns, until_ns=until_ns)


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
        since_ns=times.since_ns or 0,
        until_ns=times.now_ns + _DAY_NS,
        service=service,
        access=given,
        on_progress=keep,
    ):
        yield summary
    notices.extend(last[0].notices if last else ())


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
    times = Times.of(place, place.source)
    report = asyncio.run(_report(place, figures, request, times))
    if output.out is not None:
        if output.out.suffix.lower() == ".html":
            from ragtrace.quality.wording import render_page

            replace_file(output.out, render_page(report))
        else:
            replace_file(output.out, _indented(report_as_json(report)))
        talk(f"report: {output.out}")
    if output.as_json:
        print_json(report_as_json(report))
    else:
        print_report(report)


def _request(figures: FigureOptions) -> ReportRequest:
    return ReportRequest(
        by=figures.by,
        metrics=figures.metrics,
        judge=figures.judge,
        cheap=figures.cheap,
        measured=_measured(figures.calibration) if figures.calibration else None,
    )


def _measured(path: Path) -> MeasuredJudge:
    calibration = read_calibration(path)
    errors = calibration.measured_on.answer_errors
    if errors is None:
        raise ConfigError(
            f"the calibration {str(path)!r} does not say how often whole answers are judged right: an earlier"
            " version wrote it, or it moves a threshold; measure again with `ragtrace calibrate --save`"
        )
    return MeasuredJudge(name=f"{calibration.provider}:{calibration.model}", errors=errors)


async def _report(
    options: RangeOptions, figures: FigureOptions, request: ReportRequest, times: Times
) -> QualityReport:
    async with open_place(options, options.source, times) as place:
        scope = TrafficScope(since_ns=times.since_ns, until_ns=times.until_ns, service=options.service)
        has_screen = place.screened is not None
        found = request.collector(joins_screen=has_screen)
        notices = place.notices + await _collect(place.index, scope, found)
        if place.screened is not None and request.cheap is None:
            screened = await asyncio.to_thread(place.screened, times.since_ns or 0, times.until_ns)
            found.add_screened(one for one in screened if options.service in (None, one.service))
        if request.by == "source":
            notices.append(await _collect_sources(place, scope, found))
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
            pairs=await _reviewed(place.index, scope, figures.reviews, request) if figures.reviews else None,
            ledger=LedgerCoverage.of(await asyncio.to_thread(place.states)) if place.states else None,
            notices=notices,
        )


async def _collect(index: AnswerIndex, scope: TrafficScope, found: AnswerCollector) -> list[str]:
    number = 0
    async for answer in index.every(AnswerFilter(scope=scope)):
        if number == MOST_ANSWERS:
            return [f"only the newest {MOST_ANSWERS:,} evaluations were read: choose a later --since"]
        number += 1
        found.add(answer)
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
    is_all = not has_more and len(keys) < _MOST_OPENED
    total = f"all {len(keys):,}" if is_all else f"{len(keys):,} drawn at random"
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


def _indented(value: Mapping[str, object]) -> str:
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
            _group(console, group, f"{(report.by or '').replace('_', ' ')} {one_line(group.name)}")
        if more := left_out(report):
            print_indented(console, 0, more, style="dim")
        print_indented(console, 0, _legend(report), style="dim")
    for said in (
        report.measured and f"Calibration: {measured(report.measured)}.",
        report.reviewed and f"{reviewed(report.reviewed)}.",
        report.disputes.of and f"{disputes(report.disputes)}.",
        report.ledger and f"{ledger(report.ledger)}.",
        report.effort and effort(report.effort),
    ):
        if said:
            console.print()
            print_indented(console, 0, said)
    if report.notices:
        console.print()
        console.print("Note", style="bold")
    for notice in report.notices:
        print_indented(console, 2, sentence(notice))


def _group(console: Console, group: GroupFigures, title: str) -> None:
    claims = f", {unjudged_claims(group)}" if group.claims else ""
    said = f"{shortened(title, 60)}: {many(group.answers, 'answer')}{claims}"
    print_indented(console, 0, said, style="bold")
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


_OPENED: Final = 20
"""So many changed answers of a store or back end are opened for their claims."""
_SQLITE: Final = b"SQLite format 3\0"


def run_compare(names: tuple[str, str], compared: ComparedOptions, output: CompareOutput) -> int:
    """Compare, show it, and return the exit code.

    Raises:
        InputError: one cannot be read, or there is nothing to compare.
        ConfigError: an option or the configuration is wrong.
    """
    found = asyncio.run(_compared(names, compared))
    if not found.metrics:
        wanted = f" of {', '.join(compared.metrics)}" if compared.metrics else ""
        raise InputError("; ".join((f"A and B share no metric{wanted} to compare", *found.notices)))
    gates = [verdict for gate in output.gates for verdict in gate.check(found)]
    if output.out is not None:
        match output.out.suffix.lower():
            case ".html":
                text = render_comparison(found, gates)
            case ".md":
                text = comparison_as_markdown(found, gates)
            case _:
                text = _indented(comparison_as_json(found, gates))
        replace_file(output.out, text)
        talk(f"comparison: {output.out}")
    if output.as_json:
        print_json(comparison_as_json(found, gates))
    else:
        print_comparison(found)
    for gate in gates:
        talk(f"{gate.outcome}: {gate.said}")
    return int(any(gate.fails for gate in gates))


@dataclass(slots=True, kw_only=True)
class _Read:
    """The answers of a source."""

    name: str
    answers: list[ComparedAnswer] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    source: AnswerSource | None = None
    """Opens them, if they have no claims."""


async def _compared(names: tuple[str, str], compared: ComparedOptions) -> VersionComparison:
    are_groups = compared.place.source is not None or not any(map(_is_source, names))
    if are_groups and compared.by is None:
        if compared.place.source is not None:
            raise click.UsageError("--from needs --by: A and B are groups of what?")
        raise InputError(
            f"there is no file {names[0]!r}: name files or sources; to compare two groups of a source, add"
            " --by, such as --by prompt_version"
        )
    async with AsyncExitStack() as opened:
        if are_groups:
            read = await _read(compared.place.source, compared, opened)
            sides = (
                _group_named(read, names[0], compared.by or ""),
                _group_named(read, names[1], compared.by or ""),
            )
            by, sources = None, (read, read)
        else:
            sources = (await _read(names[0], compared, opened), await _read(names[1], compared, opened))
            first, second = (
                ComparedSide(name=each.name, answers=each.answers, notices=tuple(each.notices))
                for each in sources
            )
            sides, by = (first, second), compared.by
        return await _with_claims(compare(*sides, by=by), sides, sources)


def _is_source(name: str) -> bool:
    return _is_address(name) or name.startswith("file:") or Path(name.partition("#")[0]).exists()


def _group_named(read: _Read, name: str, by: str) -> ComparedSide:
    """Return the answers of one group.

    Raises:
        InputError: there are none; the message names the groups that there are.
    """
    values = [group_of(each.summary, by) for each in read.answers]
    found = [each for each, value in zip(read.answers, values, strict=True) if value == name]
    if not found:
        there = ", ".join(sorted(set(values))[:20]) or "no answer at all"
        raise InputError(
            f"{read.name} has no answer with the {by.replace('_', ' ')} {name!r}; it has {there}"
        )
    return ComparedSide(name=name, answers=found, notices=tuple(read.notices))


async def _read(name: str | None, compared: ComparedOptions, opened: AsyncExitStack) -> _Read:
    options = compared.place
    read = None if name is None or _is_address(name) else await asyncio.to_thread(_of_file, name)
    times = Times.of(options, name and name.partition("#")[0])
    if read is None:
        place = await opened.enter_async_context(open_place(options, name, times))
        read = _Read(name=place.name, source=place.source)
        scope = TrafficScope(since_ns=times.since_ns, until_ns=times.until_ns, service=options.service)
        read.answers, has_more = await newest_answers(place.index, scope, most=MOST_ANSWERS)
        if has_more:
            read.notices.append(f"only the newest {MOST_ANSWERS:,} evaluations were read")
        read.notices += place.notices
    read.answers = list(_chosen(read.answers, compared, times))
    return read


def _of_file(name: str) -> _Read | None:
    """Read transcripts or judged answers; ``None`` if the file has traces.

    Raises:
        InputError: it has neither, or cannot be read.
    """
    path, _, evaluator = name.removeprefix("file:").partition("#")
    file = Path(path)
    if file.is_file() and _begins_as_database(file):
        with Transcripts(file, must_exist=True) as transcripts:
            info = transcripts.evaluator(evaluator or None)
            found = [ComparedAnswer.of_judged(each) for each in transcripts.of(info)]
        return _Read(name=f"{file.name}#{info.name}", answers=found)
    if file.is_file() and holds_report(file):
        found = [ComparedAnswer.of_judged(read_line(line).judged) for line in report_lines(file)]
        return _Read(name=path, answers=found)
    if not file.exists():
        raise InputError(f"there is no file {path!r}")
    if file.is_file() and not holds_traces(path):
        raise InputError(
            f"{path!r} has no judged answers: `ragtrace evaluate {path} --out judged.jsonl` judges records"
        )
    return None


def _is_address(name: str) -> bool:
    return name.partition(":")[0] in ("store", "otlp-file", *BACK_ENDS)


def _begins_as_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _chosen(
    answers: Iterable[ComparedAnswer], compared: ComparedOptions, times: Times
) -> Iterable[ComparedAnswer]:
    service = compared.place.service
    for each in answers:
        summary = each.summary
        is_early = times.since_ns is not None and summary.time_ns < times.since_ns
        if is_early or (service is not None and summary.service != service):
            continue
        if compared.metrics:
            metrics = tuple(one for one in summary.metrics if one.name in compared.metrics)
            each = each._replace(summary=replace(summary, metrics=metrics))
        yield each


async def _with_claims(
    found: VersionComparison, sides: tuple[ComparedSide, ComparedSide], sources: tuple[_Read, _Read]
) -> VersionComparison:
    """Open the largest changes of places that keep texts elsewhere, and add the claims that changed."""
    if all(read.source is None for read in sources):
        return found
    known = [{each.summary.key: each for each in side.answers} for side in sides]
    changes = list(found.changes)
    for at, one in enumerate(changes[:_OPENED]):
        claims = [
            dict(answers[key].claims.get(one.metric, {}))
            if read.source is None
            else await _claims(read.source, key, one.metric)
            for answers, read, key in zip(known, sources, one.keys, strict=True)
        ]
        changes[at] = replace(one, claims=changed_claims(claims[0], claims[1]))
    return replace(found, changes=tuple(changes))


async def _claims(source: AnswerSource, key: AnswerKey, metric: str) -> dict[str, VerdictLabel]:
    try:
        opened = await source.open(key)
    except RagtraceError:
        return {}  # its texts are gone: the scores are told all the same
    return dict(claims_of(opened.versions[0].judged.evaluation).get(metric, {}))


def print_comparison(found: VersionComparison) -> None:
    """Print the comparison as its comment says it, with tables as a terminal draws them."""
    from rich.markdown import Markdown

    text = comparison_as_markdown(found).replace("@\u200b", "@")  # nobody is mentioned in a terminal
    open_console().print(Markdown(printable(text)))
