"""One run of `ragtrace compare`: reads both sides, compares them, shows it in 80 columns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.answer_sources import BACK_ENDS, holds_judged, read_judged
from ragtrace.answers.port import AnswerFilter, AnswerSource, TrafficScope
from ragtrace.answers.summary import AnswerKey
from ragtrace.backends import holds_traces
from ragtrace.cli.compare import ComparedOptions, CompareOutput
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json, talk
from ragtrace.cli.report_run import MOST_ANSWERS, Times, open_place
from ragtrace.errors import InputError, RagtraceError
from ragtrace.files import replace_file
from ragtrace.model import VerdictLabel
from ragtrace.quality.compared import (
    SHOWN,
    claim_labels,
    comparison_as_json,
    comparison_as_markdown,
    counted,
    matched,
    render_comparison,
    rows,
    scores,
    title,
)
from ragtrace.quality.comparing import (
    DIMENSIONS,
    NONE,
    ComparedAnswer,
    ComparedSide,
    MetricComparison,
    VersionComparison,
    changed_claims,
    claims_of,
    compare,
)
from ragtrace.quality.wording import sentence
from ragtrace.transcripts import Transcripts

if TYPE_CHECKING:
    from rich.console import Console

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
                text = f"{json.dumps(comparison_as_json(found, gates), indent=2, allow_nan=False)}\n"
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
            sides = (_group(read, names[0], compared.by or ""), _group(read, names[1], compared.by or ""))
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


def _group(read: _Read, name: str, by: str) -> ComparedSide:
    """Return the answers of one group.

    Raises:
        InputError: there are none; the message names the groups that there are.
    """
    values = [getattr(each.summary, DIMENSIONS[by]) or NONE for each in read.answers]
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
        async for summary in place.index.every(AnswerFilter(scope=scope)):
            if len(read.answers) == MOST_ANSWERS:
                read.notices.append(f"only the newest {MOST_ANSWERS:,} evaluations were read")
                break
            read.answers.append(ComparedAnswer.of_summary(summary))
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
    if file.is_file() and holds_judged(file):
        return _Read(name=path, answers=[ComparedAnswer.of_judged(each) for each in read_judged(file)])
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
        metrics = [one for one in summary.metrics if not compared.metrics or one.name in compared.metrics]
        yield each._replace(summary=replace(summary, metrics=tuple(metrics)))


async def _with_claims(
    found: VersionComparison, sides: tuple[ComparedSide, ComparedSide], sources: tuple[_Read, _Read]
) -> VersionComparison:
    """Open the largest changes of places that keep texts elsewhere, and add the claims that changed."""
    if all(read.source is None for read in sources):
        return found
    known = [{each.summary.key: each for each in side.answers} for side in sides]
    changes = list(found.changes)
    for at, change in enumerate(changes[:_OPENED]):
        claims = [
            dict(answers[key].claims.get(change.metric, {}))
            if read.source is None
            else await _claims(read.source, key, change.metric)
            for answers, read, key in zip(known, sources, change.keys, strict=True)
        ]
        changes[at] = replace(change, claims=changed_claims(claims[0], claims[1]))
    return replace(found, changes=tuple(changes))


async def _claims(source: AnswerSource, key: AnswerKey, metric: str) -> dict[str, VerdictLabel]:
    try:
        opened = await source.open(key)
    except RagtraceError:
        return {}  # its texts are gone: the scores are told all the same
    return dict(claims_of(opened.versions[0].judged.evaluation).get(metric, {}))


def print_comparison(found: VersionComparison) -> None:
    """Print the differences, the answers that changed most, and what could not be compared."""
    console = open_console()
    for letter, name, number, judges in zip("AB", found.names, found.answers, found.judges, strict=True):
        by = f", judged by {', '.join(judge or NONE for judge in judges)}" if judges else ""
        console.print(f"{letter}  {one_line(name)}", soft_wrap=True, style="bold")
        print_indented(console, 3, f"{many(number, 'answer')}{one_line(by)}")
    print_indented(console, 0, matched(found))
    for group, metrics in found.groups.items():
        for metric in metrics:
            console.print()
            _print_metric(console, metric, f"{group}: " if group else "")
    flips = sum(change.is_flip for change in found.changes)
    if found.changes:
        more = f"; the {SHOWN} largest:" if len(found.changes) > SHOWN else ":"
        console.print(f"\nchanged: {len(found.changes):,}, of which {flips:,} turn{more}")
    for change in found.changes[:SHOWN]:
        console.print(f"  {one_line(title(change))}", soft_wrap=True)
        if change.question:
            print_indented(console, 4, one_line(change.question))
        print_indented(console, 4, f"{change.metric}  {scores(change)}")
        for claim in change.claims:
            print_indented(console, 6, f"{claim_labels(claim)}: {one_line(claim.text)}")
    if found.notices:
        console.print("\nNote", style="bold")
    for notice in found.notices:
        print_indented(console, 2, one_line(sentence(notice)))


def _print_metric(console: Console, metric: MetricComparison, group: str) -> None:
    console.print(one_line(f"{group}{metric.metric}"), soft_wrap=True, style="bold")
    console.print(f"{'':<20}{'A':>8}{'B':>8}{'B - A':>9}   95 % interval", style="dim")
    for what, *cells in rows(metric):
        first, second, change, interval, verdict = cells
        console.print(f"{f'  {what}':<20}{first:>8}{second:>8}{change:>9}   {interval:<17}{verdict}")
    print_indented(console, 2, counted(metric))
