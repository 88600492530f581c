"""Answers under way: which record was judged, who judges it, what crashed, and what is left of writers.

**Revisions.** An answer is judged again if late spans change its record. Slices are counted, because times
are wrong if the clock was set back. A trace is decided up to the slices that were read, and a job has the
digests of its record as last decided and as last judged.

**Leases.** A lease ends with the process; one that ends in a crash counts against its job. A record that
crashes the process (out of memory, a crash in a library) also ends the leases of other jobs. So each job that
was leased at a crash is from then on leased alone: if the next process crashes too, that job is the cause,
and no other job is set aside for it.

**Quarantine.** Traces being read are noted before they are, so that a restart knows which may have crashed
the process; they are read alone, too.

**Writers** are the processes that write one store. What they had under way is taken back when they are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ragtrace.sql import Db, Rows, skip_locked
from ragtrace_collector.ledger import POISON
from ragtrace_collector.store.database import Commits
from ragtrace_collector.store.records import Job, JudgedInput, QuarantineRecord
from ragtrace_collector.store.sampling import CHOSEN, CHOSEN_COLUMNS, move_windows, sample_in

UNDECIDED: Final = "slices > settled_slices"
"""True of a trace without a decision, or that spans joined since."""

THIS: Final = "trace_id = ? AND span_id = ?"
_QUEUE: Final = (
    "UPDATE job SET state = 'queued', outcome = '', reason = '', ended_ns = NULL, attempts = 0, crashes = 0,"
    " seen_ns = ?, due_ns = ?"
)
_BACK: Final = f"{_QUEUE} WHERE {THIS} AND outcome = 'superseded' AND is_past = 0"
_AGAIN: Final = (
    f"{_QUEUE}, revisions_left = revisions_left - 1 WHERE {THIS} AND state = 'ended' AND is_past = 0"
    " AND revisions_left > 0 AND judged NOT IN ('', wanted)"
)


def settle_trace(db: Db, trace_id: str, *, slices: int | None, now_ns: int) -> Rows:
    """Note up to which slice the trace is decided; a row says by 1 that more came since."""
    return db.execute(
        "UPDATE trace SET settled_ns = ?, settled_slices = coalesce(?, slices) WHERE trace_id = ?"
        f" RETURNING CASE WHEN {UNDECIDED} THEN 1 ELSE 0 END",
        (now_ns, slices, trace_id),
    )


def revise(db: Db, job: Job, *, slices: int | None, now_ns: int) -> list[Rows]:
    """Note the record of a known answer, and queue it again if another was judged: then it changes a row."""
    db.execute(
        f"UPDATE job SET wanted = ?, wanted_slices = coalesce(?, wanted_slices), is_moved = 0 WHERE {THIS}",
        (job.record_sha256, slices, job.trace_id, job.span_id),
    )
    return [db.execute(each, (now_ns, now_ns, job.trace_id, job.span_id)) for each in (_BACK, _AGAIN)]


def move_answers(db: Db, trace_id: str, moved: Mapping[str, str | None], *, now_ns: int) -> int:
    """End answers that late spans moved to other spans; return how many. One being judged ends after that.

    The carrier at the other span supersedes the carrier here.
    """
    ended = 0
    for span_id, successor in moved.items():
        db.execute(
            f"UPDATE job SET is_moved = 1 WHERE {THIS} AND state = 'leased'",
            (trace_id, span_id),
        )
        ended += db.execute(
            "UPDATE job SET state = 'ended', outcome = 'superseded', reason = '', ended_ns = ?"
            f" WHERE {THIS} AND state != 'leased' AND outcome != 'superseded' AND is_past = 0",
            (now_ns, trace_id, span_id),
        ).rowcount
        if successor is not None:
            _hand_over(db, trace_id, span_id, successor)
    return ended


def _hand_over(db: Db, trace_id: str, span_id: str, successor: str) -> None:
    """Let the next carrier of the successor supersede the last one here, unless it supersedes another."""
    row = db.execute(f"SELECT replaces FROM job WHERE {THIS}", (trace_id, span_id)).fetchone()
    if row is None or not row[0]:
        return
    handed = db.execute(
        f"UPDATE job SET replaces = ? WHERE {THIS} AND replaces = ''", (*row, trace_id, successor)
    ).rowcount
    if handed:
        db.execute(f"UPDATE job SET replaces = '' WHERE {THIS}", (trace_id, span_id))


def note_judged(db: Db, job: Job, judged: JudgedInput, *, carrier: str, now_ns: int) -> None:
    """Note which record was judged, and queue it again if spans changed it meanwhile."""
    this = (job.trace_id, job.span_id)
    replaces, values = (", carriers = carriers + 1, replaces = ?", (carrier,)) if carrier else ("", ())
    db.execute(f"UPDATE job SET judged = ?{replaces} WHERE {THIS}", (judged.record_sha256, *values, *this))
    db.execute(f"{_AGAIN} AND wanted_slices > ?", (now_ns, now_ns, *this, judged.slices))


# A plus sign keeps the planner from the index of what is due, which has all due jobs.
_DUE: Final = "job WHERE state = 'queued' AND due_ns <= ? ORDER BY due_ns"
_OLD: Final = "job WHERE state != 'ended' AND seen_ns < ? AND state = 'queued' ORDER BY seen_ns"
_SUSPECTS: Final = (
    "job WHERE state != 'ended' AND crashes > 0 AND state = 'queued' AND +due_ns <= ? ORDER BY due_ns"
)
_LEASED: Final = "job WHERE state = 'leased'"
_LEASED_SUSPECTS: Final = "job WHERE state != 'ended' AND crashes > 0 AND state = 'leased'"
_SUSPECT_TRACES: Final = "suspect WHERE is_looked_at = 1 AND crashes > 0"


class Leases:
    """What this process has under way: answers that it judges, and traces that it reads.

    Each method is one transaction.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None
    ) -> tuple[Job, ...]:
        """Lease up to ``limit`` jobs that are due, or that were queued before ``seen_before_ns``.

        No job is leased twice at once. Those that have been due longest, or were queued first, are taken;
        they come in any order. A lease ends with the process. A job that was leased when a process crashed
        is leased alone: while no other job is leased and no suspect trace is read.
        """

        def work(db: Db) -> tuple[Job, ...]:
            if seen_before_ns is not None:
                return _lease(db, _OLD, seen_before_ns, limit)
            own = " AND owner = ?"
            if _any(db, f"{_LEASED_SUSPECTS}{own}", db.writer):
                return ()
            if not _any(db, _SUSPECTS, now_ns):
                return _lease(db, _DUE, now_ns, limit)
            if _any(db, f"{_LEASED}{own}", db.writer) or _any(db, f"{_SUSPECT_TRACES}{own}", db.writer):
                return ()
            return _lease(db, _SUSPECTS, now_ns, 1)

        return await self._commits.submit(work)

    async def give_back(self, job: Job) -> None:
        """Give a leased job back unchanged, because its worker was stopped; one that has ended stays so."""
        statement = f"UPDATE job SET state = 'queued' WHERE {THIS} AND state = 'leased' AND owner = ?"
        await self._commits.submit(
            lambda db: db.execute(statement, (job.trace_id, job.span_id, db.writer)).rowcount
        )

    async def look(self, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord | None]:
        """Note that traces are being read, except suspects, which are returned.

        So are the traces whose last spans came to another process, with ``None``: it has them.

        A look ends with the decision, or with ``end_look``. A trace that is being read when the process
        crashes becomes a suspect.
        """

        def work(db: Db) -> Mapping[str, QuarantineRecord | None]:
            known: dict[str, QuarantineRecord | None] = {}
            for trace_id in trace_ids:
                if db.writer and db.execute(_ELSEWHERE, (trace_id, db.writer)).fetchone():
                    known[trace_id] = None
                elif found := db.execute(_KNOWN, (trace_id,)).fetchone():
                    known[trace_id] = QuarantineRecord(crashes=found[0], poison=found[1])
                else:
                    db.execute(_LOOK, (trace_id, db.writer))
            return known

        return await self._commits.submit(work)

    async def look_alone(self, trace_id: str) -> bool:
        """Note that a suspect is being read; return False while another suspect (trace or answer) is."""

        def work(db: Db) -> bool:
            own = " AND owner = ?"
            if any(_any(db, f"{each}{own}", db.writer) for each in (_SUSPECT_TRACES, _LEASED_SUSPECTS)):
                return False
            db.execute(_LOOK, (trace_id, db.writer))
            return True

        return await self._commits.submit(work)

    async def end_look(self, trace_ids: Collection[str]) -> None:
        """Note that traces were read. A suspicion stays until the decision about its trace."""
        rows = [(trace_id,) for trace_id in trace_ids]

        def work(db: Db) -> None:
            db.executemany("DELETE FROM suspect WHERE trace_id = ? AND crashes = 0 AND poison = ''", rows)
            db.executemany("UPDATE suspect SET is_looked_at = 0 WHERE trace_id = ?", rows)

        await self._commits.submit(work)


