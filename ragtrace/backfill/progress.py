"""What a back-fill did: the outcome of every record, and on disk its progress.

A stopped run can resume, and no run pays twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ragtrace import semconv
from ragtrace.budget import (
    Budget,
    BudgetStatus,
    ExceededLimit,
    Limit,
    Period,
    Reservation,
    Spend,
)
from ragtrace.budget.reserve import reservation
from ragtrace.conversations import PlacedTurn, SessionName, SessionSettings, Turn, turn_of_json
from ragtrace.errors import ConfigError
from ragtrace.files import state_folder
from ragtrace.model import AnswerOutcome, Evaluation, Status, Usage, outcome_of
from ragtrace.sql import SqliteForm, is_busy, open_private, primary_code, sqlite_fault, transaction
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Span


@dataclass(kw_only=True)
class BackfillReport:
    """The outcome of every trace and record: ``records`` is the sum of ``sampled_out``,
    ``already_evaluated``, ``judged``, ``ineligible``, ``failed`` and ``left``."""

    traces: int = 0
    not_found: list[str] = field(default_factory=list)
    """Requested or found trace ids that the source does not have."""
    unread: list[str] = field(default_factory=list)
    """Trace ids that the source could not return."""
    unreadable: dict[str, int] = field(default_factory=Counter)
    """Traces on which the extraction failed, by type of the error."""
    without_record: int = 0
    """Traces without a RAG call."""
    cut_windows: int = 0
    """Time ranges with more traces than the source returns: some are missing."""
    records: int = 0
    sampled_out: int = 0
    already_evaluated: int = 0
    """Their carrier is in the source or the destination, or an earlier run sent it."""
    judged: int = 0
    ineligible: dict[str, int] = field(default_factory=Counter)
    """Records without a score because there was nothing to judge, by reason, as in the collector's ledger."""
    failed: dict[str, int] = field(default_factory=Counter)
    """Records on which the judge failed, by type. No carrier was sent: a second run tries them again."""
    left: int = 0
    """Selected records that were not judged: the run was stopped, or its budget was used up."""
    labels: dict[str, int] = field(default_factory=Counter)
    """``pass`` and ``fail`` of the metrics with a score."""
    sent: int = 0
    rejected: dict[str, int] = field(default_factory=Counter)
    """Carriers that the destination rejected, by its message."""
    usage: Usage = field(default_factory=Usage)
    is_stopped: bool = False
    """Whether the run was stopped before its end."""
    over_budget: str = ""
    """The limit that had no room for a request; empty if none."""
    broken_off: str = ""
    """Why reading the source stopped early; empty if it was read completely."""
    sessions: dict[str, int] = field(default_factory=Counter)
    """Sessions that were judged, by label; empty if they are not asked for."""
    sessions_known: int = 0
    """Sessions of which a span was written before, by these verdicts on the same turns."""
    sessions_open: int = 0
    """Sessions that are not over yet, or were not read to their end: a later run judges them."""
    sessions_left: int = 0
    """Sessions that were not judged: the run was stopped, or its budget was used up."""
    sessions_failed: dict[str, int] = field(default_factory=Counter)
    """Sessions on which the judge failed, by type: a later run tries them again."""

    @property
    def is_behind(self) -> bool:
        """Whether a later run has something to do."""
        return bool(self.left or self.unread or self.sessions_left or self.is_stopped or self.broken_off)

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed, was rejected, truncated or missing."""
        missing = (self.not_found, self.unread, self.unreadable, self.cut_windows)
        gaps = (*missing, self.failed, self.rejected, self.sessions_failed)
        return not any(gaps) and not self.broken_off


@dataclass(kw_only=True)
class RunCounts(BackfillReport):
    """The counts of a running back-fill."""

    is_limited: bool = False
    """Whether the selection's limit ended the search."""
    reached_ns: int = 0
    """The time that a search has reached: Unix time in nanoseconds."""

    @property
    def has_left_some(self) -> bool:
        """Whether a later run must search again for records that were left."""
        return bool(self.left or self.unread or self.sessions_left)

    def leave(self, evaluation: Evaluation) -> None:
        """Count a record as not judged because the budget had no room."""
        self.usage += evaluation.usage
        self.left += 1

    def count(self, evaluation: Evaluation) -> None:
        """Count the outcome of a record: judged if a metric scored, else failed, else ineligible."""
        self.usage += evaluation.usage
        for result in evaluation.results:
            if result.score is not None:
                self.labels[str(result.label)] += 1
        match outcome_of(evaluation):
            case AnswerOutcome(status=Status.FAILED, reason=str(error_type)):
                self.failed[error_type] += 1
            case AnswerOutcome(status=Status.INELIGIBLE, reason=str(skip_reason)):
                self.ineligible[skip_reason] += 1
            case _:
                self.judged += 1

    def report(self) -> BackfillReport:
        """Return the current counts."""
        counts = {each.name: getattr(self, each.name) for each in fields(BackfillReport)}
        plain = {name: dict(count) for name, count in counts.items() if isinstance(count, Counter)}
        return BackfillReport(**{**counts, **plain})


