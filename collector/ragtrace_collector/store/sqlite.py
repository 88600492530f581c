"""The work store in one SQLite file (WAL, ``synchronous=FULL``, group commit)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ragtrace.answers.index.reading import SqliteAnswerIndex
from ragtrace.answers.index.sums import fold
from ragtrace.errors import ReadError
from ragtrace.sqlite_file import primary_code
from ragtrace.traces.extract import Unread
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.ledger.outcomes import FinalOutcome, State
from ragtrace_collector.store import _dead_letters, _judged, _unread, leases, revisions
from ragtrace_collector.store import _quarantine as suspects
from ragtrace_collector.store._files import StoreLock
from ragtrace_collector.store._holds import HeldTraces
from ragtrace_collector.store._tenant_keys import key_by_tenant
from ragtrace_collector.store.budget import SqliteBudget
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher
from ragtrace_collector.store.drift import SqliteDrift
from ragtrace_collector.store.open_errors import DAMAGED, lock_file, unusable
from ragtrace_collector.store.port import (
    DeadLetter,
    HoldMode,
    IndexSize,
    Job,
    JudgedInput,
    KeptCarrier,
    KeptTurn,
    OutboxItem,
    Outcome,
    QuarantineRecord,
    ReleasedTraces,
    StoredSpans,
    StoreUnavailable,
    TraceDecided,
    TraceReport,
)
from ragtrace_collector.store.reader import StoreReader, index_of
from ragtrace_collector.store.reports import SqliteReports
from ragtrace_collector.store.retention import (
    forget_jobs,
    forget_rejected,
    forget_traces,
    has_room,
    make_room,
    shrink,
)
from ragtrace_collector.store.sampling import CHOSEN, SqliteSampling, chosen, select_follow_ups
from ragtrace_collector.store.schema import prepare
from ragtrace_collector.store.sessions import SqliteSessions, add_turn
from ragtrace_collector.store.writer import LOG_BYTES, GroupCommit
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

T = TypeVar("T")

_ROOM_TO_HOLD: Final = 0.8
"""The share of ``max_bytes`` beyond which no more traces are held."""
_ROOM_FOR_CONTENT: Final = 0.75
"""The share of ``max_bytes`` beyond which judged answers lose their content: the rest is for work."""
_SUMS_AT_ONCE: Final = 4
"""Hours or days of the index that are summed in one transaction: a day of 10,000 answers takes 0.1 s."""


class _Full(StoreUnavailable):
    """The store is full; deleting finished work may make room."""


class SqliteStore:
    """A [`WorkStore`][ragtrace_collector.store.port.WorkStore] in one file. One process at a time."""

    def __init__(
        self,
        commits: GroupCommit,
        lock: StoreLock,
        *,
        max_bytes: int,
        forward_to: Sequence[str],
        cipher: PayloadCipher = NO_CIPHER,
    ) -> None:
        self._commits = commits
        self._cipher = cipher
        self._reports = SqliteReports(commits.path, cipher)
        self._holds = HeldTraces(sinks=tuple(forward_to))
        self._lock = lock
        self._max_bytes = max_bytes

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        max_bytes: int,
        forward_to: Sequence[str] = (),
        cipher: PayloadCipher = NO_CIPHER,
        tenants: Collection[str] = (),
    ) -> SqliteStore:
        """Open or create the file, and end leases that a crash left.

        ``forward_to`` names the sinks that get the spans of held traces; the cipher encrypts content;
        ``tenants`` are those that tokens name: what an older ragtrace stored of them gets their keys.

        Raises:
            ConfigError: the path cannot be used, holds something else, or was encrypted with another key.
        """
        lock = lock_file(path)
        commits = GroupCommit(path, _prepare_encrypted(cipher))
        try:
            await commits.open()
        except (sqlite3.Error, OSError) as exc:
            lock.close()
            raise unusable(path, exc) from exc
        store = cls(commits, lock, max_bytes=max_bytes, forward_to=forward_to, cipher=cipher)
        await store._all_of(lambda db: key_by_tenant(db, tenants))
        await store._submit(_end_all)
        return store

    @property
    def budget(self) -> SqliteBudget:
        """What was spent on judging, in the same file."""
        return SqliteBudget(self._commits)

    @property
    def drift(self) -> SqliteDrift:
        """What the drift check found, in the same file."""
        return SqliteDrift(self._commits)

    @property
    def sessions(self) -> SqliteSessions:
        """The turns of sessions, in the same file."""
        return SqliteSessions(self._commits, _put_outbox_items)

    @property
    def sampling(self) -> SqliteSampling:
        """The state of sampling, in the same file."""
        return SqliteSampling(self._commits)

    async def append(
        self,
        slices: Sequence[TraceSlice],
        *,
        forward: Mapping[str, bytes],
        now_ns: int,
        holding: HoldMode = HoldMode.OFF,
        cut: Collection[str] = (),
    ) -> frozenset[str]:
        def work(db: sqlite3.Connection) -> frozenset[str]:
            if not self._has_room(db):
                raise _Full(
                    f"the store holds more than `store.max_bytes` ({self._max_bytes}), all unfinished"
                )
            if holding is not HoldMode.OFF:
                hold_new = holding is HoldMode.NEW and self._has_room_to_hold(db)
                for part in slices:
                    self._holds.pass_on(db, part, hold_new=hold_new, now_ns=now_ns)
            reopened = frozenset(part.trace_id for part in slices if _keep_slice(db, part, now_ns=now_ns))
            for trace_id in cut:
                revisions.mark_cut(db, trace_id, now_ns=now_ns)
            _put_outbox_items(db, forward)
            return reopened

        await self._refuse_long_log()
        while True:
            try:
                return await self._submit(work, is_acknowledged=True)
            except _Full:
                log.warning(
                    "the store is full: finished work is deleted before its time", extra=event("store_full")
                )
                if not await self._submit(lambda db: self._has_room(db) or make_room(db)):
                    raise

    async def check(self) -> None:
        await self.append((), forward={}, now_ns=0)  # makes room if there is none
        await self._submit(_write_nothing_new)

    async def undecided(self) -> tuple[str, ...]:
        query = f"SELECT trace_id FROM trace WHERE {revisions.UNDECIDED} ORDER BY last_arrival_ns"
        return await self._submit(lambda db: _column(db, query))

    async def spans(self, trace_id: str) -> StoredSpans:
        return await self._submit(lambda db: _stored_spans(db, trace_id))

    async def look(self, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord]:
        return await self._submit(lambda db: suspects.look(db, trace_ids))

    async def look_alone(self, trace_id: str) -> bool:
        return await self._submit(lambda db: suspects.look_alone(db, trace_id))

    async def end_look(self, trace_ids: Collection[str]) -> None:
        await self._submit(lambda db: suspects.end_look(db, trace_ids))

    async def set_aside(self, trace_id: str, *, poison: str, now_ns: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            ended = suspects.set_aside(db, trace_id, poison=poison, now_ns=now_ns)
            self._holds.release_if_done(db, trace_id)
            return ended

        return await self._submit(work)

    async def decide_trace(
        self,
        trace_id: str,
        *,
        jobs: Sequence[Job],
        outcomes: Sequence[Outcome],
        keep_spans: bool,
        now_ns: int,
        slices: int | None = None,
        moved: Mapping[str, str | None] = MappingProxyType({}),
        goes_on: bool = False,
        feedback: Mapping[str, str] = MappingProxyType({}),
        unread: Unread | None = None,
    ) -> TraceDecided:
        def work(db: sqlite3.Connection) -> TraceDecided:
            is_all = not goes_on and revisions.decide_trace(db, trace_id, slices=slices, now_ns=now_ns)
            ended = sum(_end_job(db, trace_id, outcome, now_ns=now_ns) for outcome in outcomes)
            back = sum(select_follow_ups(db, job, now_ns=now_ns) for job in jobs)
            new = sum(_queue_job(db, job, now_ns=now_ns) for job in jobs)
            again = sum(revisions.revise(db, job, slices=slices, now_ns=now_ns) for job in jobs)
            gone = revisions.move(db, trace_id, moved, now_ns=now_ns)
            _judged.note(db, trace_id, feedback)
            if is_all:
                _unread.note(db, trace_id, unread)
            suspects.clear(db, trace_id)
            self._holds.release_if_done(db, trace_id)
            if is_all and not keep_spans:
                db.execute("DELETE FROM slice WHERE trace_id = ?", (trace_id,))
            return TraceDecided(queued=new + back, ended=ended, brought_back=back, revised=again, moved=gone)

        return await self._submit(work)

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None
    ) -> tuple[Job, ...]:
        def work(db: sqlite3.Connection) -> tuple[Job, ...]:
            return leases.take(db, limit, now_ns=now_ns, seen_before_ns=seen_before_ns)

        return await self._submit(work)

    async def finish(
        self,
        job: Job,
        outcome: str,
        *,
        outbox_items: Mapping[str, bytes],
        now_ns: int,
        carrier: str = "",
        evaluator: str = "",
        addition: bytes = b"",
        judged: JudgedInput | None = None,
        kept: KeptCarrier | None = None,
        turn: KeptTurn | None = None,
    ) -> bool | None:
        ended = FinalOutcome.of(outcome)

        def work(db: sqlite3.Connection) -> bool | None:
            if revisions.has_moved(db, job):
                _end(db, job, FinalOutcome(State.SUPERSEDED), now_ns=now_ns)
                self._holds.release_if_done(db, job.trace_id)
                return None
            _end(db, job, ended, now_ns=now_ns, carrier=carrier, evaluator=evaluator)
            is_added = bool(addition) and self._holds.add(db, job, addition)
            if judged is not None:
                said_by = job.span_id if is_added else carrier
                revisions.note_judged(db, job, judged, carrier=said_by, now_ns=now_ns)
            if kept is not None:
                _judged.keep(db, job, kept, self._cipher)
            if turn is not None:
                add_turn(db, turn, now_ns=now_ns)
            db.execute(
                "UPDATE job SET is_on_span = ? WHERE trace_id = ? AND span_id = ? AND is_on_span != ?1",
                (is_added, job.trace_id, job.span_id),
            )
            _put_outbox_items(db, self._holds.of_others(outbox_items) if is_added else outbox_items, job=job)
            self._holds.release_if_done(db, job.trace_id)
            return is_added

        return await self._submit(work)

    async def postpone(self, job: Job, *, due_ns: int, reason: str, failed: bool = True) -> None:
        def work(db: sqlite3.Connection) -> None:
            leases.postpone(db, job, due_ns=due_ns, reason=reason, failed=failed)
            self._holds.release(db, job.trace_id)

        await self._submit(work)

    async def give_back(self, job: Job) -> None:
        await self._submit(lambda db: leases.give_back(db, job))

    async def release(
        self, *, before_ns: int, now_ns: int, most_bytes: int, limit: int = 64
    ) -> ReleasedTraces:
        def work(db: sqlite3.Connection) -> ReleasedTraces:
            return self._holds.release_overdue(
                db, before_ns=before_ns, now_ns=now_ns, most_bytes=most_bytes, limit=limit
            )

        return await self._submit(work)

    async def outbox_items(
        self, sink: str, limit: int, *, most_bytes: int = 2 << 20
    ) -> tuple[OutboxItem, ...]:
        def work(db: sqlite3.Connection) -> tuple[OutboxItem, ...]:
            rows = db.execute(
                "SELECT id, unsealed(payload, sink) FROM parcel WHERE sink = ? AND rejected_ns IS NULL"
                " ORDER BY id LIMIT ?",
                (sink, limit),
            )
            found: list[OutboxItem] = []
            for id_, payload in rows:
                most_left = most_bytes - sum(len(outbox_item.payload) for outbox_item in found)
                if found and len(payload) > most_left:
                    break
                found.append(OutboxItem(id=id_, payload=payload))
            return tuple(found)

        return await self._submit(work)

    async def delivered(self, outbox_items: Sequence[OutboxItem], *, unconfirmed: str = "") -> None:
        rows = [(outbox_item.id,) for outbox_item in outbox_items]

        def work(db: sqlite3.Connection) -> None:
            if unconfirmed:
                told = [(unconfirmed, *row) for row in rows]
                db.executemany("UPDATE parcel SET unconfirmed = ? WHERE id = ?", told)
            db.executemany("DELETE FROM parcel WHERE id = ?", rows)

        await self._submit(work)

    async def reject(self, outbox_items: Sequence[OutboxItem], *, reason: str, now_ns: int) -> None:
        await self._each_outbox_item(
            "UPDATE parcel SET rejected_ns = ?, reason = ? WHERE id = ?", outbox_items, now_ns, reason
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

    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        with _readable():
            return await self._reports.ledger(tenant, since_ns=since_ns)

    async def note_dead_letter(self, letter: DeadLetter, *, now_ns: int) -> bool:
        return await self._submit(
            lambda db: _dead_letters.note(db, letter, now_ns=now_ns), is_acknowledged=True
        )

    async def dead_letters(self, limit: int) -> tuple[DeadLetter, ...]:
        return await self._submit(lambda db: _dead_letters.latest(db, limit))

    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        with _readable():
            return await self._reports.find_traces(begin, limit=limit, tenant=tenant)

    async def trace_report(self, trace_id: str) -> TraceReport:
        with _readable():
            return await self._reports.trace_report(trace_id)

    @property
    def answers(self) -> SqliteAnswerIndex:
        """The rows of judged answers, in the same file."""
        return index_of(self._commits.path, self._cipher)

    @property
    def content(self) -> StoreReader:
        """The spans and carriers in the same file."""
        return StoreReader(self._commits.path, self._cipher)

    async def index_size(self) -> IndexSize:
        with _readable():
            return await self._reports.index_size()

    async def expire(
        self,
        *,
        decided_before_ns: int,
        ended_before_ns: int,
        began_before_ns: int = 0,
        most_rows: int | None = None,
        keeps_content: bool = True,
    ) -> int:
        number = await self._all_of(lambda db: forget_traces(db, before_ns=decided_before_ns))
        await self._all_of(lambda db: forget_rejected(db, before_ns=ended_before_ns))
        await self._all_of(lambda db: forget_jobs(db, before_ns=ended_before_ns))
        await self._all_of(lambda db: _judged.forget_rows(db, before_ns=began_before_ns, most_rows=most_rows))
        await self._all_of(lambda db: fold(db, at_once=_SUMS_AT_ONCE))
        if not keeps_content:
            await self._all_of(_judged.forget_content)
            await self._all_of(_judged.forget_questions)
        await self._all_of(
            lambda db: (
                0
                if has_room(db, max_bytes=int(_ROOM_FOR_CONTENT * self._max_bytes))
                else _judged.forget_content(db)
            )
        )
        await self._submit(lambda db: _dead_letters.forget(db, before_ns=ended_before_ns))
        await self._all_of(shrink)
        return number

    async def latest_ns(self) -> int:
        return await self._submit(_latest_ns)

    async def aclose(self) -> None:
        await self._commits.aclose()
        self._lock.close()

    def _has_room_to_hold(self, db: sqlite3.Connection) -> bool:
        return has_room(db, max_bytes=int(_ROOM_TO_HOLD * self._max_bytes))

    def _has_room(self, db: sqlite3.Connection) -> bool:
        return has_room(db, max_bytes=self._max_bytes)

    async def _refuse_long_log(self) -> None:
        longest = max(self._max_bytes, LOG_BYTES)
        if self._commits.log_bytes() <= longest:
            return
        await self._submit(lambda _: None)  # a commit, even of nothing, cuts the log if it can be cut
        if self._commits.log_bytes() > longest:
            raise StoreUnavailable(
                "the store's write-ahead log is longer than `store.max_bytes`: another program reads it "
                "continuously and keeps the log from being cut: end that program"
            )

    async def _submit(self, work: Callable[[sqlite3.Connection], T], *, is_acknowledged: bool = False) -> T:
        try:
            return await self._commits.submit(work, is_acknowledged=is_acknowledged)
        except sqlite3.OperationalError as exc:  # such as: database or disk is full
            raise StoreUnavailable(f"the store cannot be used: {exc}") from exc
        except sqlite3.DatabaseError as exc:
            if primary_code(exc) != sqlite3.SQLITE_CORRUPT:
                raise
            raise StoreUnavailable(
                f"the store is damaged ({exc}): stop the collector, then {DAMAGED}"
            ) from exc

    async def _all_of(self, work: Callable[[sqlite3.Connection], int]) -> int:
        """Repeat work in portions until none is left, so that others can write in between."""
        total = 0
        while number := await self._submit(work):
            total += number
        return total

    async def _execute(self, statement: str, values: Sequence[object] = ()) -> None:
        await self._submit(lambda db: db.execute(statement, values).close())

    async def _each_outbox_item(
        self, statement: str, outbox_items: Sequence[OutboxItem], *values: object
    ) -> None:
        rows = [(*values, outbox_item.id) for outbox_item in outbox_items]
        await self._submit(lambda db: db.executemany(statement, rows).close())


@asynccontextmanager
async def open_budget(path: Path) -> AsyncIterator[SqliteBudget]:
    """Open the spend ledger alone, for another process that spends from it while the collector runs.

    Raises:
        ConfigError: the path cannot be used, or holds something else.
    """
    async with _opened(path, prepare) as commits:
        yield SqliteBudget(commits)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftTables:
    """What a check beside the collector writes: its runs, and what it spent."""

    drift: SqliteDrift
    budget: SqliteBudget


@asynccontextmanager
async def open_drift(path: Path, *, cipher: PayloadCipher = NO_CIPHER) -> AsyncIterator[DriftTables]:
    """Open the tables of the check alone, for another process; the collector may run.

    The cipher encrypts what somebody is told.

    Raises:
        ConfigError: the path cannot be used, holds something else, or was encrypted with another key.
    """
    async with _opened(path, _prepare_encrypted(cipher)) as commits:
        yield DriftTables(drift=SqliteDrift(commits), budget=SqliteBudget(commits))


@asynccontextmanager
async def _opened(path: Path, prepare: Callable[[sqlite3.Connection], None]) -> AsyncIterator[GroupCommit]:
    commits = GroupCommit(path, prepare)
    try:
        await commits.open()
    except (sqlite3.Error, OSError) as exc:
        raise unusable(path, exc) from exc
    try:
        yield commits
    finally:
        await commits.aclose()


def _prepare_encrypted(cipher: PayloadCipher) -> Callable[[sqlite3.Connection], None]:
    def prepare_encrypted(db: sqlite3.Connection) -> None:
        prepare(db)
        cipher.install(db)

    return prepare_encrypted


def _end_all(db: sqlite3.Connection) -> None:
    """Take back what a process left."""
    leases.end_all(db)
    suspects.end_all(db)


def _write_nothing_new(db: sqlite3.Connection) -> None:
    """Rewrite the schema's version unchanged, to see whether the disk accepts writes."""
    db.execute(f"PRAGMA user_version = {_one(db, 'PRAGMA user_version')}")


