"""The work store in one SQLite file (WAL, ``synchronous=FULL``, group commit)."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, TypeVar

from ragtrace.errors import ConfigError
from ragtrace.traces.attach import Sample
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.outcomes import Ended
from ragtrace_collector.store.port import Job, Outcome, Parcel, Settled, StoredTrace, StoreUnavailable
from ragtrace_collector.store.schema import prepare
from ragtrace_collector.store.writer import GroupCommit

__all__ = ["SqliteStore"]

T = TypeVar("T")

_VACUUM_PAGES: Final = 500


class SqliteStore:
    """A [`WorkStore`][ragtrace_collector.store.port.WorkStore] in one file. One process at a time."""

    def __init__(self, commits: GroupCommit, lock: IO[bytes], *, max_bytes: int) -> None:
        self._commits = commits
        self._lock = lock
        self._max_bytes = max_bytes

    @classmethod
    async def open(cls, path: Path, *, max_bytes: int) -> SqliteStore:
        """Open the file, create it where it is missing, and take back what a crash left leased.

        Raises:
            ConfigError: the path cannot be used, or holds something else.
        """
        lock = _lock(path)
        commits = GroupCommit(path, prepare)
        try:
            await commits.open()
        except sqlite3.Error as exc:
            lock.close()
            raise _unusable(path, exc) from exc
        store = cls(commits, lock, max_bytes=max_bytes)
        await store._execute("UPDATE job SET state = 'queued' WHERE state = 'leased'")
        return store

    async def append(
        self, slices: Sequence[TraceSlice], *, forward: Mapping[str, bytes], now_ns: int
    ) -> frozenset[str]:
        def work(db: sqlite3.Connection) -> frozenset[str]:
            if _size(db) > self._max_bytes:
                raise StoreUnavailable(f"the store holds more than `store.max_bytes` ({self._max_bytes})")
            reopened = frozenset(part.trace_id for part in slices if _keep_slice(db, part, now_ns=now_ns))
            _put_parcels(db, forward)
            return reopened

        return await self._submit(work)

    async def unsettled(self) -> tuple[StoredTrace, ...]:
        def work(db: sqlite3.Connection) -> tuple[StoredTrace, ...]:
            rows = db.execute(
                "SELECT trace_id, last_arrival_ns, settled_ns IS NOT NULL FROM trace "
                "WHERE settled_ns IS NULL OR settled_ns < last_arrival_ns ORDER BY last_arrival_ns"
            )
            return tuple(
                StoredTrace(trace_id=trace_id, last_arrival_ns=last_arrival_ns, settled_before=bool(settled))
                for trace_id, last_arrival_ns, settled in rows
            )

        return await self._submit(work)

    async def payloads(self, trace_id: str) -> tuple[bytes, ...]:
        def work(db: sqlite3.Connection) -> tuple[bytes, ...]:
            rows = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,))
            return tuple(row[0] for row in rows)

        return await self._submit(work)

    async def settle(
        self,
        trace_id: str,
        *,
        jobs: Sequence[Job],
        outcomes: Sequence[Outcome],
        keep_spans: bool,
        now_ns: int,
    ) -> Settled:
        def work(db: sqlite3.Connection) -> Settled:
            db.execute("UPDATE trace SET settled_ns = ? WHERE trace_id = ?", (now_ns, trace_id))
            if not keep_spans:
                db.execute("DELETE FROM slice WHERE trace_id = ?", (trace_id,))
            ended = sum(_end_job(db, trace_id, outcome, now_ns=now_ns) for outcome in outcomes)
            back = sum(_bring_back_job(db, job, now_ns=now_ns) for job in jobs)
            new = sum(_queue_job(db, job, now_ns=now_ns) for job in jobs)
            return Settled(queued=new + back, ended=ended, brought_back=back)

        return await self._submit(work)

    async def take_jobs(self, limit: int, *, now_ns: int) -> tuple[Job, ...]:
        def work(db: sqlite3.Connection) -> tuple[Job, ...]:
            rows = db.execute(
                "UPDATE job SET state = 'leased', attempts = attempts + 1 WHERE (trace_id, span_id) IN ("
                " SELECT trace_id, span_id FROM job WHERE state = 'queued' AND due_ns <= ?"
                " ORDER BY due_ns LIMIT ?)"
                " RETURNING trace_id, span_id, rule, rate, probability, attempts, tenant, service",
                (now_ns, limit),
            ).fetchall()
            return tuple(
                Job(
                    trace_id=trace_id,
                    span_id=span_id,
                    sample=Sample(rule=rule, rate=rate, probability=probability),
                    attempts=attempts,
                    tenant=tenant,
                    service=service,
                )
                for trace_id, span_id, rule, rate, probability, attempts, tenant, service in rows
            )

        return await self._submit(work)

    async def finish(
        self,
        job: Job,
        outcome: str,
        *,
        parcels: Mapping[str, bytes],
        now_ns: int,
        carrier: str = "",
        evaluator: str = "",
    ) -> None:
        ended = Ended.of(outcome)

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE job SET state = 'ended', outcome = ?, ended_ns = ?, carrier = ?, evaluator = ? "
                "WHERE trace_id = ? AND span_id = ?",
                (str(ended), now_ns, carrier, evaluator, job.trace_id, job.span_id),
            )
            _put_parcels(db, parcels, job=job)

        await self._submit(work)

    async def postpone(self, job: Job, *, due_ns: int, reason: str) -> None:
        await self._execute(
            "UPDATE job SET state = 'queued', due_ns = ?, reason = ? WHERE trace_id = ? AND span_id = ?",
            (due_ns, reason, job.trace_id, job.span_id),
        )

    async def parcels(self, sink: str, limit: int, *, most_bytes: int = 2 << 20) -> tuple[Parcel, ...]:
        def work(db: sqlite3.Connection) -> tuple[Parcel, ...]:
            rows = db.execute(
                "SELECT id, payload FROM parcel WHERE sink = ? AND rejected_ns IS NULL ORDER BY id LIMIT ?",
                (sink, limit),
            )
            found: list[Parcel] = []
            for id_, payload in rows:
                most_left = most_bytes - sum(len(parcel.payload) for parcel in found)
                if found and len(payload) > most_left:
                    break
                found.append(Parcel(id=id_, payload=payload))
            return tuple(found)

        return await self._submit(work)

    async def delivered(self, parcels: Sequence[Parcel]) -> None:
        await self._each_parcel("DELETE FROM parcel WHERE id = ?", parcels)

    async def reject(self, parcels: Sequence[Parcel], *, reason: str, now_ns: int) -> None:
        await self._each_parcel(
            "UPDATE parcel SET rejected_ns = ?, reason = ? WHERE id = ?", parcels, now_ns, reason
        )

    async def unfinished(self, *, now_ns: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            row = db.execute(
                "SELECT (SELECT count(*) FROM job"
                " WHERE state = 'leased' OR (state = 'queued' AND due_ns <= ?))"
                " + (SELECT count(*) FROM parcel WHERE rejected_ns IS NULL)",
                (now_ns,),
            ).fetchone()
            number: int = row[0]
            return number

        return await self._submit(work)

    async def counts(self) -> Mapping[str, int]:
        def work(db: sqlite3.Connection) -> Mapping[str, int]:
            found = dict(
                db.execute(
                    "SELECT CASE state WHEN 'ended' THEN outcome ELSE state END, count(*) FROM job GROUP BY 1"
                ).fetchall()
            )
            found["open_traces"] = _one(db, "SELECT count(*) FROM trace WHERE settled_ns IS NULL")
            found["undelivered"] = _one(db, "SELECT count(*) FROM parcel WHERE rejected_ns IS NULL")
            found["rejected"] = _one(db, "SELECT count(*) FROM parcel WHERE rejected_ns IS NOT NULL")
            return found

        return await self._submit(work)

    async def expire(self, *, before_ns: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            expired = [
                row[0]
                for row in db.execute(
                    "SELECT trace_id FROM trace WHERE settled_ns < ? AND last_arrival_ns <= settled_ns"
                    " AND NOT EXISTS (SELECT 1 FROM job WHERE job.trace_id = trace.trace_id"
                    " AND state != 'ended')",
                    (before_ns,),
                )
            ]
            for table in ("slice", "job", "trace"):
                db.executemany(f"DELETE FROM {table} WHERE trace_id = ?", [(each,) for each in expired])
            db.execute("DELETE FROM parcel WHERE rejected_ns < ?", (before_ns,))
            return len(expired)

        number = await self._submit(work)
        if number:
            await self._submit(_shrink)
        return number

    async def aclose(self) -> None:
        await self._commits.aclose()
        self._lock.close()

    async def _submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._commits.submit(work)
        except sqlite3.OperationalError as exc:  # such as: database or disk is full
            raise StoreUnavailable(f"the store cannot be used: {exc}") from exc

    async def _execute(self, statement: str, values: Sequence[object] = ()) -> None:
        await self._submit(lambda db: db.execute(statement, values).close())

    async def _each_parcel(self, statement: str, parcels: Sequence[Parcel], *values: object) -> None:
        rows = [(*values, parcel.id) for parcel in parcels]
        await self._submit(lambda db: db.executemany(statement, rows).close())


def _lock(path: Path) -> IO[bytes]:
    """Keep a second collector off the same file: both would judge the same answers."""
    try:
        lock = path.with_name(f"{path.name}.lock").open("ab")
    except (OSError, ValueError) as exc:  # ValueError: it names no file
        raise _unusable(path, exc) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        lock.close()
        raise ConfigError(
            f"`store.path`: {str(path)!r} is in use by another collector: "
            "stop it, or give this one a path of its own"
        ) from exc
    return lock


def _unusable(path: Path, exc: Exception) -> ConfigError:
    return ConfigError(
        f"`store.path`: {str(path)!r} cannot be used as a SQLite file ({exc}): "
        "name a writable path whose folder exists"
    )


def _keep_slice(db: sqlite3.Connection, part: TraceSlice, *, now_ns: int) -> bool:
    """Insert spans; say whether their trace had been settled before."""
    db.execute("INSERT INTO slice (trace_id, payload) VALUES (?, ?)", (part.trace_id, part.payload))
    row = db.execute(
        "INSERT INTO trace (trace_id, last_arrival_ns) VALUES (?, ?) "
        "ON CONFLICT DO UPDATE SET last_arrival_ns = excluded.last_arrival_ns RETURNING settled_ns",
        (part.trace_id, now_ns),
    ).fetchone()
    return row[0] is not None


def _queue_job(db: sqlite3.Connection, job: Job, *, now_ns: int) -> int:
    sample = job.sample
    cursor = db.execute(
        "INSERT INTO job"
        " (trace_id, span_id, tenant, service, rule, rate, probability, state, seen_ns, due_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?) ON CONFLICT DO NOTHING",
        (job.trace_id, job.span_id, job.tenant, job.service, *_chosen(sample), now_ns, now_ns),
    )
    return cursor.rowcount


def _bring_back_job(db: sqlite3.Connection, job: Job, *, now_ns: int) -> int:
    sample = job.sample
    cursor = db.execute(
        "UPDATE job SET rule = ?, rate = ?, probability = ?, state = 'queued', due_ns = ?, ended_ns = NULL,"
        " outcome = '' WHERE trace_id = ? AND span_id = ? AND outcome = 'sampled_out'",
        (sample.rule, sample.rate, sample.probability, now_ns, job.trace_id, job.span_id),
    )
    return cursor.rowcount


def _end_job(db: sqlite3.Connection, trace_id: str, ended: Outcome, *, now_ns: int) -> int:
    about = (ended.tenant, ended.service, *_chosen(ended.sample))
    cursor = db.execute(
        "INSERT INTO job (trace_id, span_id, tenant, service, rule, rate, probability,"
        " state, seen_ns, due_ns, ended_ns, outcome)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'ended', ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (trace_id, ended.span_id, *about, now_ns, now_ns, now_ns, str(Ended.of(ended.outcome))),
    )
    return cursor.rowcount


def _chosen(sample: Sample | None) -> tuple[str, float, float]:
    return (sample.rule, sample.rate, sample.probability) if sample else ("", 0.0, 0.0)


def _put_parcels(db: sqlite3.Connection, payloads: Mapping[str, bytes], *, job: Job | None = None) -> None:
    answer = (job.trace_id, job.span_id) if job else ("", "")
    db.executemany(
        "INSERT INTO parcel (sink, payload, trace_id, span_id) VALUES (?, ?, ?, ?)",
        [(sink, payload, *answer) for sink, payload in payloads.items()],
    )


def _one(db: sqlite3.Connection, query: str) -> int:
    value: int = db.execute(query).fetchone()[0]
    return value


def _size(db: sqlite3.Connection) -> int:
    used = _one(db, "PRAGMA page_count") - _one(db, "PRAGMA freelist_count")
    return used * _one(db, "PRAGMA page_size")


def _shrink(db: sqlite3.Connection) -> None:
    # One page a statement: the driver steps this pragma once, whatever number stands in its brackets.
    for _ in range(min(_VACUUM_PAGES, _one(db, "PRAGMA freelist_count"))):
        db.execute("PRAGMA incremental_vacuum(1)")