_SCHEMA: Final = """
CREATE TABLE carrier (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, payload BLOB,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE INDEX carrier_waiting ON carrier (trace_id) WHERE payload IS NOT NULL;
CREATE TABLE run (
    name TEXT PRIMARY KEY, since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, reached_ns INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE spent (
    run TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, usd_nano INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE session_turn (
    evaluator TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, start_ns INTEGER NOT NULL,
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, carrier TEXT NOT NULL, bare BLOB NOT NULL, turn BLOB,
    place BLOB NOT NULL, digest TEXT NOT NULL DEFAULT '', checked BLOB, told TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (evaluator, tenant, session, start_ns, trace_id, span_id)) WITHOUT ROWID;
CREATE TABLE session (
    evaluator TEXT NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL, newest_ns INTEGER NOT NULL,
    is_open INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (evaluator, tenant, session)) WITHOUT ROWID;
CREATE INDEX session_open ON session (evaluator, newest_ns) WHERE is_open = 1;
"""
_FORM: Final = SqliteForm(
    application_id=0x72616770,  # "ragp"
    schema=_SCHEMA,
    version=2,
    pragmas=("locking_mode = EXCLUSIVE",),  # two runs over one file would both pay
    busy_s=0,
)

_IN_USE: Final = (
    "another back-fill is using it, and both would pay for the same answers: wait for it, or name another "
    "file with --progress"
)
_DAMAGED: Final = (
    "it is damaged: move it away, or restore a copy. Without it, answers are judged again whose carriers are "
    "neither in the source nor in the destination"
)