def _end(
    db: sqlite3.Connection,
    job: Job,
    ended: FinalOutcome,
    *,
    now_ns: int,
    carrier: str = "",
    evaluator: str = "",
) -> None:
    db.execute(
        "UPDATE job SET state = 'ended', outcome = ?, ended_ns = ?, carrier = ?, evaluator = ? "
        "WHERE trace_id = ? AND span_id = ?",
        (str(ended), now_ns, carrier, evaluator, job.trace_id, job.span_id),
    )


def _stored_spans(db: sqlite3.Connection, trace_id: str) -> StoredSpans:
    trace = db.execute("SELECT slices, is_cut FROM trace WHERE trace_id = ?", (trace_id,)).fetchone()
    slices, is_cut = trace or (0, 0)
    jobs = db.execute(
        "SELECT span_id, NOT is_past AND (outcome != 'superseded' OR replaces != '') FROM job"
        " WHERE trace_id = ?",
        (trace_id,),
    ).fetchall()
    return StoredSpans(
        payloads=_column(
            db, "SELECT unsealed(payload, trace_id) FROM slice WHERE trace_id = ? ORDER BY seq", trace_id
        ),
        slices=slices,
        is_cut=bool(is_cut),
        answers=tuple(span_id for span_id, is_answer in jobs if is_answer),
        has_jobs=bool(jobs),
    )


