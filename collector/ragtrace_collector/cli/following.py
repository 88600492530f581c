"""Following verdicts: where they are read, in which order, and how each is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ragtrace.answers.port import AnswerFilter, SortBy, TrafficScope
from ragtrace.answers.summary import AnswerSummary, MetricSummary, metrics_of, row_of
from ragtrace.cli.options import PlaceOptions
from ragtrace.cli.outcomes import print_failures
from ragtrace.cli.render import one_line, open_console, print_indented, print_json, talk
from ragtrace.errors import ReadError
from ragtrace.model import Label, MetricResult
from ragtrace_collector.cli.places import OpenedPlace, open_place

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.answers.index import AnswerIndex
    from ragtrace.ports import Clock
    from ragtrace_collector.cli.tail import TailOptions

_POLL_S: Final = 0.5
_SEARCH_PAUSE_S: Final = 10.0
_AT_ONCE: Final = 500
_STYLES: Final = {
    Label.PASS: "green",
    Label.FAIL: "bold red",
    Label.ERROR: "bold yellow",
    Label.SKIPPED: "dim",
}
_FIRST: Final = "faithfulness"
_SERVICE_WIDTH, _NOTE_WIDTH, _NARROWEST = 11, 9, 80
_INDENT: Final = 12
"""What the time takes."""


def follow(place: PlaceOptions, options: TailOptions) -> None:
    """Show verdicts until Ctrl-C, or those that are there.

    Raises:
        InputError: there is no such store or file.
        ConfigError: an address or a key cannot be used.
        ReadError: the place cannot be read.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(place, options))


async def _run(place: PlaceOptions, options: TailOptions) -> None:
    from ragtrace.process import SystemClock

    clock = SystemClock()
    config = place.config.read(only=("extract", "store", "index", "ui"), needs_secrets=False)
    async with open_place(config, place, clock, pause_s=_SEARCH_PAUSE_S) as found:
        await searched(found)
        printer = _Printer(options, found)
        async for answer in _answers(found, place, options, clock):
            await printer.print(answer)


async def searched(found: OpenedPlace) -> None:
    """Wait for the first search, if there is one.

    Raises:
        ReadError: the place could not be read.
    """
    if found.search is None:
        return
    await found.search.was_tried.wait()
    if found.search.problem:
        raise ReadError(found.search.problem)


async def _answers(
    found: OpenedPlace, place: PlaceOptions, options: TailOptions, clock: Clock
) -> AsyncIterator[AnswerSummary]:
    """Yield the newest answers in the order in which they were judged, then those that come."""
    index, chosen = found.place.index, _chosen(place, options, clock.now_ns())
    position = (await index.arrivals(chosen)).position
    newest = await _newest(index, chosen, options.number)
    known = {answer.carrier_span_id for answer in newest}
    for answer in sorted(newest, key=lambda answer: (answer.judged_ns, answer.carrier_span_id)):
        yield answer
    while options.follows:
        came = await index.arrivals(chosen, after=position, limit=_AT_ONCE)
        position = came.position
        for answer in came.answers:
            if answer.carrier_span_id not in known:  # it came while the newest were read
                yield answer
        if not came.has_more:
            await asyncio.sleep(_POLL_S)


def _chosen(place: PlaceOptions, options: TailOptions, now_ns: int) -> AnswerFilter:
    since_ns = place.since.at(now_ns) if place.since else None
    return AnswerFilter(
        scope=TrafficScope(service=place.service, since_ns=since_ns),
        metric=options.metric,
        label=Label(options.label) if options.label else None,
        max_score=options.max_score,
    )


async def _newest(index: AnswerIndex, chosen: AnswerFilter, number: int) -> list[AnswerSummary]:
    found: list[AnswerSummary] = []
    after: str | None = None
    while len(found) < number:
        page = await index.page(
            chosen, sort=SortBy.NEWEST, after=after, limit=min(number - len(found), _AT_ONCE)
        )
        found += page.answers
        if page.next is None:
            break
        after = page.next
    return found


class _Printer:
    """Writes answers, one line each."""

    def __init__(self, options: TailOptions, found: OpenedPlace) -> None:
        self._options = options
        self._source = found.place.source
        self._console = None if options.json.wanted else open_console()

    async def print(self, answer: AnswerSummary) -> None:
        """Write one; content is read only for its claims."""
        if self._console is None:
            print_json({**row_of(answer), "supersedes": answer.supersedes, "metrics": metrics_of(answer)})
            return
        self._print_line(self._console, answer)
        if self._options.claims and answer.claims.contradicted + answer.claims.unsupported:
            await self._print_claims(self._console, answer)

    def _print_line(self, console: Console, answer: AnswerSummary) -> None:
        from rich.text import Text

        metric = _shown_metric(answer, self._options.metric)
        label = metric.label if metric is not None and self._options.metric else answer.label
        score = "   -" if metric is None or metric.score is None else f"{metric.score:.2f}"
        line = Text(f"{datetime.fromtimestamp(answer.judged_ns / 1e9, UTC):%m-%d %H:%M} ")
        line.append(f"{label.value}{'*' if answer.supersedes else ''}".ljust(7), style=_STYLES[label])
        service, room = _cell(answer.service or "-", _SERVICE_WIDTH), max(0, console.width - _NARROWEST)
        line.append(f" {score} {service} {_cell(_note(answer), _NOTE_WIDTH + room)} ")
        line.append(answer.key.trace_id)
        console.print(line, soft_wrap=True)
        asked = one_line(": ".join(filter(None, (answer.pipeline, answer.question))))
        if asked:
            print_indented(console, _INDENT, _cell(asked, console.width - _INDENT).rstrip(), style="dim")

    async def _print_claims(self, console: Console, answer: AnswerSummary) -> None:
        try:
            opened = await self._source.open(answer.key)
        except ReadError as exc:
            talk(f"  its claims cannot be shown: {exc}")
            return
        versions = opened.versions
        wanted = answer.carrier_span_id
        version = next((one for one in versions if one.evaluation_id == wanted), versions[0])
        already: set[object] = set()
        for outcome in version.judged.evaluation.outcomes:
            if isinstance(outcome, MetricResult):
                print_failures(console, outcome, version.judged.record, already)


def _shown_metric(answer: AnswerSummary, named: str | None) -> MetricSummary | None:
    if named is not None:
        return answer.metric(named)
    return answer.metric(_FIRST) or next(iter(answer.metrics), None)


def _note(answer: AnswerSummary) -> str:
    """Say what is wrong with an answer, in a few words."""
    claims = answer.claims
    if answer.reason:
        return answer.reason
    if not claims.total:
        return "no claims"
    wrong = claims.contradicted + claims.unsupported
    return f"{wrong}/{claims.total} wrong"


def _cell(text: str, width: int) -> str:
    shown = one_line(text)
    return shown.ljust(width) if len(shown) <= width else f"{shown[: width - 1]}…"
