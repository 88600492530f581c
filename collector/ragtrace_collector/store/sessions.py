"""Sessions: a row a session, and a row a turn, whose content is encrypted as spans are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.answers.index_rows import put_session
from ragtrace.answers.summary import SessionSummary
from ragtrace.conversations import PlacedTurn, SessionName
from ragtrace.sql import Db, skip_locked
from ragtrace.traces.otlp import encode
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.database import Commits
from ragtrace_collector.store.outbox import put_in_outbox
from ragtrace_collector.store.records import Job, StoredSession, StoredTurn

_AT_ONCE: Final = 50
_MOST_TURNS: Final = 1_000
"""Beyond them a session's oldest turns go."""


class SessionTurns:
    """The turns of sessions, by tenant and id.

    A session is open from a turn that comes or changes until `end`. Each method is one transaction, and all
    raise StoreUnavailable.
    """

    def __init__(self, commits: Commits, cipher: PayloadCipher) -> None:
        self._commits = commits
        self._cipher = cipher

    async def due(
        self, *, quiet_before_ns: int, opened_before_ns: int, now_ns: int, limit: int = 20
    ) -> tuple[SessionName, ...]:
        """Return open sessions without a turn since a time, or that were opened before one.

        Those that are postponed beyond ``now_ns`` are left out.
        """
        values = (now_ns, quiet_before_ns, opened_before_ns, limit)

        def work(db: Db) -> list[tuple[int, str, str]]:
            rows = db.execute(
                "SELECT id, tenant, name FROM session WHERE is_ended = 0 AND not_before_ns <= ?"
                " AND (newest_ns < ? OR opened_ns < ?) AND owner IN (0, ?)"
                f" ORDER BY newest_ns LIMIT ?{skip_locked(db)}",
                (*values[:3], db.writer, limit),
            ).fetchall()
            db.executemany("UPDATE session SET owner = ? WHERE id = ?", [(db.writer, row[0]) for row in rows])
            return rows

        rows = await self._commits.submit(work)
        return tuple(SessionName(tenant=tenant, session=name) for _, tenant, name in rows)

    async def session(self, name: SessionName) -> StoredSession | None:
        """Return a session with its turns; ``None`` if it is not known."""
        return await self._commits.submit(lambda db: _session(db, name, self._cipher))

    async def before(
        self, name: SessionName, *, start_ns: int, trace_id: str, span_id: str, limit: int
    ) -> tuple[bytes, ...]:
        """Return the last turns of a session that began before an answer, the oldest first.

        Of turns that began with it, those count whose ids are smaller.
        """
        values = (name.tenant, name.session, start_ns, trace_id, span_id, limit)
        rows = await self._commits.submit(lambda db: db.execute(_BEFORE, values).fetchall())
        return tuple(self._cipher.opened(turn, name.session) for (turn,) in reversed(rows))

    async def keep_check(
        self, name: SessionName, carrier_span_id: str, *, digest: str, checked: bytes
    ) -> None:
        """Keep what the judge said of a turn, so that it is not asked again."""
        statement = f"UPDATE session_turn SET digest = ?, checked = ? WHERE carrier = ? AND session = ({_ID})"
        sealed = self._cipher.encrypt(checked, name.session)
        values = (digest, sealed, carrier_span_id, name.tenant, name.session)
        await self._commits.submit(lambda db: db.execute(statement, values).rowcount)

    async def postpone(self, name: SessionName, *, until_ns: int) -> None:
        """Let an open session wait, and count an attempt."""
        statement = (
            "UPDATE session SET not_before_ns = ?, attempts = attempts + 1 WHERE tenant = ? AND name = ?"
        )
        values = (until_ns, name.tenant, name.session)
        await self._commits.submit(lambda db: db.execute(statement, values).rowcount)

    async def end(
        self,
        name: SessionName,
        *,
        revision: int,
        span_id: str,
        outbox_items: Mapping[str, bytes],
        summary: SessionSummary | None = None,
    ) -> bool:
        """Note the span of a session, put it into the outbox and its summary into the index.

        Nothing is done if a turn came meanwhile.

        Returns:
            Whether the session was as ``revision`` says. If not, nothing has changed.
        """

        def work(db: Db) -> bool:
            ended = db.execute(
                "UPDATE session SET is_ended = 1, attempts = 0, not_before_ns = 0, written = ?, owner = 0"
                " WHERE tenant = ? AND name = ? AND revision = ? AND is_ended = 0",
                (span_id, name.tenant, name.session, revision),
            ).rowcount
            if ended:
                put_in_outbox(db, self._cipher, outbox_items)
                if summary is not None:
                    put_session(db, summary)
            return bool(ended)

        return await self._commits.submit(work)

    async def forget(self, *, before_ns: int) -> int:
        """Delete ended sessions without a turn since a time. Return how many, some at a time."""
        return await self._commits.submit(lambda db: forget_sessions(db, before_ns=before_ns))


