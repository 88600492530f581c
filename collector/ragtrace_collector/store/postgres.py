"""A store in a PostgreSQL database (15 and later), for one process or many.

A process writes on one connection, in groups: what was submitted meanwhile shares a transaction, and what
needs no answer shares a round trip (a pipeline). Nothing outlives a transaction on the connection, so that a
pooler in transaction mode may stand between: names of tables and the number of the writer are set in each.

**Writers.** Each process that writes is a row, with a heartbeat by the database's clock. A writer whose
heartbeat stopped is gone: its leases end, its sums are folded, and it can commit no more, because every
commit updates its row. So a process that was paused beyond that cannot write what others took over. The same
row tells whether a commit succeeded whose answer was lost.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import StrDumperUnknown

from ragtrace.errors import ConfigError
from ragtrace.sql import Db, Rows
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.database import Commits, Submission
from ragtrace_collector.store.jobs import fold, take_back
from ragtrace_collector.store.records import StoreUnavailable, StoreUnreadable, UnfitFile
from ragtrace_collector.store.tables import TABLES, VERSION, triggers
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")
logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # what it warns of may quote a row

SCHEMA: Final = "ragtrace"
"""The schema of the tables."""
_TRIES: Final = 5
"""Of a transaction that others' transactions stopped."""
_CONNECT_S: Final = 5
_BEATS: Final = 6
"""Heartbeats that a writer has missed when it counts as gone."""
_OLDEST: Final = 150_000
"""The oldest server that has what the store needs, as libpq numbers versions."""


class _NumberLoader(Loader):
    """Sums of integers are of PostgreSQL's type ``numeric``."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _TextDumper(StrDumperUnknown):
    """PostgreSQL keeps no NUL in a text; senders may put one into a name."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd"))


class _Cursor(psycopg.Cursor[Any]):
    """Waits for the server only when somebody looks at what the statement returned."""

    @property
    def rowcount(self) -> int:
        self._fetch_pipeline()
        return super().rowcount


