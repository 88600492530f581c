"""The tables of sessions: a row a session, and a row a turn, whose content is encrypted as spans are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ragtrace.answers.index.sessions import put_session
from ragtrace.answers.sessions import SessionSummary
from ragtrace.conversations.span import SessionName
from ragtrace_collector.store.port import KeptTurn, StoredSession, StoredTurn, StoreUnavailable
from ragtrace_collector.store.writer import GroupCommit

T = TypeVar("T")

SESSIONS: Final = """
CREATE TABLE session (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,
    opened_ns INTEGER NOT NULL, newest_ns INTEGER NOT NULL, not_before_ns INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, revision INTEGER NOT NULL DEFAULT 0,
    is_ended INTEGER NOT NULL DEFAULT 0, written TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX session_name ON session (tenant, name);
CREATE INDEX session_open ON session (newest_ns) WHERE is_ended = 0;
CREATE INDEX session_ended ON session (newest_ns) WHERE is_ended = 1;
CREATE TABLE session_turn (
    session INTEGER NOT NULL, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, start_ns INTEGER NOT NULL,
    carrier TEXT NOT NULL, turn BLOB NOT NULL, place BLOB NOT NULL,
    digest TEXT NOT NULL DEFAULT '', checked BLOB,
    PRIMARY KEY (session, trace_id, span_id)) WITHOUT ROWID;
"""
_AT_ONCE: Final = 50


class SqliteSessions:
    """The [`SessionStore`][ragtrace_collector.store.port.SessionStore] of a SQLite store."""

    def __init__(
        self,
        commits: GroupCommit,
        put_outbox_items: Callable[[sqlite3.Connection, Mapping[str, bytes]], None],
    ) -> None:
        self._commits = commits
        self._put_outbox_items = put_outbox_items

    async def due(
        self, *, quiet_before_ns: int, opened_before_ns: int, now_ns: int, limit: int = 20
    ) -> tuple[SessionName, ...]:
        """Return open sessions without a turn since a time, or that were opened before one."""
        query = (
            "SELECT tenant, name FROM session WHERE is_ended = 0 AND not_before_ns <= ?3"
            " AND (newest_ns < ?1 OR opened_ns < ?2) ORDER BY newest_ns LIMIT ?4"
        )
        values = (quiet_before_ns, opened_before_ns, now_ns, limit)
        rows = await self._submit(lambda db: db.execute(query, values).fetchall())
        return tuple(SessionName(tenant=tenant, session=name) for tenant, name in rows)

    async def session(self, name: SessionName) -> StoredSession | None:
        """Return a session with its turns; ``None`` if it is not known."""
        return await self._submit(lambda db: _session(db, name))

    async def before(
        self, name: SessionName, *, start_ns: int, trace_id: str, span_id: str, limit: int
    ) -> tuple[bytes, ...]:
        """Return the last turns of a session that began before an answer, the oldest first."""
        values = (name.tenant, name.session, start_ns, trace_id, span_id, limit)
        rows = await self._submit(lambda db: db.execute(_BEFORE, values).fetchall())
        return tuple(turn for (turn,) in rows)

    async def keep_check(
        self, name: SessionName, carrier_span_id: str, *, digest: str, checked: bytes
    ) -> None:
        """Keep what the judge said of a turn, so that it is not asked again."""
        of_turn = f"carrier = ? AND session = ({_ID})"
        statement = f"UPDATE session_turn SET digest = ?, checked = sealed(?, ?) WHERE {of_turn}"
        values = (digest, checked, name.session, carrier_span_id, name.tenant, name.session)
        await self._submit(lambda db: db.execute(statement, values).close())

    async def postpone(self, name: SessionName, *, until_ns: int) -> None:
        """Let an open session wait, and count an attempt."""
        statement = (
            "UPDATE session SET not_before_ns = ?, attempts = attempts + 1 WHERE tenant = ? AND name = ?"
        )
        await self._submit(lambda db: db.execute(statement, (until_ns, name.tenant, name.session)).close())

    async def end(
        self,
        name: SessionName,
        *,
        revision: int,
        span_id: str,
        outbox_items: Mapping[str, bytes],
        summary: SessionSummary | None = None,
    ) -> bool:
        """Note the span of a session, put it into the outbox and its summary into the index."""

        def work(db: sqlite3.Connection) -> bool:
            ended = db.execute(
                "UPDATE session SET is_ended = 1, attempts = 0, not_before_ns = 0, written = ?"
                " WHERE tenant = ? AND name = ? AND revision = ? AND is_ended = 0",
                (span_id, name.tenant, name.session, revision),
            )
            if ended.rowcount:
                self._put_outbox_items(db, outbox_items)
                if summary is not None:
                    put_session(db, summary)
            return bool(ended.rowcount)

        return await self._submit(work)

    async def forget(self, *, before_ns: int) -> int:
        """Delete ended sessions without a turn since a time. Return how many, some at a time."""
        return await self._submit(lambda db: forget_sessions(db, before_ns=before_ns))

    async def _submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._commits.submit(work)
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable(f"sessions cannot be kept: {exc}") from exc


def add_turn(db: sqlite3.Connection, kept: KeptTurn, *, now_ns: int) -> None:
    """Add a turn or replace it, inside the transaction that ends its job; its session is open then."""
    name = kept.name
    db.execute(
        "INSERT INTO session (tenant, name, opened_ns, newest_ns) VALUES (?1, ?2, ?3, ?3)"
        " ON CONFLICT (tenant, name) DO UPDATE SET newest_ns = max(newest_ns, ?3), revision = revision + 1,"
        " opened_ns = CASE is_ended WHEN 1 THEN ?3 ELSE opened_ns END, is_ended = 0, attempts = 0,"
        " not_before_ns = 0",
        (name.tenant, name.session, now_ns),
    )
    (number,) = db.execute(_ID, (name.tenant, name.session)).fetchone()
    if kept.supersedes:
        db.execute("DELETE FROM session_turn WHERE session = ? AND carrier = ?", (number, kept.supersedes))
    db.execute(
        "INSERT OR REPLACE INTO session_turn (session, trace_id, span_id, start_ns, carrier, turn, place)"
        " VALUES (?1, ?2, ?3, ?4, ?5, sealed(?6, ?8), sealed(?7, ?8))",
        (
            *(number, kept.trace_id, kept.span_id, kept.start_ns, kept.carrier_span_id),
            *(kept.turn, kept.place, name.session),
        ),
    )
    (turns,) = db.execute("SELECT count(*) FROM session_turn WHERE session = ?", (number,)).fetchone()
    if turns > kept.most_turns:
        db.execute(
            "DELETE FROM session_turn WHERE session = ?1 AND (trace_id, span_id) IN ("
            " SELECT trace_id, span_id FROM session_turn WHERE session = ?1 ORDER BY start_ns LIMIT ?2)",
            (number, turns - kept.most_turns),
        )


def forget_sessions(db: sqlite3.Connection, *, before_ns: int) -> int:
    """Delete some ended sessions, the oldest first; return how many."""
    found = db.execute(
        "SELECT id FROM session WHERE is_ended = 1 AND newest_ns < ? ORDER BY newest_ns LIMIT ?",
        (before_ns, _AT_ONCE),
    ).fetchall()
    db.executemany("DELETE FROM session_turn WHERE session = ?", found)
    db.executemany("DELETE FROM session WHERE id = ?", found)
    return len(found)


def _session(db: sqlite3.Connection, name: SessionName) -> StoredSession | None:
    row = db.execute(
        "SELECT id, revision, attempts, written FROM session WHERE tenant = ? AND name = ?",
        (name.tenant, name.session),
    ).fetchone()
    if row is None:
        return None
    number, revision, attempts, written = row
    turns = db.execute(
        "SELECT carrier, unsealed(turn, ?2), unsealed(place, ?2),"
        " CASE WHEN checked IS NOT NULL THEN unsealed(checked, ?2) END, digest"
        " FROM session_turn WHERE session = ?1 ORDER BY start_ns, trace_id, span_id",
        (number, name.session),
    )
    return StoredSession(
        name=name,
        revision=revision,
        attempts=attempts,
        span_id=written,
        turns=tuple(
            StoredTurn(carrier_span_id=carrier, turn=turn, place=place, checked=checked, digest=digest)
            for carrier, turn, place, checked, digest in turns
        ),
    )


_BEFORE: Final = """
SELECT unsealed(turn, ?2) FROM session_turn
WHERE session = (SELECT id FROM session WHERE tenant = ?1 AND name = ?2) AND (trace_id, span_id) IN (
    SELECT trace_id, span_id FROM session_turn
    WHERE session = (SELECT id FROM session WHERE tenant = ?1 AND name = ?2)
        AND (start_ns, trace_id, span_id) < (?3, ?4, ?5)
    ORDER BY start_ns DESC, trace_id DESC, span_id DESC LIMIT ?6)
ORDER BY start_ns, trace_id, span_id
"""
_ID: Final = "SELECT id FROM session WHERE tenant = ? AND name = ?"
