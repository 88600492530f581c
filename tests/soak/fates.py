"""What the store says became of each answer, read while its row lives, beside what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ragtrace_collector.store.database import Database
from tests.soak.sink import Arrived, SpanId

_MOST_NAMED = 3
_PAUSE_S = 2.0
"""A small part of ``store.retention``: no row is forgotten between two looks."""


class Fate(NamedTuple):
    """How an answer ended."""

    state: str
    carrier: str
    """Span id; empty where there is nothing to tell in the trace."""


@dataclass(slots=True, kw_only=True)
class Fates:
    """How answers ended, as the rows said that are forgotten a minute later."""

    store: Database
    found: dict[SpanId, Fate] = field(default_factory=dict)
    pending: set[SpanId] = field(default_factory=set)
    """As of the last look."""

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(_PAUSE_S)

    def look(self) -> None:
        with self.store.reading() as db:
            rows = db.execute("SELECT trace_id, span_id, state, stands, carrier FROM job").fetchall()
        self.pending = {SpanId(*row[:2]) for row in rows if row[2] != "ended"}
        self.found.update({SpanId(*row[:2]): Fate(*row[3:]) for row in rows if row[2] == "ended"})


def differences(sent: Iterable[SpanId], fates: Fates, arrived: Mapping[SpanId, Arrived]) -> Iterator[str]:
    """Say, a line each, where what was sent, what became of it and what came are not the same."""
    told = {SpanId(each.trace_id, fate.carrier): each for each, fate in fates.found.items() if fate.carrier}
    of_answers = {SpanId(each.trace_id, came.target) for each, came in arrived.items()}
    judged = {each for each, fate in fates.found.items() if fate.state == "judged"}
    # a carrier stays where its answer was judged, and late spans moved it to another span then
    may_score = judged | {each for each, fate in fates.found.items() if fate.state == "superseded"}
    yield from _named("answers sent stand nowhere", set(sent) - fates.found.keys() - fates.pending)
    yield from _named("answers are judged, and no carrier tells it", judged - set(told.values()))
    yield from _named("carriers were written, and did not come", told.keys() - arrived.keys())
    yield from _named(
        "carriers came of answers that nobody judged", of_answers - set(told.values()) - fates.pending
    )
    yield from _named(
        "carriers stand on another span than their answer",
        {each for each in told.keys() & arrived.keys() if arrived[each].target != told[each].span_id},
    )
    yield from _named(
        "carriers tell no score of what was judged",
        {each for each in told.keys() & arrived.keys() if told[each] in judged and not arrived[each].scores},
    )
    yield from _named(
        "carriers tell a score of what was not judged",
        {
            each
            for each in told.keys() & arrived.keys()
            if told[each] not in may_score and arrived[each].scores
        },
    )
    yield from _named(
        "carriers came twice, and not alike", {each for each, came in arrived.items() if came.forms > 1}
    )


def _named(what: str, found: Iterable[SpanId]) -> Iterator[str]:
    each = sorted(found)
    if each:
        some = ", ".join(":".join(one) for one in each[:_MOST_NAMED])
        yield f"{len(each)} {what}: {some}{' and others' if len(each) > _MOST_NAMED else ''}"
