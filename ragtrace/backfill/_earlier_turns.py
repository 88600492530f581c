"""Earlier turns of sessions as material in a back-fill: the source is read once more, before it is judged."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.backfill._kept_turns import KeptTurns
from ragtrace.backfill._record_selection import SelectedRecord, SessionTurns, choose
from ragtrace.backfill._selection import Selection
from ragtrace.backfill.report import RunCounts
from ragtrace.backfill.resume import ResumableRun
from ragtrace.conversations.judging import SessionName, session_of, undecided_turn
from ragtrace.conversations.turns import (
    MOST_CHARS,
    SessionSettings,
    Turn,
    turn_of_json,
    wants_earlier_turns,
    with_earlier_turns,
)
from ragtrace.model import Part, RagRecord
from ragtrace.pipeline.evaluation import no_rag_call
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Metric, TraceReader
from ragtrace.sqlite_file import open_temporary
from ragtrace.traces.trace import Span, Trace

_SCHEMA: Final = """
CREATE TABLE turn (
    tenant TEXT NOT NULL, session TEXT NOT NULL, start_ns INTEGER NOT NULL, trace_id TEXT NOT NULL,
    span_id TEXT NOT NULL, said BLOB NOT NULL,
    PRIMARY KEY (tenant, session, start_ns, trace_id, span_id)) WITHOUT ROWID;
"""
_BEFORE: Final = """
SELECT said FROM turn
WHERE tenant = ? AND session = ? AND (start_ns, trace_id, span_id) < (?, ?, ?)
ORDER BY start_ns DESC, trace_id DESC, span_id DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTurns:
    """What was asked and answered in the sessions of a source, in a temporary file.

    Answers that sampling leaves out, or that get no carrier, are no turns, as in the collector.
    """

    settings: SessionSettings
    metrics: Sequence[Metric]
    turns: SessionTurns
    db: sqlite3.Connection

    @property
    def kept(self) -> KeptTurns:
        """Turns from before what this run reads."""
        return self.turns.kept

    def tenant_of(self, trace: Trace, record: RagRecord) -> str:
        """Return the tenant of an answer."""
        return self.turns.tenant_of(trace, record)

    async def keep_known(
        self, trace: Trace, record: RagRecord, carriers: Sequence[Span], carrier_id: str
    ) -> None:
        """Keep an answer that was judged before."""
        self.add(record, tenant=self.tenant_of(trace, record))

    def add(self, record: RagRecord, *, tenant: str) -> None:
        """Keep an answer whose text is whole."""
        placed = undecided_turn(record, "", tenant=tenant)
        is_whole = record.gap(Part.ANSWER) is None and no_rag_call(self.metrics, record) is None
        if placed is None or not is_whole:
            return
        said = replace(
            placed.turn,
            question=(record.question or "")[:MOST_CHARS] or None,
            answer=(record.answer or "")[:MOST_CHARS],
        )
        key = (placed.name.tenant, placed.name.session, said.start_ns, *said.key)
        self.db.execute("INSERT OR REPLACE INTO turn VALUES (?, ?, ?, ?, ?, ?)", (*key, said.to_json()))

    def shown_with(self, record: RagRecord, *, tenant: str) -> RagRecord:
        """Return the record with the turns before it."""
        name = session_of(record, tenant=tenant)
        if name is None or not wants_earlier_turns(record, self.settings):
            return record
        return with_earlier_turns(record, self._before(name, record), self.settings)

    def _before(self, name: SessionName, record: RagRecord) -> list[Turn]:
        assert record.target is not None
        own = (record.target.start_ns, record.target.trace_id, record.target.span_id)
        most = self.settings.context_turns
        rows = self.db.execute(_BEFORE, (name.tenant, name.session, *own, most)).fetchall()
        read = [turn_of_json(said) for (said,) in rows]
        return list({turn.key: turn for turn in (*self.kept.before(name, *own, limit=most), *read)}.values())


@asynccontextmanager
async def earlier_turns(
    reader: TraceReader,
    selection: Selection,
    evaluator: Evaluator,
    *,
    run: ResumableRun | None,
    turns: SessionTurns | None,
    settings: SessionSettings | None,
) -> AsyncIterator[EarlierTurns | None]:
    """Read the sessions of a source, if answers are to be shown with earlier turns.

    Raises:
        ReadError: no trace of the source could be read.
    """
    if turns is None or settings is None or not settings.context_turns:
        yield None
        return
    with closing(open_temporary(_SCHEMA)) as db:
        found = EarlierTurns(settings=settings, metrics=evaluator.metrics, turns=turns, db=db)
        whole = Selection(
            trace_ids=selection.trace_ids,
            query=selection.query,
            sampling=selection.sampling,
            rules=selection.rules,
        )
        async for item in choose(reader, whole, RunCounts(), evaluator.id, run, found):
            if isinstance(item, SelectedRecord):
                found.add(item.record, tenant=item.tenant)
        yield found