def _keep_slice(db: sqlite3.Connection, part: TraceSlice, *, now_ns: int) -> bool:
    """Insert spans; say whether their trace had others before."""
    db.execute(
        "INSERT INTO slice (trace_id, payload) VALUES (?1, sealed(?2, ?1))", (part.trace_id, part.payload)
    )
    return revisions.add_slice(db, part.trace_id, now_ns=now_ns)


def _queue_job(db: sqlite3.Connection, job: Job, *, now_ns: int) -> int:
    sample = job.sample
    cursor = db.execute(
        "INSERT INTO job"
        f" (trace_id, span_id, tenant, service, {CHOSEN}, revisions_left, state, seen_ns, due_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?) ON CONFLICT DO NOTHING",
        (
            *(job.trace_id, job.span_id, job.tenant, job.service, *chosen(sample)),
            *(job.revisions_left, now_ns, now_ns),
        ),
    )
    return cursor.rowcount


def _end_job(db: sqlite3.Connection, trace_id: str, ended: Outcome, *, now_ns: int) -> int:
    about = (ended.tenant, ended.service, *chosen(ended.sample))
    cursor = db.execute(
        f"INSERT INTO job (trace_id, span_id, tenant, service, {CHOSEN},"
        " state, seen_ns, due_ns, ended_ns, outcome)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'ended', ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET outcome = excluded.outcome WHERE outcome = 'superseded'",
        (trace_id, ended.span_id, *about, now_ns, now_ns, now_ns, str(FinalOutcome.of(ended.outcome))),
    )
    return cursor.rowcount


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except ReadError as exc:
        raise StoreUnavailable(str(exc)) from exc


def _put_outbox_items(
    db: sqlite3.Connection, payloads: Mapping[str, bytes], *, job: Job | None = None
) -> None:
    answer = (job.trace_id, job.span_id) if job else ("", "")
    db.executemany(
        "INSERT INTO parcel (sink, payload, trace_id, span_id) VALUES (?1, sealed(?2, ?1), ?3, ?4)",
        [(sink, payload, *answer) for sink, payload in payloads.items()],
    )


def _column(db: sqlite3.Connection, query: str, *values: str) -> tuple[Any, ...]:
    return tuple(row[0] for row in db.execute(query, values))


def _one(db: sqlite3.Connection, query: str) -> int:
    value: int = db.execute(query).fetchone()[0]
    return value


_TIMES: Final = (
    "SELECT max(last_arrival_ns) FROM trace",
    "SELECT max(settled_ns) FROM trace",
    "SELECT max(ended_ns) FROM job WHERE state = 'ended'",
    "SELECT max(rejected_ns) FROM parcel",
)


def _latest_ns(db: sqlite3.Connection) -> int:
    return max(db.execute(query).fetchone()[0] or 0 for query in _TIMES)