class PostgresDb:
    """A connection in a pipeline, as the rules of the store use it."""

    def __init__(self, connection: psycopg.Connection[Any], writer: int) -> None:
        self.writer = writer
        self.used_bytes: int | None = None
        """When it was asked first: what comes in one transaction does not fill a store."""
        self.connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        return self.connection.execute(_translated(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        for row in rows:
            self.execute(statement, row)


@contextmanager
def _pipelined(connection: psycopg.Connection[Any], writer: int = 0) -> Iterator[PostgresDb]:
    with connection.pipeline():
        yield PostgresDb(connection, writer)


@lru_cache(maxsize=2_048)
def _translated(statement: str) -> bytes:
    """Return a statement as psycopg takes it. The store has some hundreds, and lists of the page more."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A [`Database`][ragtrace_collector.store.database.Database] on a server."""

    url: str
    gone_s: float = 30
    """How long after its last heartbeat a writer counts as gone."""

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.url)
        except psycopg.Error as exc:
            raise ConfigError(
                "`store.url`: it is not an address of PostgreSQL: write "
                "postgresql://USER:PASSWORD@HOST:5432/DATABASE, with %XX for special characters"
            ) from exc

    @property
    def name(self) -> str:
        parts = conninfo_to_dict(self.url)
        host = str(parts.get("host") or parts.get("hostaddr") or "localhost")
        host = f"[{host}]" if ":" in host else host
        port = f":{parts['port']}" if parts.get("port") else ""
        return f"postgresql://{host}{port}/{parts.get('dbname') or parts.get('user') or ''}"

    @contextmanager
    def reading(self) -> Iterator[PostgresDb]:
        try:
            with closing(self.connect()) as connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                with _pipelined(connection) as db:
                    db.execute(_SET_SCHEMA)
                    if not refuse_others(db):
                        raise StoreUnreadable(
                            f"{self.name} holds no store: start `ragtrace collector` on it once"
                        )
                    yield db
        except UnfitFile as exc:
            raise StoreUnreadable(
                f"{self.name} cannot be read as a collector's store ({exc}): {exc.advice}"
            ) from exc
        except psycopg.Error as exc:
            raise StoreUnreadable(f"{self.name} cannot be read: {advised(exc)}") from exc

    async def open(self, cipher: PayloadCipher, *, is_collector: bool) -> PostgresCommits:
        commits = PostgresCommits(self, cipher)
        try:
            await commits.open()
        except UnfitFile as exc:
            raise ConfigError(f"`store.url`: {self.name} cannot be used ({exc}): {exc.advice}") from exc
        except psycopg.Error as exc:
            raise ConfigError(f"`store.url`: {self.name} cannot be used: {advised(exc)}") from exc
        return commits

    def used_bytes(self, db: Db) -> int:
        assert isinstance(db, PostgresDb)
        if db.used_bytes is None:
            (number,) = db.execute(_USED).fetchone()
            db.used_bytes = int(number or 0)
        return db.used_bytes

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection.

        Raises:
            psycopg.Error: the server is away, or refuses.
        """
        connection: psycopg.Connection[Any] = psycopg.connect(
            self.url,
            connect_timeout=_CONNECT_S,
            application_name="ragtrace",
            prepare_threshold=None,
            keepalives_idle=10,
            keepalives_interval=5,
            tcp_user_timeout=int(self.gone_s * 1_000),
            cursor_factory=_Cursor,
        )
        connection.adapters.register_loader("numeric", _NumberLoader)
        connection.adapters.register_dumper(str, _TextDumper)
        return connection


# Compiling a query, or starting processes for it, takes longer than any query here.
_SET_SCHEMA: Final = (
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('jit', 'off', true),"
    " set_config('max_parallel_workers_per_gather', '0', true)"
)
_USED: Final = "SELECT sum(number) FROM stored_bytes"


class _LostWriter(Exception):
    """This process must go on as another writer, without what it has under way."""


class PostgresCommits(Commits):
    """The [`Commits`][ragtrace_collector.store.database.Commits] of a server."""

    def __init__(self, server: PostgresServer, cipher: PayloadCipher) -> None:
        super().__init__()
        self._server = server
        self._cipher = cipher
        self._idle_s = server.gone_s / _BEATS
        self._connection: psycopg.Connection[Any] | None = None
        self._writer = 0
        self._commits = 0
        """How many transactions this writer has committed."""
        self._looked_s = 0.0
        """When it looked for writers that are gone, by this machine's monotonic clock."""
        self._unreachable: psycopg.Error | None = None
        """Why there is no connection for the group under way: the rest of it does not wait for another."""

    def shrink(self, db: Db) -> bool:
        return False  # autovacuum gives room back to the tables

    def is_alone(self, db: Db) -> bool:
        others = "SELECT 1 FROM writer WHERE is_gone = 0 AND id <> ? LIMIT 1"
        return db.execute(others, (self._writer,)).fetchone() is None

    def _end(self) -> None:
        with suppress(Exception):  # else others notice it by its heartbeat
            self._alone(Submission(self._leave))
            connection = self._ready()
            connection.execute(f"DELETE FROM {SCHEMA}.writer WHERE id = %s", (self._writer,))
            connection.commit()
        if self._connection is not None:
            self._connection.close()

    def _trouble(self, exc: Exception) -> StoreUnavailable | None:
        if isinstance(exc, (psycopg.Error, _LostWriter)):
            return StoreUnavailable(f"the store {self._server.name} cannot be used: {advised(exc)}")
        return None

    def _results(self, group: Sequence[Submission]) -> Sequence[Any]:
        """Return what becomes of a group: together if nothing fails, else one by one."""
        self._unreachable = None
        beat: list[Submission] = []
        if time.monotonic() - self._looked_s > self._server.gone_s / _BEATS:
            self._looked_s, beat = time.monotonic(), [Submission(self._take_over)]
        try:
            return self._committed([*beat, *group])[len(beat) :]
        except _LostWriter as exc:
            self._writer = 0  # the next group registers another one
            return [exc] * len(group)
        except Exception as exc:  # noqa: BLE001 -- the one that failed is found below
            if len(group) == 1 and not isinstance(exc, _AGAIN):
                return [exc]
        return [self._singly(each) for each in group]

    def _singly(self, work: Submission) -> Any:
        try:
            return self._alone(work)
        except Exception as exc:  # noqa: BLE001 -- its caller hears of it
            return exc

    def _alone(self, work: Submission) -> Any:
        for left in reversed(range(_TRIES)):
            try:
                return self._committed([work])[0]
            except _AGAIN:
                if not left:
                    raise
        raise AssertionError

    def _committed(self, works: Sequence[Submission]) -> list[Any]:
        """Run works in one transaction and commit it. If that fails, nothing of it is kept.

        All writers lock traces in the same order, so that they don't wait for one another in a circle.
        """
        traces = [trace_id for each in works for trace_id in each.traces]
        connection = self._ready()
        commits = self._commits + 1
        try:
            with _pipelined(connection, self._writer) as db:
                db.execute(_SETTINGS, (SCHEMA, str(self._writer)))
                if traces:
                    db.execute(_LOCK_TRACES, (traces,))
                results = [each.work(db) for each in works]
                seen = db.execute(_NOTE_COMMIT, (commits, self._writer))
                if not seen.rowcount:
                    raise _LostWriter("it was away for too long, and others have its work")
        except BaseException:
            self._undo(connection)
            raise
        try:
            connection.commit()
        except psycopg.Error:
            self._undo(connection)
            if not self._was_committed(commits):
                raise
        self._commits = commits
        return results

    def _was_committed(self, commits: int) -> bool:
        """Say whether the server committed a transaction whose answer was lost.

        Raises:
            _LostWriter: it cannot be asked. What the writer may have leased is taken back when it is missed.
        """
        try:
            connection = self._ready()
            with _pipelined(connection) as db:
                (found,) = db.execute(_COMMITS, (self._writer,)).fetchone() or (0,)
            connection.rollback()
        except psycopg.Error as exc:
            raise _LostWriter(f"nobody knows whether it was committed: {why(exc)}") from exc
        return bool(found == commits)

    def _ready(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            if self._unreachable is not None:
                raise self._unreachable
            try:
                self._connection = self._server.connect()
            except psycopg.Error as exc:
                self._unreachable = exc
                raise
        if not self._writer:
            self._connection.execute(_SET_SCHEMA)
            with _pipelined(self._connection) as db:
                (self._writer,) = db.execute(_REGISTER).fetchone()
            self._connection.commit()
            self._commits = 0
        return self._connection

    def _undo(self, connection: psycopg.Connection[Any]) -> None:
        try:
            connection.rollback()
        except psycopg.Error:
            connection.close()

    def _begin(self) -> None:
        connection = self._connection = self._server.connect()
        try:
            if connection.info.server_version < _OLDEST:
                raise UnfitFile(
                    f"it is PostgreSQL {connection.info.server_version // 10_000}", "use version 15 or later"
                )
            create(connection)
            connection.execute(_SET_SCHEMA)
            with _pipelined(connection) as db:
                self._cipher.check(db)
            connection.commit()
            self._alone(Submission(self._take_over))
        except BaseException:
            connection.close()
            raise

    def _take_over(self, db: Db) -> None:
        """Take over from the writers that are gone."""
        gone_ns = int(self._server.gone_s * 1e9)
        gone = [tuple(row) for row in db.execute(_GONE, (gone_ns, gone_ns))]
        for writer, crashed in gone:
            take_back(db, writer, has_crashed=bool(crashed))
            fold(db, writer)
        if gone:
            log.warning(
                "%s the store, and what they had is taken over",
                "another collector left" if len(gone) == 1 else f"{len(gone)} collectors left",
                extra=event("writers_gone", number=len(gone)),
            )

    def _leave(self, db: Db) -> None:
        take_back(db, self._writer, has_crashed=True)
        fold(db, self._writer)


_AGAIN: Final = (errors.SerializationFailure, errors.DeadlockDetected)
_SETTINGS: Final = "SELECT set_config('search_path', ?, true), set_config('ragtrace.writer', ?, true)"
_LOCK_TRACES: Final = "SELECT 1 FROM trace WHERE trace_id = ANY(?) ORDER BY trace_id FOR UPDATE"
_NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000000 AS BIGINT)"
_STARTED: Final = "CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000000 AS BIGINT)"
_REGISTER: Final = f"INSERT INTO writer (seen_ns) VALUES ({_NOW}) RETURNING id"
_NOTE_COMMIT: Final = f"UPDATE writer SET commits = ?, seen_ns = {_NOW} WHERE id = ? AND is_gone = 0"
_COMMITS: Final = f"SELECT commits FROM {SCHEMA}.writer WHERE id = ?"
# While the server was away nobody could be heard; and what ended then has crashed no writer for sure.
_GONE: Final = f"""
UPDATE writer SET is_gone = 1 WHERE id IN (
    SELECT id FROM writer WHERE is_gone = 0
    AND greatest(seen_ns, {_STARTED}) < {_NOW} - CAST(? AS BIGINT) FOR UPDATE SKIP LOCKED)
RETURNING id, CASE WHEN seen_ns > {_STARTED} - CAST(? AS BIGINT) THEN 1 ELSE 0 END"""


def create(connection: psycopg.Connection[Any]) -> None:
    """Create the tables in an empty schema.

    Raises:
        UnfitFile: the schema holds something else, or was written by another ragtrace.
        psycopg.Error: it cannot be created.
    """
    connection.execute(_SET_SCHEMA)
    with _pipelined(connection) as db:
        is_there = refuse_others(db)
    if not is_there:
        try:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            connection.execute(postgres_schema())
        except (errors.DuplicateTable, errors.UniqueViolation):  # another process was first
            connection.rollback()
            connection.execute(_SET_SCHEMA)
            with _pipelined(connection) as db:
                refuse_others(db)
    connection.commit()


def refuse_others(db: Db) -> bool:
    """Say whether the schema holds a store; ``False`` if it is empty.

    Raises:
        UnfitFile: it holds something else, or was written by another ragtrace.
        psycopg.Error: it cannot be read.
    """
    tables = [
        name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = ?", (SCHEMA,))
    ]
    if not tables:
        return False
    found = db.execute(_VERSION).fetchone() if "store_version" in tables else None
    version = found and found[0]
    if version is None:
        raise UnfitFile(
            f"its schema {SCHEMA!r} holds the tables of another program",
            "give the collector another database",
        )
    if version != str(VERSION):
        raise UnfitFile(
            f"it was written by another ragtrace: it is of version {version}, and this one knows {VERSION}",
            "start the ragtrace that wrote it, or name another database",
        )
    return True


_VERSION: Final = f"SELECT to_jsonb(found) ->> 'version' FROM {SCHEMA}.store_version found"


def postgres_schema() -> str:
    """Return the tables and triggers, as PostgreSQL takes them."""
    schema = re.sub(r"--.*", "", TABLES)
    for old, new in _TYPES.items():
        schema = re.sub(old, new, schema)
    schema += f"""
CREATE TABLE writer (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seen_ns BIGINT NOT NULL,
    commits BIGINT NOT NULL DEFAULT 0, is_gone BIGINT NOT NULL DEFAULT 0) WITH (fillfactor = 50);
CREATE TABLE stored_bytes (
    writer BIGINT NOT NULL, kind TEXT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (writer, kind))
    WITH (fillfactor = 50);
CREATE TABLE store_version (version BIGINT NOT NULL);
INSERT INTO store_version VALUES ({VERSION});
"""
    for trigger in triggers():
        when = f" WHEN ({trigger.when})" if trigger.when else ""
        body = trigger.body.replace("this_writer()", "current_setting('ragtrace.writer')::bigint")
        schema += (
            f"CREATE FUNCTION {trigger.name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}"
            f" RETURN NULL; END $$;\nCREATE TRIGGER {trigger.name} {trigger.event} FOR EACH ROW{when}"
            f" EXECUTE FUNCTION {trigger.name}();\n"
        )
    for table, size in _SIZES.items():
        schema += _counting(table, "INSERT", "NEW TABLE AS now", f"(SELECT sum({size}) FROM now)")
        schema += _counting(table, "DELETE", "OLD TABLE AS was", f"-(SELECT sum({size}) FROM was)")
        if table in _RESIZED:
            grown = f"(SELECT sum({size}) FROM now) - (SELECT sum({size}) FROM was)"
            schema += _counting(table, "UPDATE", "OLD TABLE AS was NEW TABLE AS now", grown)
    return schema


_SIZES: Final[Mapping[str, str]] = {
    "slice": "octet_length(payload) + 100",
    "parcel": "octet_length(payload) + 200",
    "addition": "octet_length(payload) + 200",
    "kept_carrier": "octet_length(payload) + coalesce(octet_length(record), 0) + 300",
    "session_turn": "octet_length(turn) + octet_length(place) + coalesce(octet_length(checked), 0) + 300",
    "answer_row": "coalesce(octet_length(question), 0) + 2000",
    "job": "1000",
}
"""What rows take, about, with their indexes. Tables do not shrink when rows are deleted: so these count."""
_RESIZED: Final = frozenset({"kept_carrier", "session_turn", "answer_row"})
"""The tables whose rows lose or change their content."""


def _counting(table: str, event: str, referencing: str, number: str) -> str:
    name = f"{table}_{event.lower()}_bytes"
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" INSERT INTO stored_bytes VALUES (current_setting('ragtrace.writer')::bigint, '{table}',"
        f" coalesce({number}, 0)) ON CONFLICT (writer, kind) DO UPDATE"
        " SET number = stored_bytes.number + excluded.number; RETURN NULL; END $$;\n"
        f"CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {referencing}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {name}();\n"
    )


