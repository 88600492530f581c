"""The store: what must survive a crash, from the acknowledged span to the delivered carrier."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final, TypeVar

from ragtrace.answers.index import AnswerIndex
from ragtrace.conversations import PlacedTurn
from ragtrace.sql import Db, Rows
from ragtrace.traces.extract import Unread
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger import FinalOutcome, State
from ragtrace_collector.sampling import Decision
from ragtrace_collector.store.budget import BudgetRows, DriftRuns
from ragtrace_collector.store.cipher import NO_CIPHER, PayloadCipher
from ragtrace_collector.store.database import Commits, Database
from ragtrace_collector.store.jobs import (
    THIS,
    UNDECIDED,
    Leases,
    look_up,
    move_answers,
    note_judged,
    revise,
    set_aside,
    settle_trace,
    take_back,
)
from ragtrace_collector.store.ledger import (
    Accounts,
    Reports,
    note_unread,
)
from ragtrace_collector.store.outbox import HeldTraces, next_items, put_in_outbox
from ragtrace_collector.store.reader import (
    StoreReader,
    forget_carriers,
    forget_content,
    forget_questions,
    forget_rows,
    index_of,
    keep_answer,
    note_on_answers,
)
from ragtrace_collector.store.records import (
    HoldMode,
    Job,
    JudgedInput,
    KeptCarrier,
    OutboxItem,
    ReleasedTraces,
    StoredSpans,
    StoreUnavailable,
    TraceDecided,
)
from ragtrace_collector.store.sampling import CHOSEN, SamplingState, chosen, select_again
from ragtrace_collector.store.sessions import SessionTurns, add_turn, forget_sessions
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


T = TypeVar("T")

_ROOM_TO_HOLD: Final = 0.8
"""The share of ``max_bytes`` beyond which no more traces are held."""
_ROOM_FOR_CONTENT: Final = 0.75
"""The share of ``max_bytes`` beyond which judged answers lose their content: the rest is for work."""


class _Full(StoreUnavailable):
    """The store is full; deleting finished work may make room."""


class Store(Leases, Reports):
    """What the collector keeps: spans, jobs, the outbox, the ledger, the index and the rest.

    **Transactions.** Every method is one: when it returns, all or nothing of it is durable, also if the
    caller is canceled meanwhile. Transactions follow one another in the order in which the methods were
    called, and each sees those before it.

    **Keys.** A trace id here is a key with the tenant (``store.trace_key``). Times are Unix nanoseconds; the
    caller passes them in, and they may go back.

    **Processes.** A file belongs to one, and leases and looks that are left when it is opened are of a crash:
    they end, and count against their answers and traces. A database has many: each knows its own by number,
    and takes over from those that are gone.

    **Errors.** Every method raises StoreUnavailable if the disk is full or fails.

    **The ledger**, whose methods are those of `Reports`, counts every answer and outbox item by the
    transaction that changes it, and outlives their rows.
    """

    def __init__(
        self,
        database: Database,
        commits: Commits,
        *,
        max_bytes: int,
        forward_to: Sequence[str],
        cipher: PayloadCipher = NO_CIPHER,
    ) -> None:
        Leases.__init__(self, commits)
        Reports.__init__(self, database, cipher)
        self._holds = HeldTraces(sinks=tuple(forward_to), cipher=cipher)
        self._max_bytes = max_bytes
        self._accounts = Accounts()
        self.answers: AnswerIndex = index_of(database, cipher)
        """The rows of judged answers. Each method reads one moment, and keeps no writer waiting."""
        self.content = StoreReader(database, cipher)
        """What answers are opened from; it keeps no writer waiting."""
        self.budget = BudgetRows(commits)
        """What was spent on judging."""
        self.drift = DriftRuns(commits)
        """What the drift check found."""
        self.sessions = SessionTurns(commits, cipher)
        """The turns of sessions."""
        self.sampling = SamplingState(commits)
        """The state of sampling, so that a restart decides the same."""

    @classmethod
    async def open(
        cls,
        database: Database,
        *,
        max_bytes: int,
        forward_to: Sequence[str] = (),
        cipher: PayloadCipher = NO_CIPHER,
    ) -> Store:
        """Open or create the store, and end leases that a crash left.

        ``forward_to`` names the sinks that get the spans of held traces; the cipher encrypts content.

        Raises:
            ConfigError: it cannot be used, holds something else, or was encrypted with another key.
        """
        commits = await database.open(cipher, is_collector=True)
        store = cls(database, commits, max_bytes=max_bytes, forward_to=forward_to, cipher=cipher)
        await commits.submit(lambda db: take_back(db, db.writer, has_crashed=True))
        return store

    # Spans: accepted, held back for their scores, and read again.

    async def append(
        self,
        slices: Sequence[TraceSlice],
        *,
        forward: Mapping[str, bytes],
        now_ns: int,
        holding: HoldMode = HoldMode.OFF,
        cut: Collection[str] = (),
    ) -> frozenset[str]:
        """Store spans, and originals to forward by sink. Return the traces that had spans before.

        ``cut`` names traces with dropped spans, because there are too many.

        A trace is held until all its answers have ended or one is postponed, or until ``release``.

        If the store is full, it deletes finished work before its time.

        Raises:
            StoreUnavailable: nothing was stored.
        """

        ids = sorted(part.trace_id for part in slices)

        def work(db: Db) -> frozenset[str]:
            if not self._has_room(db):
                raise _Full(
                    f"the store holds more than `store.max_bytes` ({self._max_bytes}), all unfinished"
                )
            if holding is not HoldMode.OFF:
                hold_new = holding is HoldMode.NEW and self._has_room(db, _ROOM_TO_HOLD)
                for part in slices:
                    self._holds.pass_on(db, part, hold_new=hold_new, now_ns=now_ns)
            db.executemany(
                "INSERT INTO slice (trace_id, payload) VALUES (?, ?)",
                [(part.trace_id, self._cipher.encrypt(part.payload, part.trace_id)) for part in slices],
            )
            counts = [db.execute(_ADD_SLICE, (each, now_ns, db.writer)) for each in ids]
            db.executemany(_MARK_CUT, [(trace_id, now_ns, now_ns) for trace_id in cut])
            put_in_outbox(db, self._cipher, forward)
            return frozenset(each for each, count in zip(ids, counts, strict=True) if count.fetchone()[0] > 1)

        while True:
            try:
                return await self._commits.submit(work, is_acknowledged=True, traces=ids)
            except _Full:
                made = await self._commits.submit(lambda db: self._has_room(db) or make_room(db))
                done = "finished work is deleted before its time" if made else "senders are told to wait"
                log.warning("the store is full: %s", done, extra=event("store_full"))
                if not made:
                    raise

    async def check(self) -> None:
        """Check whether spans could be stored now: there is room, and the disk accepts writes.

        Raises:
            StoreUnavailable: they could not; its text says why.
        """
        await self.append((), forward={}, now_ns=0)  # makes room if there is none
        await self._commits.submit(_write_nothing_new)

    async def undecided(self) -> tuple[str, ...]:
        """Return this process's traces that wait for a decision, and those of processes that are gone.

        They come in the order in which their last spans arrived.
        """

        def work(db: Db) -> tuple[str, ...]:
            undecided = f"{UNDECIDED} AND owner = ?"
            if db.writer:  # what nobody has any more, and what this process does not know of itself
                db.execute(f"UPDATE trace SET owner = ? WHERE {undecided}", (db.writer, 0))
            query = f"SELECT trace_id FROM trace WHERE {undecided} ORDER BY last_arrival_ns"
            return tuple(row[0] for row in db.execute(query, (db.writer,)))

        return await self._commits.submit(work)

    async def spans(self, trace_id: str) -> StoredSpans:
        """Return the spans of a trace, and its known answers; an unknown trace has none."""
        return await self._commits.submit(lambda db: _stored_spans(db, trace_id, self._cipher))

    async def release(
        self, *, before_ns: int, now_ns: int, most_bytes: int, limit: int = 64
    ) -> ReleasedTraces:
        """Release traces held since ``before_ns`` or earlier, and the oldest while more bytes are held.

        A trace that is held since after ``now_ns`` is overdue too, because the clock was set back. At most
        ``limit`` traces are released for each of the two reasons.

        A released trace goes to the sinks that get originals, slice by slice in order of arrival, with what
        ``finish`` added to its answer spans. It is released once, even after a crash.
        """

        def work(db: Db) -> ReleasedTraces:
            return self._holds.release_overdue(
                db, before_ns=before_ns, now_ns=now_ns, most_bytes=most_bytes, limit=limit
            )

        return await self._commits.submit(work)

    async def set_aside(self, trace_id: str, *, poison: str, now_ns: int) -> int:
        """Set a trace aside without reading it. Its queued answers end; return how many.

        It is decided from then on, and released if it was held.
        """

        def work(db: Db) -> int:
            ended = set_aside(db, trace_id, poison=poison, now_ns=now_ns)
            self._holds.release_if_done(db, trace_id)
            return ended

        return await self._commits.submit(work, traces=(trace_id,))

    # Jobs: answers that wait for the judge, are being judged, or have ended. One is pending until it ends:
    # ``queued`` until it is due, ``leased`` while it is judged.

    async def decide_trace(
        self,
        trace_id: str,
        *,
        jobs: Sequence[Job],
        outcomes: Sequence[Decision],
        keep_spans: bool,
        now_ns: int,
        slices: int | None = None,
        moved: Mapping[str, str | None] = MappingProxyType({}),
        goes_on: bool = False,
        feedback: Mapping[str, str] = MappingProxyType({}),
        unread: Unread | None = None,
    ) -> TraceDecided:
        """Queue the jobs and record the outcomes of a trace; known ones stay as they are.

        But an answer that was sampled out is queued, if a rule matched a later span. And a judged answer is
        queued again, if its record changed and it has revisions left.

        Args:
            trace_id: The trace.
            jobs: Answers to judge.
            outcomes: Answers that end without being queued.
            keep_spans: Whether later spans could still make a record of this trace.
            now_ns: The time.
            slices: How many slices of the trace were read for this; ``None`` for all.
            moved: Spans whose answers moved, and the spans that have them now.
            goes_on: Only some calls of the trace are decided, not the trace.
            feedback: The last feedback on answers, for the index; by span, or by the empty text if it is on
                the trace and names no span.
            unread: What the trace holds if nothing in it was read: counted by its producer.
        """

        def work(db: Db) -> TraceDecided:
            late = [] if goes_on else [settle_trace(db, trace_id, slices=slices, now_ns=now_ns)]
            held = self._holds.ask(db, trace_id)
            # looked at together: a server's answers come at once
            changed = (
                [self._end_unqueued(db, trace_id, outcome, now_ns=now_ns) for outcome in outcomes],
                [select_again(db, job, now_ns=now_ns) for job in jobs],
                [self._queue(db, job, now_ns=now_ns) for job in jobs],
                [rows for job in jobs for rows in revise(db, job, slices=slices, now_ns=now_ns)],
            )
            ended, back, new, again = (sum(rows.rowcount for rows in each) for each in changed)
            is_all = bool(late) and late[0].fetchone() != (1,)
            gone = move_answers(db, trace_id, moved, now_ns=now_ns)
            note_on_answers(db, trace_id, feedback)
            if is_all:
                note_unread(db, trace_id, unread)
            db.execute("DELETE FROM suspect WHERE trace_id = ? AND poison = ''", (trace_id,))
            if held.fetchone():
                self._holds.release_if_done(db, trace_id)
            if is_all and not keep_spans:
                db.execute("DELETE FROM slice WHERE trace_id = ?", (trace_id,))
            return TraceDecided(queued=new + back, ended=ended, brought_back=back, revised=again, moved=gone)

        return await self._commits.submit(work, traces=(trace_id,))

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
        turn: PlacedTurn | None = None,
    ) -> bool | None:
        """End a job and put its payloads, by sink, into the outbox.

        An answer that moved to another span meanwhile, or whose lease another process took over because this
        one was missed, adds nothing, and then this returns ``None``. If the
        record changed since it was ``judged``, the answer is queued again.

        If the trace is held, the ``addition`` is written on the answer span at its release, and only sinks
        that don't get the originals get an outbox item. Return whether that is so.

        ``outcome`` is a final `State` with its reason, ``carrier`` the span id of the carrier in the items,
        and ``evaluator`` its evaluator's version: `ragtrace why` shows both. What is ``kept`` goes into the
        index, and a ``turn`` into its session.

        Raises:
            ValueError: the state is unknown.
        """
        ended = FinalOutcome.of(outcome)

        def work(db: Db) -> bool | None:
            held = self._holds.ask(db, job.trace_id)
            is_lost, has_moved = look_up(db, job)
            is_held = held.fetchone() is not None
            if is_lost:
                return None
            if has_moved:
                _end(db, job, FinalOutcome(State.SUPERSEDED), now_ns=now_ns)
                if is_held:
                    self._holds.release_if_done(db, job.trace_id)
                return None
            is_added = bool(addition) and is_held
            if is_added:
                self._holds.add(db, job, addition)
            _end(db, job, ended, now_ns=now_ns, carrier=carrier, evaluator=evaluator, is_on_span=is_added)
            if judged is not None:
                said_by = job.span_id if is_added else carrier
                note_judged(db, job, judged, carrier=said_by, now_ns=now_ns)
            if kept is not None:
                keep_answer(db, job, kept, self._cipher)
            if turn is not None:
                add_turn(db, job, turn, self._cipher, now_ns=now_ns)
            items = self._holds.of_others(outbox_items) if is_added else outbox_items
            put_in_outbox(db, self._cipher, items, job=job)
            if is_held:
                self._holds.release_if_done(db, job.trace_id)
            return is_added

        return await self._commits.submit(work, traces=(job.trace_id,))

    async def postpone(self, job: Job, *, due_ns: int, reason: str, failed: bool = True) -> None:
        """Give a leased job back for a retry; ``failed`` says whether the attempt counts.

        It has crashed no process: the job is no suspect any more. Its trace is not held any longer.
        """

        def work(db: Db) -> None:
            db.execute(
                "UPDATE job SET state = 'queued', due_ns = ?, reason = ?, attempts = attempts + ?,"
                f" crashes = 0 WHERE {THIS} AND owner IN (0, ?)",
                (due_ns, reason, int(failed), job.trace_id, job.span_id, db.writer),
            )
            self._holds.release(db, job.trace_id)

        await self._commits.submit(work, traces=(job.trace_id,))

    async def is_alone(self) -> bool:
        """Say whether no other collector goes on with what this one leaves."""
        return await self._commits.submit(self._commits.is_alone)

    async def unfinished(self, *, now_ns: int) -> int:
        """Return how many jobs are due or leased, plus how many outbox items wait.

        Beside other collectors, only what this one has under way counts.
        """

        def work(db: Db) -> int:
            # One statement, because each sees a moment of its own, and jobs move meanwhile.
            is_alone = self._commits.is_alone(db)
            sums = (
                db.execute(_UNFINISHED, (now_ns,)) if is_alone else db.execute(_OWN, (db.writer, db.writer))
            )
            return int(sums.fetchone()[0])

        return await self._commits.submit(work)

    # The outbox: a queue for each sink. Items are put there by the transaction that they belong to.

    async def outbox_items(
        self, sink: str, limit: int, *, most_bytes: int = 2 << 20
    ) -> tuple[OutboxItem, ...]:
        """Return the oldest items for a sink, in order, up to ``most_bytes`` but at least one.

        They stay in the queue until they are ``delivered`` or rejected: after a crash they come again.
        """

        def work(db: Db) -> tuple[OutboxItem, ...]:
            return next_items(db, self._cipher, sink, limit, most_bytes=most_bytes)

        return await self._commits.submit(work)

    async def delivered(self, outbox_items: Sequence[OutboxItem], *, unconfirmed: str = "") -> None:
        """Delete items that their sink has, or may have: ``unconfirmed`` says why that is not known."""
        rows = [(outbox_item.id,) for outbox_item in outbox_items]

        def work(db: Db) -> None:
            if unconfirmed:
                told = [(unconfirmed, *row) for row in rows]
                db.executemany("UPDATE parcel SET unconfirmed = ? WHERE id = ?", told)
            db.executemany("DELETE FROM parcel WHERE id = ?", rows)

        await self._commits.submit(work)

    async def reject(self, outbox_items: Sequence[OutboxItem], *, reason: str, now_ns: int) -> None:
        """Set items aside that their sink refused for good; they stay readable until they expire."""
        rows = [(now_ns, reason, outbox_item.id) for outbox_item in outbox_items]
        statement = "UPDATE parcel SET rejected_ns = ?, reason = ?, owner = 0 WHERE id = ?"
        await self._commits.submit(lambda db: db.executemany(statement, rows))

    async def count_dead_letters(self, reasons: Sequence[str]) -> None:
        """Count messages that cannot be used, by reason, for good."""

        def work(db: Db) -> None:
            db.executemany(_COUNT_DEAD_LETTER, [(db.writer, reason) for reason in reasons])

        await self._commits.submit(work, is_acknowledged=True)

    # Maintenance.

    async def expire(
        self,
        *,
        decided_before_ns: int,
        ended_before_ns: int,
        began_before_ns: int = 0,
        most_rows: int | None = None,
        keeps_content: bool = True,
    ) -> int:
        """Delete the spans of decided traces, ended jobs and rejected items that are older.

        A trace stays while one of its jobs has not ended, while it is held, and while spans that came later
        wait for a decision. An ended job stays as long as its trace: until then, an answer whose spans are
        sent again is recognized. Of the index, the rows of answers that began before ``began_before_ns`` are
        deleted with what is kept of them, and the oldest beyond ``most_rows``. When three quarters of the
        store are in use, the oldest answers lose their content, and without ``keeps_content`` all do.

        It works in portions, a transaction each. Return how many traces were deleted.
        """
        number = await self._all_of(lambda db: forget_traces(db, before_ns=decided_before_ns))
        await self._all_of(lambda db: forget_rejected(db, before_ns=ended_before_ns))
        await self._all_of(lambda db: forget_jobs(db, before_ns=ended_before_ns))
        await self._all_of(lambda db: forget_rows(db, before_ns=began_before_ns, most_rows=most_rows))
        if not keeps_content:
            await self._all_of(forget_content)
            await self._all_of(forget_questions)
        await self._all_of(lambda db: 0 if self._has_room(db, _ROOM_FOR_CONTENT) else forget_content(db))
        await self._all_of(self._commits.shrink)
        return number

    async def latest_ns(self) -> int:
        """Return the latest time in the store, 0 if it is empty.

        The collector's clock never goes back behind it.
        """
        return await self._commits.submit(_latest_ns)

    async def aclose(self) -> None:
        """Commit what is under way and close. Leases that are left end when the store is opened again."""
        await self._commits.aclose()

    def _has_room(self, db: Db, share: float = 1.0) -> bool:
        return self._database.used_bytes(db) <= int(share * self._max_bytes)

    async def _all_of(self, work: Callable[[Db], int]) -> int:
        """Repeat work in portions until none is left, so that others can write in between."""
        total = 0
        while number := await self._commits.submit(work):
            total += number
        return total

    def _queue(self, db: Db, job: Job, *, now_ns: int) -> Rows:
        return db.execute(
            f"INSERT INTO job (trace_id, span_id, account, tenant, service, {CHOSEN}, revisions_left, state,"
            " seen_ns, due_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?)"
            " ON CONFLICT (trace_id, span_id) DO NOTHING",
            (
                *(job.trace_id, job.span_id, self._accounts.of(db, job.tenant), job.tenant, job.service),
                *(*chosen(job.sample), job.revisions_left, now_ns, now_ns),
            ),
        )

    def _end_unqueued(self, db: Db, trace_id: str, ended: Decision, *, now_ns: int) -> Rows:
        return db.execute(
            f"INSERT INTO job (trace_id, span_id, account, tenant, service, {CHOSEN},"
            " state, seen_ns, due_ns, ended_ns, outcome)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'ended', ?, ?, ?, ?)"
            " ON CONFLICT (trace_id, span_id) DO UPDATE SET outcome = excluded.outcome"
            " WHERE job.outcome = 'superseded'",
            (
                *(trace_id, ended.span_id, self._accounts.of(db, ended.tenant), ended.tenant, ended.service),
                *(
                    *chosen(ended.sample),
                    now_ns,
                    now_ns,
                    now_ns,
                    str(FinalOutcome.of(ended.left_out or State.SAMPLED_OUT)),
                ),
            ),
        )


@asynccontextmanager
async def open_tables(database: Database, cipher: PayloadCipher = NO_CIPHER) -> AsyncIterator[Commits]:
    """Open a store beside its collector, to write what the collector and a command share.

    Raises:
        ConfigError: it cannot be used, holds something else, or was encrypted with another key.
    """
    commits = await database.open(cipher, is_collector=False)
    try:
        yield commits
    finally:
        await commits.aclose()


def _end(
    db: Db,
    job: Job,
    ended: FinalOutcome,
    *,
    now_ns: int,
    carrier: str = "",
    evaluator: str = "",
    is_on_span: bool = False,
) -> None:
    db.execute(
        "UPDATE job SET state = 'ended', outcome = ?, ended_ns = ?, carrier = ?, evaluator = ?,"
        " is_on_span = ? WHERE trace_id = ? AND span_id = ?",
        (str(ended), now_ns, carrier, evaluator, int(is_on_span), job.trace_id, job.span_id),
    )


def _write_nothing_new(db: Db) -> None:
    db.execute("INSERT INTO suspect (trace_id) VALUES ('')")
    db.execute("DELETE FROM suspect WHERE trace_id = ''")


def _stored_spans(db: Db, trace_id: str, cipher: PayloadCipher) -> StoredSpans:
    trace = db.execute("SELECT slices, is_cut FROM trace WHERE trace_id = ?", (trace_id,)).fetchone()
    slices, is_cut = trace or (0, 0)
    jobs = db.execute(
        "SELECT span_id, is_past, outcome, replaces FROM job WHERE trace_id = ?", (trace_id,)
    ).fetchall()
    payloads = db.execute("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", (trace_id,)).fetchall()
    return StoredSpans(
        payloads=tuple(cipher.opened(payload, trace_id) for (payload,) in payloads),
        slices=slices,
        is_cut=bool(is_cut),
        answers=tuple(
            span_id
            for span_id, is_past, outcome, replaces in jobs
            if not is_past and (outcome != State.SUPERSEDED or replaces)
        ),
        has_jobs=bool(jobs),
    )


_ADD_SLICE: Final = (
    "INSERT INTO trace (trace_id, last_arrival_ns, slices, owner) VALUES (?, ?, 1, ?)"
    " ON CONFLICT (trace_id) DO UPDATE SET last_arrival_ns = excluded.last_arrival_ns,"
    " slices = trace.slices + 1, owner = excluded.owner RETURNING slices"
)
_MARK_CUT: Final = (
    "INSERT INTO trace (trace_id, last_arrival_ns, settled_ns, is_cut) VALUES (?, ?, ?, 1)"
    " ON CONFLICT (trace_id) DO UPDATE SET is_cut = 1"
)
_COUNT_DEAD_LETTER: Final = (
    "INSERT INTO dead_letter_sum (writer, reason, number) VALUES (?, ?, 1)"
    " ON CONFLICT (writer, reason) DO UPDATE SET number = dead_letter_sum.number + excluded.number"
)
_UNFINISHED: Final = """
SELECT (SELECT count(*) FROM job WHERE state = 'leased' OR state = 'queued' AND due_ns <= ?)
    + (SELECT count(*) FROM parcel WHERE rejected_ns IS NULL)"""
_OWN: Final = """
SELECT (SELECT count(*) FROM job WHERE state = 'leased' AND owner = ?)
    + (SELECT count(*) FROM parcel WHERE rejected_ns IS NULL AND owner = ?)"""
_TIMES: Final = (
    "SELECT max(last_arrival_ns) FROM trace",
    "SELECT max(settled_ns) FROM trace",
    "SELECT max(ended_ns) FROM job WHERE state = 'ended'",
    "SELECT max(rejected_ns) FROM parcel",
)


def _latest_ns(db: Db) -> int:
    return max(db.execute(query).fetchone()[0] or 0 for query in _TIMES)


_TRACES_AT_ONCE: Final = 100
_ROWS_AT_ONCE: Final = 1_000
"""A larger transaction would keep senders waiting, and make the log as long as what it deletes."""
_ALWAYS_NS: Final = (1 << 63) - 1


def forget_traces(db: Db, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete the spans of some finished traces, the oldest first; return how many."""
    found = db.execute(
        f"SELECT trace_id FROM trace WHERE settled_ns < ? AND NOT ({UNDECIDED})"
        " AND NOT EXISTS (SELECT 1 FROM job WHERE job.trace_id = trace.trace_id AND state != 'ended')"
        " AND NOT EXISTS (SELECT 1 FROM held WHERE held.trace_id = trace.trace_id)"
        " ORDER BY settled_ns LIMIT ?",
        (before_ns, _TRACES_AT_ONCE),
    ).fetchall()
    # later spans make no whole record
    db.executemany("UPDATE job SET is_past = 1 WHERE trace_id = ?", found)
    for table in ("slice", "trace", "suspect"):
        db.executemany(f"DELETE FROM {table} WHERE trace_id = ?", found)
    forget_carriers(db, found)
    return len(found)


