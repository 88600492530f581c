"""The outbox, and held traces, which go there when the hold ends.

A trace is held while it has a row in ``held``, and its slices are the originals. The transaction that deletes
the row also puts its spans into the outbox, so that each span is forwarded once, with or without scores, even
after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace.sql import Db, Rows, keep_locked, skip_locked
from ragtrace.traces.attach import add_to_spans
from ragtrace.traces.logs import without_stand_ins
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.jobs import UNDECIDED
from ragtrace_collector.store.records import Job, OutboxItem, ReleasedTraces


def put_in_outbox(
    db: Db, cipher: PayloadCipher, payloads: Mapping[str, bytes], *, job: Job | None = None
) -> None:
    """Put payloads by sink; with a job, they are the newest carrier of its answer."""
    answer = (job.trace_id, job.span_id) if job else ("", "")
    db.executemany(
        "INSERT INTO parcel (sink, payload, trace_id, span_id) VALUES (?, ?, ?, ?)",
        [(sink, cipher.encrypt(payload, sink), *answer) for sink, payload in payloads.items()],
    )


def next_items(
    db: Db, cipher: PayloadCipher, sink: str, limit: int, *, most_bytes: int
) -> tuple[OutboxItem, ...]:
    """Return the oldest items for a sink, up to ``most_bytes`` but at least one."""
    query = "SELECT {} FROM parcel WHERE sink = ? AND owner = ? AND rejected_ns IS NULL ORDER BY id LIMIT ?"
    rows = db.execute(query.format("id, payload"), (sink, db.writer, limit)).fetchall()
    if db.writer and len(rows) < limit:  # what no writer has
        db.execute(
            f"UPDATE parcel SET owner = ? WHERE id IN ({query.format('id')}{skip_locked(db)})",
            (db.writer, sink, 0, limit - len(rows)),
        )
        rows = db.execute(query.format("id, payload"), (sink, db.writer, limit)).fetchall()
    found: list[OutboxItem] = []
    left = most_bytes
    for id_, sealed in rows:
        payload = cipher.opened(sealed, sink)
        left -= len(payload)
        if found and left < 0:
            break
        found.append(OutboxItem(id=id_, payload=payload))
    return tuple(found)


_IS_DONE: Final = (
    " AND NOT EXISTS (SELECT 1 FROM job WHERE job.trace_id = held.trace_id AND state != 'ended')"
    f" AND NOT EXISTS (SELECT 1 FROM trace WHERE trace.trace_id = held.trace_id AND {UNDECIDED})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTraces:
    """The held traces of one store. Every method runs inside a transaction."""

    sinks: tuple[str, ...]
    """The sinks of released spans."""
    cipher: PayloadCipher

    def pass_on(self, db: Db, part: TraceSlice, *, hold_new: bool, now_ns: int) -> None:
        """Hold a slice if its trace is held, or is new and to be held; else forward it.

        Call it before the slice is stored: a known trace that is not held was released.
        """
        size = len(part.payload)
        if db.execute("UPDATE held SET bytes = bytes + ? WHERE trace_id = ?", (size, part.trace_id)).rowcount:
            return
        if hold_new and not _exists(db, "SELECT 1 FROM trace WHERE trace_id = ?", part.trace_id):
            values = (part.trace_id, now_ns, size)
            db.execute("INSERT INTO held (trace_id, since_ns, bytes) VALUES (?, ?, ?)", values)
        else:
            self._forward(db, part.payload)

    def ask(self, db: Db, trace_id: str) -> Rows:
        """Look up whether a trace is held. That stays so until the transaction ends."""
        return db.execute(f"SELECT 1 FROM held WHERE trace_id = ?{keep_locked(db)}", (trace_id,))

    def add(self, db: Db, job: Job, addition: bytes) -> None:
        """Store what to add to the answer span, when its held trace is released."""
        db.execute(
            "INSERT INTO addition (trace_id, span_id, payload) VALUES (?, ?, ?)"
            " ON CONFLICT (trace_id, span_id) DO UPDATE SET payload = excluded.payload",
            (job.trace_id, job.span_id, self.cipher.encrypt(addition, job.trace_id)),
        )

    def of_others(self, outbox_items: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return what goes to sinks that don't get the originals, because they always need a carrier."""
        return {sink: payload for sink, payload in outbox_items.items() if sink not in self.sinks}

    def release(self, db: Db, trace_id: str, *, condition: str = "") -> None:
        """Forward the held spans of a trace, in order of arrival, with their additions."""
        if not db.execute(f"DELETE FROM held WHERE trace_id = ?{condition}", (trace_id,)).rowcount:
            return
        rows = db.execute("SELECT span_id, payload FROM addition WHERE trace_id = ?", (trace_id,)).fetchall()
        additions = {span_id: self.cipher.opened(sealed, trace_id) for span_id, sealed in rows}
        db.execute("DELETE FROM addition WHERE trace_id = ?", (trace_id,))
        slices = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,))
        for (sealed,) in slices.fetchall():
            self._forward(db, add_to_spans(self.cipher.opened(sealed, trace_id), additions))

    def release_if_done(self, db: Db, trace_id: str) -> None:
        """Release a trace that waits for nothing: no answer to judge, no decision to make."""
        self.release(db, trace_id, condition=_IS_DONE)

    def release_overdue(
        self, db: Db, *, before_ns: int, now_ns: int, most_bytes: int, limit: int
    ) -> ReleasedTraces:
        """Release the traces held since before a time, or since a future time, if the clock was set back.

        Then release the oldest, until the held bytes are within the limit.
        """
        overdue = db.execute(
            "SELECT trace_id FROM held WHERE since_ns <= ? OR since_ns > ? ORDER BY since_ns LIMIT ?",
            (before_ns, now_ns, limit),
        ).fetchall()
        self._release_each(db, overdue)
        surplus = db.execute(
            "SELECT trace_id FROM (SELECT trace_id, since_ns,"
            " sum(bytes) OVER (ORDER BY since_ns DESC, trace_id) AS newer FROM held) AS queue"
            " WHERE newer > ? ORDER BY since_ns LIMIT ?",
            (most_bytes, limit),
        ).fetchall()
        self._release_each(db, surplus)
        return ReleasedTraces(
            overdue=len(overdue), surplus=len(surplus), queue_ns=now_ns - _next_due_ns(db, now_ns)
        )

    def _release_each(self, db: Db, rows: Iterable[tuple[str]]) -> None:
        for (trace_id,) in sorted(rows):  # in the order in which all writers lock traces
            self.release(db, trace_id)

    def _forward(self, db: Db, payload: bytes) -> None:
        payload = without_stand_ins(payload)
        if payload:
            put_in_outbox(db, self.cipher, dict.fromkeys(self.sinks, payload))


def _next_due_ns(db: Db, now_ns: int) -> int:
    (due_ns,) = db.execute("SELECT min(due_ns) FROM job WHERE state = 'queued'").fetchone()
    return now_ns if due_ns is None else min(due_ns, now_ns)


def _exists(db: Db, query: str, trace_id: str) -> bool:
    return db.execute(f"{query} LIMIT 1", (trace_id,)).fetchone() is not None