_TYPES: Final[Mapping[str, str]] = {
    r"before_colon\((\w+)\)": r"split_part(\1, ':', 1)",
    r"behind_colon\((\w+)\)": r"substr(\1, length(split_part(\1, ':', 1)) + 2)",
    r"\bINTEGER PRIMARY KEY": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    r"\bINTEGER\b": "BIGINT",
    r"\bREAL\b": "DOUBLE PRECISION",
    r"\bBLOB\b": "BYTEA",
    r"\bTEXT\b": 'TEXT COLLATE "C"',
    r"(?<=writer BIGINT NOT NULL DEFAULT) 0": " current_setting('ragtrace.writer')::bigint",
    r"\) WITHOUT ROWID": ")",
}


def why(exc: Exception) -> str:
    """Return what a server or its driver says, in one line: never the password, nor what a row holds."""
    said = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
    return " ".join((said or str(exc)).split()) or type(exc).__name__


def advised(exc: Exception) -> str:
    """Return the same, with what to do about it."""
    for kinds, advice in _ADVICE.items():
        if isinstance(exc, kinds):
            return f"{why(exc)}: {advice}"
    return why(exc)


_ADVICE: Final[Mapping[tuple[type[Exception], ...], str]] = {
    (errors.ReadOnlySqlTransaction,): "name the server that takes writes (of several, by"
    " ?target_session_attrs=read-write), or set default_transaction_read_only to off for this user",
    (
        errors.InsufficientPrivilege,
    ): f"let its user create the schema {SCHEMA!r} (GRANT CREATE ON DATABASE), or"
    " make it the owner of that schema and its tables",
    (errors.DiskFull, errors.OutOfMemory): "make room; it goes on by itself",
    (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction): "restore a backup",
    (errors.TooManyConnections,): "raise max_connections, or put pgbouncer in front",
    (
        psycopg.OperationalError,
    ): "see that the server runs, and that `store.url` has the right host, port, database,"
    " user, password and TLS",
}
"""By what failed; the last is a connection that could not be made, or was cut."""
