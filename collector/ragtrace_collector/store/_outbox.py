"""The outbox: what the transaction of an answer puts there, and what is read from it."""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.sql import Db, skip_locked
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.records import Job, OutboxItem


def put(db: Db, cipher: PayloadCipher, payloads: Mapping[str, bytes], *, job: Job | None = None) -> None:
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