def look_up(db: Db, job: Job) -> tuple[bool, bool]:
    """Say of a leased job whether another writer has it now, and whether its answer moved to another span."""
    found = db.execute(f"SELECT owner, is_moved FROM job WHERE {THIS}", (job.trace_id, job.span_id))
    owner, is_moved = found.fetchone() or (0, 0)
    return owner not in (0, db.writer), bool(is_moved)


def _lease(db: Db, which: str, *values: int) -> tuple[Job, ...]:
    rows = db.execute(
        "UPDATE job SET state = 'leased', owner = ? WHERE (trace_id, span_id) IN ("
        f"SELECT trace_id, span_id FROM {which} LIMIT ?{skip_locked(db)})"
        " RETURNING trace_id, span_id, tenant, service,"
        f" {CHOSEN}, attempts, crashes, reason, seen_ns, revisions_left, carriers, replaces,"
        " (SELECT slices FROM trace WHERE trace.trace_id = job.trace_id),"
        " (SELECT is_cut FROM trace WHERE trace.trace_id = job.trace_id)",
        (db.writer, *values),
    )
    return tuple(map(_job, rows.fetchall()))


def _job(row: Sequence[Any]) -> Job:
    trace_id, span_id, tenant, service, *rest = row
    sample, progress = rest[:CHOSEN_COLUMNS], rest[CHOSEN_COLUMNS:]
    attempts, crashes, reason, seen_ns, left, carriers, replaces, slices, is_cut = progress
    return Job(
        trace_id=trace_id,
        span_id=span_id,
        tenant=tenant,
        service=service,
        sample=sample_in(*sample),
        attempts=attempts,
        crashes=crashes,
        reason=reason,
        seen_ns=seen_ns,
        revisions_left=left,
        carriers=carriers,
        replaces=replaces,
        slices=slices or 0,
        is_cut=bool(is_cut),
    )


