"""One run of `ragtrace report` or `ragtrace compare`: reads the answers, and shows figures in 80 columns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
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
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.backends import holds_traces
from ragtrace.cli.options import DEFAULT_SINCE, Moment, RangeOptions, access
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
from ragtrace.quality.report import (
    AnswerCollector,
    GroupFigures,
    LedgerCoverage,
    MeasuredJudge,
    MetricFigures,
    QualityReport,
    ReportRequest,
    ReviewedPairs,
    group_of,
    is_judge,
    quality_report,
    source_of,
)
from ragtrace.quality.wording import (
    ABSENT,
    below,
    disputes,
    effort,
    ledger,
    left_out,
    measured,
    rate,
    report_as_json,
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
        progress: list[SearchProgress] = []
        found = find_answers(
            source,
            since_ns=times.since_ns or 0,
            until_ns=times.now_ns + _DAY_NS,  # the clock of what gave an answer may be ahead
            service=options.service,
            access=given,
            on_progress=progress.append,
        )
        waiting: list[AnswerSummary] = []
        async for summary in found:
            waiting.append(summary)
            if len(waiting) == _AT_ONCE:
                await index.add(waiting)
                waiting.clear()
        await index.add(waiting)
        notices = [*progress[-1].notices] if progress else []
        yield Place(name=answers.name, index=index, source=answers, notices=notices)


@asynccontextmanager
async def _opened_store(configured: CollectorConfig, store: str) -> AsyncIterator[Place]:
    """Open the answers of the named store, else of the configured or the default one."""
    from ragtrace_collector.service.page import place_over
    from ragtrace_collector.store.ledger import take_stock
    from ragtrace_collector.store.open import open_reading, require_store

    section = configured.store.at(store) if store else configured.store
    require_store(section)
    found = open_reading(section)
    async with place_over(found, configured) as opened:

        def states() -> Mapping[str, int]:
            return take_stock(found.database).by(lambda account: account.state)

        yield Place(name=found.name, index=opened.index, source=opened.source, states=states)


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
        until_ns = times.until_ns if options.until else None  # a clock may be ahead
        scope = TrafficScope(since_ns=times.since_ns, until_ns=until_ns, service=options.service)
        found = request.collector()
        notices = place.notices + await _collect(place.index, scope, found)
        if request.by == "source":
            notices.append(await _collect_sources(place, scope, found))
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


async def _in_random_order(
    index: AnswerIndex, scope: TrafficScope
) -> AsyncIterator[tuple[float, AnswerSummary]]:
    after = -1.0
    while batch := await index.random_order(scope, after=after, limit=_AT_ONCE):
        for position, answer in batch:
            yield position, answer
        after = batch[-1][0]


async def _collect_sources(place: Place, scope: TrafficScope, found: AnswerCollector) -> str:
    """Open answers drawn at random, and put them into the groups of their sources."""
    drawn: dict[AnswerKey, list[AnswerSummary]] = {}
    async for _, answer in _in_random_order(place.index, scope):
        if len(drawn) == _MOST_OPENED and answer.key not in drawn:
            break
        drawn.setdefault(answer.key, []).append(answer)
    read = 0
    for key, answers in drawn.items():
        try:
            opened = await place.source.open(key)
        except RagtraceError:
            continue
        read += 1
        names = [name for chunk in opened.record.chunks if (name := source_of(chunk))]
        for answer in answers:
            found.add_sources(answer, names)
    return f"sources are those of {read:,} opened answers, of {len(drawn):,} drawn at random"


async def _reviewed(
    index: AnswerIndex, scope: TrafficScope, path: Path, request: ReportRequest
) -> ReviewedPairs:
    """Return what people said of the answers of the random order, up to the first that nobody reviewed."""
    async with aclosing(ReviewFile(path)) as file:
        reviews, gone = await file.reviewed(tenant=None), await file.passed_over(tenant=None)
    in_order: list[tuple[float, AnswerSummary]] = []
    async for position, answer in _in_random_order(index, scope):
        if not reviews or len(in_order) == _MOST_REVIEWED:
            break
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