def forget_rejected(db: Db, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete some rejected outbox items, the oldest first; return how many."""
    return db.execute(
        "DELETE FROM parcel WHERE id IN ("
        "SELECT id FROM parcel WHERE rejected_ns < ? ORDER BY rejected_ns LIMIT ?)",
        (before_ns, _TRACES_AT_ONCE),
    ).rowcount


def forget_jobs(db: Db, *, before_ns: int = _ALWAYS_NS) -> int:
    """Delete some ended answers, the oldest first; return how many.

    Until then, an answer whose spans are sent again is recognized, and not judged again.
    """
    found = db.execute(
        "SELECT trace_id, span_id FROM job WHERE state = 'ended' AND ended_ns < ?"
        " AND NOT EXISTS (SELECT 1 FROM trace WHERE trace.trace_id = job.trace_id)"
        " ORDER BY ended_ns LIMIT ?",
        (before_ns, _ROWS_AT_ONCE),
    ).fetchall()
    for table in ("job", "carrier"):
        db.executemany(f"DELETE FROM {table} WHERE trace_id = ? AND span_id = ?", found)
    return len(found)


def make_room(db: Db) -> int:
    """Delete some finished work, the least useful first; return how much, 0 if nothing is left."""
    return (
        forget_traces(db)
        or forget_content(db)
        or forget_rejected(db)
        or forget_jobs(db)
        or forget_sessions(db, before_ns=_ALWAYS_NS)
        or forget_rows(db, before_ns=_ALWAYS_NS, most_rows=0)
    )