def _any(db: Db, which: str, *values: int) -> bool:
    return db.execute(f"SELECT 1 FROM {which} LIMIT 1", values).fetchone() is not None


_KNOWN: Final = "SELECT crashes, poison FROM suspect WHERE trace_id = ? AND (crashes > 0 OR poison != '')"
_ELSEWHERE: Final = f"SELECT 1 FROM trace WHERE trace_id = ? AND {UNDECIDED} AND owner NOT IN (0, ?)"
_LOOK: Final = (
    "INSERT INTO suspect (trace_id, is_looked_at, owner) VALUES (?, 1, ?)"
    " ON CONFLICT (trace_id) DO UPDATE SET is_looked_at = 1, owner = excluded.owner"
)


def set_aside(db: Db, trace_id: str, *, poison: str, now_ns: int) -> int:
    """Set a trace aside. Its queued answers end; return how many."""
    db.execute(
        "INSERT INTO suspect (trace_id, poison) VALUES (?, ?)"
        " ON CONFLICT (trace_id) DO UPDATE SET poison = excluded.poison, is_looked_at = 0",
        (trace_id, poison),
    )
    settle_trace(db, trace_id, slices=None, now_ns=now_ns)
    return db.execute(
        "UPDATE job SET state = 'ended', outcome = ?, ended_ns = ? WHERE trace_id = ? AND state = 'queued'",
        (POISON, now_ns, trace_id),
    ).rowcount


def take_back(db: Db, writer: int, *, has_crashed: bool) -> None:
    """End the leases and looks of a writer that is gone. If it crashed, they count against what it had."""
    crashed = int(has_crashed)
    db.execute(
        "UPDATE job SET state = 'queued', crashes = crashes + ? WHERE state = 'leased' AND owner = ?",
        (crashed, writer),
    )
    for table, left in _LEFT.items():
        db.execute(f"UPDATE {table} SET owner = 0 WHERE owner = ?{left}", (writer,))
    db.execute(
        "UPDATE suspect SET is_looked_at = 0, crashes = crashes + ? WHERE is_looked_at = 1 AND owner = ?",
        (crashed, writer),
    )


_LEFT: Final = {
    "trace": f" AND {UNDECIDED}",
    "parcel": " AND rejected_ns IS NULL",
    "session": " AND is_ended = 0",
    "anchor_claim": "",
}
"""What is still to be done, so that others look for it."""


def fold(db: Db, writer: int) -> None:
    """Add the sums of a writer that is gone to those of all that were before."""
    for table, key in _SUMS.items():
        db.execute(
            f"INSERT INTO {table} (writer, {key}, number) SELECT 0, {key}, number FROM {table}"
            f" WHERE writer = ? ON CONFLICT (writer, {key}) DO UPDATE"
            f" SET number = {table}.number + excluded.number",
            (writer,),
        )
        db.execute(f"DELETE FROM {table} WHERE writer = ?", (writer,))
    move_windows(db, writer, 0)


_SUMS: Final = {
    "ledger": "state, reason, rule, tenant",
    "outbox": "sink, state",
    "dead_letter_sum": "reason",
    "unread_sum": "account",
    "stored_bytes": "kind",
}
"""What a sum is of."""