def add_turn(db: Db, job: Job, placed: PlacedTurn, cipher: PayloadCipher, *, now_ns: int) -> None:
    """Add a turn or replace it, inside the transaction that ends its job; its session is open then.

    The turn of the carrier that this one supersedes goes, at this span or at another.
    """
    name, turn = placed.name, placed.turn
    (number,) = db.execute(
        "INSERT INTO session (tenant, name, opened_ns, newest_ns) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (tenant, name) DO UPDATE SET revision = session.revision + 1,"
        " newest_ns = CASE WHEN session.newest_ns > excluded.newest_ns THEN session.newest_ns"
        " ELSE excluded.newest_ns END,"
        " opened_ns = CASE WHEN session.is_ended = 1 THEN excluded.opened_ns ELSE session.opened_ns END,"
        " is_ended = 0, attempts = 0, not_before_ns = 0 RETURNING id",
        (name.tenant, name.session, now_ns, now_ns),
    ).fetchone()
    if job.replaces:
        db.execute("DELETE FROM session_turn WHERE session = ? AND carrier = ?", (number, job.replaces))
    db.execute(
        "INSERT INTO session_turn (session, trace_id, span_id, start_ns, carrier, turn, place)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session, trace_id, span_id) DO UPDATE SET"
        " start_ns = excluded.start_ns, carrier = excluded.carrier, turn = excluded.turn,"
        " place = excluded.place, digest = '', checked = NULL",
        (
            *(number, turn.trace_id, turn.span_id, turn.start_ns, turn.carrier_span_id),
            *(cipher.encrypt(each, name.session) for each in (turn.to_json(), encode([placed.place]))),
        ),
    )
    (turns,) = db.execute("SELECT count(*) FROM session_turn WHERE session = ?", (number,)).fetchone()
    if turns > _MOST_TURNS:
        db.execute(
            "DELETE FROM session_turn WHERE session = ? AND (trace_id, span_id) IN ("
            "SELECT trace_id, span_id FROM session_turn WHERE session = ? ORDER BY start_ns LIMIT ?)",
            (number, number, turns - _MOST_TURNS),
        )


def forget_sessions(db: Db, *, before_ns: int) -> int:
    """Delete some ended sessions, the oldest first; return how many."""
    found = db.execute(
        "SELECT id FROM session WHERE is_ended = 1 AND newest_ns < ? ORDER BY newest_ns LIMIT ?",
        (before_ns, _AT_ONCE),
    ).fetchall()
    db.executemany("DELETE FROM session_turn WHERE session = ?", found)
    db.executemany("DELETE FROM session WHERE id = ?", found)
    return len(found)


def _session(db: Db, name: SessionName, cipher: PayloadCipher) -> StoredSession | None:
    row = db.execute(
        "SELECT id, revision, attempts, written FROM session WHERE tenant = ? AND name = ?",
        (name.tenant, name.session),
    ).fetchone()
    if row is None:
        return None
    number, revision, attempts, written = row
    turns = db.execute(
        "SELECT carrier, turn, place, checked, digest FROM session_turn WHERE session = ?"
        " ORDER BY start_ns, trace_id, span_id",
        (number,),
    ).fetchall()
    return StoredSession(
        name=name,
        revision=revision,
        attempts=attempts,
        span_id=written,
        turns=tuple(
            StoredTurn(
                carrier_span_id=carrier,
                turn=cipher.opened(turn, name.session),
                place=cipher.opened(place, name.session),
                checked=None if checked is None else cipher.opened(checked, name.session),
                digest=digest,
            )
            for carrier, turn, place, checked, digest in turns
        ),
    )


_ID: Final = "SELECT id FROM session WHERE tenant = ? AND name = ?"
_BEFORE: Final = (
    f"SELECT turn FROM session_turn WHERE session = ({_ID}) AND (start_ns, trace_id, span_id) < (?, ?, ?)"
    " ORDER BY start_ns DESC, trace_id DESC, span_id DESC LIMIT ?"
)
