"""The index of judged answers in memory: rows in a list, and each question looks at all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from ragtrace.answers.index.reading import SqliteAnswerIndex
from ragtrace.answers.index.sessions import put_session
from ragtrace.answers.index.tables import INDEX_TABLES
from ragtrace.answers.index.writes import put
from ragtrace.answers.port import AnswerIndex
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace_collector.store.port import IndexSize, Job, KeptCarrier
from ragtrace_collector.store.trace_key import tenant_of, trace_id_of


@dataclass(slots=True, kw_only=True)
class MemoryRow:
    """One evaluation."""

    summary: AnswerSummary
    is_valid: bool = True


@dataclass(slots=True, kw_only=True)
class HeldCarrier:
    """A carrier that stays as long as the spans of its trace."""

    span_id: str
    carrier: str
    supersedes: str
    payload: bytes


@dataclass(slots=True)
class MemoryIndex:
    """The rows, the feedback that waits for one, and the carriers by trace."""

    rows: list[MemoryRow] = field(default_factory=list)
    waiting: dict[AnswerKey, str] = field(default_factory=dict)
    carriers: dict[str, list[HeldCarrier]] = field(default_factory=dict)
    sessions: list[SessionSummary] = field(default_factory=list)

    def keep(self, job: Job, kept: KeptCarrier) -> None:
        """Add an evaluation; what it supersedes is valid no longer."""
        beside = self.carriers.setdefault(job.trace_id, [])
        named = kept.summary.supersedes
        found = [held.carrier for held in beside if named in (held.carrier, held.span_id)]
        summary = replace(kept.summary, supersedes=found[-1] if found else named)
        beside[:] = [held for held in beside if held.carrier != summary.carrier_span_id]
        beside.append(
            HeldCarrier(
                span_id=job.span_id,
                carrier=summary.carrier_span_id,
                supersedes=summary.supersedes,
                payload=kept.payload,
            )
        )
        self._put(summary)

    def _put(self, summary: AnswerSummary) -> None:
        mates = [row for row in self.rows if _trace_of(row.summary) == _trace_of(summary)]
        same = [row for row in mates if row.summary.carrier_span_id == summary.carrier_span_id]
        given = [row.summary.feedback for row in mates if row.summary.key == summary.key]
        waits = self.waiting.pop(summary.key, "")
        summary = replace(summary, feedback=summary.feedback or waits or next(filter(None, given), ""))
        is_last = all(row.summary.supersedes != summary.carrier_span_id for row in mates if row not in same)
        for row in same:
            is_last = row.is_valid
            self.rows.remove(row)
        for row in mates:
            if row.summary.carrier_span_id == summary.supersedes and row not in same:
                row.is_valid = False
        self.rows.append(MemoryRow(summary=summary, is_valid=is_last))

    def note(self, trace_id: str, tenants: Mapping[str, str], feedback: Mapping[str, str]) -> None:
        """Note feedback on the answers of a trace, whose tenants are given."""
        for span_id, thumbs in feedback.items():
            for answer in [answer for answer in tenants if span_id in ("", answer)]:
                key = AnswerKey(trace_id_of(trace_id), answer, tenant_of(trace_id) or tenants[answer])
                rows = [row for row in self.rows if row.summary.key == key]
                for row in rows:
                    row.summary = replace(row.summary, feedback=thumbs)
                if not rows:
                    self.waiting[key] = thumbs

    def forget(self, *, before_ns: int, most_rows: int | None) -> int:
        """Delete the rows from before a time, and the oldest beyond a number."""
        oldest = sorted(self.rows, key=lambda row: row.summary.time_ns)
        surplus = oldest[: 0 if most_rows is None else max(0, len(oldest) - most_rows)]
        gone = [row for row in oldest if row.summary.time_ns < before_ns or row in surplus]
        self.rows = [row for row in self.rows if row not in gone]
        first_ns = min((row.summary.time_ns for row in self.rows), default=None)
        self.sessions = [one for one in self.sessions if first_ns is not None and one.time_ns >= first_ns]
        return len(gone)

    def answers(self) -> AnswerIndex:
        """Return the valid rows in a form that can be searched: which ones these are was decided here."""
        valid = [replace(row.summary, supersedes="") for row in self.rows if row.is_valid]

        @contextmanager
        def connect() -> Iterator[sqlite3.Connection]:
            with closing(sqlite3.connect(":memory:")) as db:
                db.executescript(INDEX_TABLES)
                for summary in valid:
                    put(db, summary)
                for session in self.sessions:
                    put_session(db, session)
                yield db

        return SqliteAnswerIndex(connect)

    def size(self) -> IndexSize:
        """Return how much it holds."""
        times = [row.summary.time_ns for row in self.rows]
        return IndexSize(rows=len(times), oldest_ns=min(times, default=None))


def _trace_of(summary: AnswerSummary) -> tuple[str, str]:
    return summary.key.trace_id, summary.key.tenant