class Progress:
    """The carriers that were built, the unsent ones, and how far each run came.

    A carrier is stored until the destination has it, so that an answer is paid for once even if the run
    stops. Use it in a ``with`` statement.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._is_open = False

    def __enter__(self) -> Self:
        """Open the file (readable by its owner only).

        Raises:
            ConfigError: it cannot be used.
        """
        try:
            self._db = open_private(self._path, _FORM, is_shared=True)
        except OSError as exc:
            hint = _IN_USE if is_busy(exc) else exc
            raise ConfigError(f"the progress file {str(self._path)!r} cannot be used: {hint}") from exc
        self._is_open = True
        try:
            with self._using() as db:
                if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError(_DAMAGED)
        except BaseException:
            self._db.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A cancelled task may leave a writing thread: SQLite crashes if the file is closed meanwhile.
        with self._writing:
            self._is_open = False
            self._db.close()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._db
        except sqlite3.Error as exc:
            is_damaged = primary_code(exc) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            why = _DAMAGED if is_damaged or str(exc) == _DAMAGED else sqlite_fault(exc)
            raise ConfigError(f"the progress file {str(self._path)!r} cannot be used: {why}") from exc

    @staticmethod
    def default_path(*, source: str, destination: str) -> Path:
        """Return the default progress file for a source and a destination."""
        name = hashlib.sha256(f"{source}|{destination}".encode()).hexdigest()[:16]
        return state_folder() / "backfill" / f"{name}.db"

    def has(self, trace_id: str, span_id: str) -> bool:
        """Return whether this carrier was built before."""
        return bool(self.rows("SELECT 1 FROM carrier WHERE trace_id = ? AND span_id = ?", trace_id, span_id))

    async def keep(self, trace_id: str, span_id: str, payload: bytes) -> None:
        """Store a carrier until it is sent."""
        await self.write(("INSERT OR REPLACE INTO carrier VALUES (?, ?, ?)", (trace_id, span_id, payload)))

    async def sent(self, trace_id: str, span_id: str) -> None:
        """Mark a carrier as sent, and delete its payload."""
        statement = "UPDATE carrier SET payload = NULL WHERE trace_id = ? AND span_id = ?"
        await self.write((statement, (trace_id, span_id)))

    def waiting(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield trace id, span id and payload of the carriers that an earlier run did not send."""
        query = "SELECT trace_id, span_id, payload FROM carrier WHERE payload IS NOT NULL"
        yield from ((trace_id, span_id, payload) for trace_id, span_id, payload in self.rows(query))

    def begin(self, run: str, *, since_ns: int, until_ns: int) -> None:
        """Record the time range of a run, replacing an earlier one of this name and what that spent."""
        self._write_now(
            [
                ("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?)", (run, since_ns, until_ns, since_ns)),
                ("DELETE FROM spent WHERE run = ?", (run,)),
            ]
        )

    def unfinished(self, run: str) -> tuple[int, int, int] | None:
        """Return since, until and the reached time of an unfinished run of this name."""
        query = "SELECT since_ns, until_ns, reached_ns FROM run WHERE name = ? AND reached_ns < until_ns"
        return next(((since, until, reached) for since, until, reached in self.rows(query, run)), None)

    async def reached(self, run: str, time_ns: int) -> None:
        """Record that everything before this moment is done."""
        await self.write(("UPDATE run SET reached_ns = ? WHERE name = ?", (time_ns, run)))

    def spent(self, run: str) -> Spend:
        """Return what a run has spent; pending requests count by their estimates."""
        for calls, tokens, usd_nano in self.rows(
            "SELECT calls, tokens, usd_nano FROM spent WHERE run = ?", run
        ):
            return Spend(calls=calls, tokens=tokens, usd_nano=usd_nano)
        return Spend()

    async def spend(self, run: str, amount: Spend) -> None:
        """Add to what a run has spent; a negative amount corrects an estimate."""
        statement = (
            "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,"
            " tokens = tokens + excluded.tokens, usd_nano = usd_nano + excluded.usd_nano"
        )
        await self.write((statement, (run, amount.calls, amount.tokens, amount.usd_nano)))

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._using() as db:
            return db.execute(query, values).fetchall()

    async def write(self, *statements: tuple[str, Sequence[object]]) -> None:
        """Execute statements as one transaction."""
        await asyncio.to_thread(self._write_now, statements)

    def _write_now(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        with self._writing:
            if self._is_open:
                with self._using() as db, transaction(db) if len(statements) > 1 else nullcontext():
                    for statement, values in statements:
                        db.execute(statement, values)


class WrittenSpan(NamedTuple):
    """The span of a session that somebody wrote before."""

    span_id: str
    supersedes: str
    unchecked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTurn:
    """A turn that is read back."""

    turn: Turn
    """Without its texts if they are deleted."""
    place: bytes
    digest: str
    checked: bytes | None
    """What the judge said of it against the earlier turns with this digest."""
    written: tuple[WrittenSpan, ...]
    """Spans of its session under this answer."""

    @property
    def last_span(self) -> Span:
        """Where the span of a session goes whose last turn this is."""
        (span,) = decode(self.place)
        return span


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurns:
    """Keeps turns on disk, so that memory does not grow with the sessions of a run.

    Turns belong to an evaluator: that of the run.
    """

    progress: Progress
    evaluator: str
    """Its version."""

    async def add(self, placed: PlacedTurn, spans: Sequence[Span] = (), *, is_decided: bool = True) -> None:
        """Keep a turn, and the spans of sessions under its answer. Its session is open then.

        Texts that are known already are not replaced by none, and a turn with this carrier not by an
        undecided one.
        """
        name, turn = placed.name, placed.turn
        key = (self.evaluator, name.tenant, name.session, turn.start_ns, *turn.key)
        known = self.progress.rows(f"SELECT carrier, turn, told FROM session_turn WHERE {_KEY}", *key)
        carrier, known_text, told = known[0] if known else ("", None, "[]")
        is_same = bool(known) and carrier == turn.carrier_span_id
        text = known_text
        if is_decided or not is_same:
            text = turn.to_json() if turn.has_text else known_text if is_same else None
        before = tuple(_written(told))
        written = dict.fromkeys((*before, *_session_spans(spans, name)))
        if is_same and text == known_text and len(written) == len(before):
            await self._open(key)
            return
        bare, place = turn.without_text().to_json(), encode([placed.place])
        added = (*key, turn.carrier_span_id, bare, text, place, json.dumps(list(written)))
        await self.progress.write((_ADD_TURN, added), (_OPEN_SESSION, key[:4]))

    async def _open(self, key: tuple[str, str, str, int, str, str]) -> None:
        """Open the session of a turn that is kept already; most are, and a write waits for the disk."""
        query = "SELECT is_open FROM session WHERE evaluator = ? AND tenant = ? AND session = ?"
        if self.progress.rows(query, *key[:3]) != [(1,)]:
            await self.progress.write((_OPEN_SESSION, key[:4]))

    def open(self, *, before_ns: int) -> list[SessionName]:
        """Return the open sessions whose last turn began before a time, the oldest first."""
        query = (
            "SELECT tenant, session FROM session WHERE evaluator = ? AND is_open = 1 AND newest_ns < ?"
            " ORDER BY newest_ns"
        )
        rows = self.progress.rows(query, self.evaluator, before_ns)
        return [SessionName(tenant=tenant, session=session) for tenant, session in rows]

    def number_open(self) -> int:
        """Count the open sessions."""
        query = "SELECT count(*) FROM session WHERE evaluator = ? AND is_open = 1"
        [(number,)] = self.progress.rows(query, self.evaluator)
        return int(number)

    def sessions(self, name: SessionName, settings: SessionSettings) -> Iterator[list[KnownTurn]]:
        """Yield the turns of each session under an id, in order of time, the newest of too many.

        A turn that comes ``keep_ns`` after the last one begins another session.
        """
        found: list[KnownTurn] = []
        for row in self.progress.rows(_IN_ORDER, self.evaluator, name.tenant, name.session):
            kept = _kept(row)
            if found and kept.turn.start_ns - found[-1].turn.start_ns > settings.keep_ns:
                yield found
                found = []
            found.append(kept)
            del found[: -settings.max_turns]
        if found:
            yield found

    def before(
        self, name: SessionName, start_ns: int, trace_id: str, span_id: str, *, limit: int
    ) -> list[Turn]:
        """Return the last turns with texts that began before an answer, the newest first."""
        own = (start_ns, trace_id, span_id)
        rows = self.progress.rows(_BEFORE, self.evaluator, name.tenant, name.session, *own, limit)
        return [turn_of_json(turn) for (turn,) in rows]

    async def keep_check(self, name: SessionName, turn: Turn, *, digest: str, checked: bytes) -> None:
        """Keep what the judge said of a turn, so that it is not asked again."""
        key = (self.evaluator, name.tenant, name.session, turn.start_ns, *turn.key)
        await self.progress.write(
            (f"UPDATE session_turn SET digest = ?, checked = ? WHERE {_KEY}", (digest, checked, *key))
        )

    async def written(self, name: SessionName, last: KnownTurn, span: Span, payload: bytes) -> None:
        """Note the span of a session, and keep it until it is sent."""
        key = (self.evaluator, name.tenant, name.session, last.turn.start_ns, *last.turn.key)
        told = dict.fromkeys((*last.written, *_session_spans([span], name)))
        await self.progress.write(
            ("INSERT OR REPLACE INTO carrier VALUES (?, ?, ?)", (span.trace_id, span.span_id, payload)),
            (f"UPDATE session_turn SET told = ? WHERE {_KEY}", (json.dumps(list(told)), *key)),
        )

    async def end(self, name: SessionName) -> None:
        """Note that a session is told of."""
        statement = "UPDATE session SET is_open = 0 WHERE evaluator = ? AND tenant = ? AND session = ?"
        await self.progress.write((statement, (self.evaluator, name.tenant, name.session)))

    async def forget(self, *, before_ns: int) -> None:
        """Delete the texts of all sessions that are told of and had no turn since a time."""
        await self.progress.write((_FORGET, (before_ns,)))


_KEY: Final = "evaluator = ? AND tenant = ? AND session = ? AND start_ns = ? AND trace_id = ? AND span_id = ?"

_ADD_TURN: Final = """
INSERT INTO session_turn (
    evaluator, tenant, session, start_ns, trace_id, span_id, carrier, bare, turn, place, told)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET carrier = excluded.carrier, bare = excluded.bare, turn = excluded.turn,
    place = excluded.place, told = excluded.told
"""
_OPEN_SESSION: Final = """
INSERT INTO session (evaluator, tenant, session, newest_ns) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET newest_ns = max(newest_ns, excluded.newest_ns), is_open = 1
"""
_FORGET: Final = """
UPDATE session_turn SET turn = NULL, checked = NULL, digest = ''
WHERE turn IS NOT NULL AND (evaluator, tenant, session) IN (
    SELECT evaluator, tenant, session FROM session WHERE is_open = 0 AND newest_ns < ?)
"""
_BEFORE: Final = """
SELECT turn FROM session_turn
WHERE evaluator = ? AND tenant = ? AND session = ? AND (start_ns, trace_id, span_id) < (?, ?, ?)
    AND turn IS NOT NULL
ORDER BY start_ns DESC, trace_id DESC, span_id DESC LIMIT ?
"""
_IN_ORDER: Final = """
SELECT ifnull(turn, bare), place, digest, checked, told FROM session_turn
WHERE evaluator = ? AND tenant = ? AND session = ? ORDER BY start_ns, trace_id, span_id
"""


def _kept(row: Sequence[Any]) -> KnownTurn:
    turn, place, digest, checked, told = row
    return KnownTurn(
        turn=turn_of_json(turn), place=place, digest=digest, checked=checked, written=tuple(_written(told))
    )


def _written(told: str) -> Iterator[WrittenSpan]:
    return (WrittenSpan(*each) for each in json.loads(told))


def _session_spans(spans: Sequence[Span], name: SessionName) -> Iterator[WrittenSpan]:
    for span in spans:
        if semconv.SESSION_LABEL in span.attributes:
            supersedes = span.attributes.get(semconv.SESSION_SUPERSEDES)
            unchecked = span.attributes.get(semconv.SESSION_UNCHECKED)
            yield WrittenSpan(
                span.span_id,
                supersedes if isinstance(supersedes, str) else "",
                unchecked if isinstance(unchecked, int) else 0,
            )


def run_budget(run: str, limit: Limit) -> Budget:
    """Return the budget of one run."""
    return Budget(name=run, limits={Period.RUN: limit})


@dataclass(slots=True, kw_only=True)
class RunLedger:
    """Keeps what runs spend in their progress file; a `ragtrace.budget.SpendLedger`.

    One process uses it at a time, so it decides in memory, and writes before a request is made.
    """

    progress: Progress
    _spent: dict[str, Spend] = field(default_factory=dict)

    async def reserve(self, budget: Budget, estimate: Spend, *, now_ns: int) -> Reservation | ExceededLimit:
        """Count a request that is about to be made, or return the limit that forbids it."""
        answer = reservation(await self.status(budget, now_ns=now_ns), estimate)
        if isinstance(answer, Reservation):
            await self._add(budget, estimate)
        return answer

    async def settle(self, reserved: Reservation, actual: Spend) -> None:
        """Count what was spent instead of the estimate."""
        await self._add(reserved.budget, actual - reserved.estimate)

    async def status(self, budget: Budget, *, now_ns: int) -> BudgetStatus:
        """Return what the run has spent."""
        if budget.name not in self._spent:
            self._spent[budget.name] = self.progress.spent(budget.name)
        spent = self._spent[budget.name]
        return BudgetStatus(budget=budget, spent=dict.fromkeys(budget.windows(now_ns), spent))

    async def _add(self, budget: Budget, amount: Spend) -> None:
        self._spent[budget.name] += amount
        await self.progress.spend(budget.name, amount)


async def _at_once() -> None:
    """Return at once."""


def _nobody(ledger: RunCounts) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumableRun:
    """A run that can be stopped and resumed."""

    progress: Progress
    name: str = ""
    """The name of a search; its reached time is stored, and a later run resumes there."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """When it is set, pending answers are finished and no new one begins."""
    turn: Callable[[], Awaitable[None]] = _at_once
    """Awaited before each answer, so that others can go first. It must end when ``stop`` is set."""
    watch: Callable[[RunCounts], None] = _nobody
    """Called with the counts of the run when it begins; they are updated while it runs."""
    leaves_waiting: bool = False
    """Whether pending answers are left for a later run instead of finished when the run is stopped."""

    async def pause(self, seconds: float) -> None:
        """Wait until the time is over or the run is stopped, so that retries end soon."""
        await pause(seconds, self.stop)


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait until the time is over or the run is stopped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
