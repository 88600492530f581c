"""Reviews and saved views in one private SQLite file, with the reviewed texts and the spans to deliver."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import (
    ConfigError,
    ReadError,
    SendError,
    SendRefused,
    SendRejected,
    SendUnconfirmed,
    WriteError,
)
from ragtrace.model import RagRecord, VerdictLabel
from ragtrace.ports import SpanSink
from ragtrace.reviews.review import LabelRow, Review, ReviewPick, label_row
from ragtrace.sqlite_file import SqliteFileError, SqliteForm, open_private, transaction

_SCHEMA: Final = """
CREATE TABLE review (
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    carrier_span_id TEXT NOT NULL, claim TEXT NOT NULL, start INTEGER, end INTEGER,
    verdict TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL, reviewer TEXT NOT NULL,
    time_ns INTEGER NOT NULL, picked TEXT NOT NULL, is_current INTEGER NOT NULL DEFAULT 1);
CREATE INDEX review_of ON review (trace_id, span_id, tenant) WHERE is_current;
CREATE TABLE answer (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    question TEXT, contexts TEXT NOT NULL, answer TEXT, claims INTEGER,
    PRIMARY KEY (trace_id, span_id, tenant)) WITHOUT ROWID;
CREATE TABLE gone (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    PRIMARY KEY (trace_id, span_id, tenant)) WITHOUT ROWID;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, payload BLOB NOT NULL, reason TEXT NOT NULL DEFAULT '');
CREATE TABLE view (
    tenant TEXT NOT NULL, name TEXT NOT NULL, query TEXT NOT NULL, PRIMARY KEY (tenant, name)) WITHOUT ROWID;
"""
_FORM: Final = SqliteForm(application_id=0x52545256, steps=(_SCHEMA,), pragmas=("synchronous = FULL",))
_OF_REVIEW: Final = (
    *(
        "carrier_span_id",
        "claim",
        "start",
        "end",
        "verdict",
        "label",
        "note",
        "reviewer",
        "time_ns",
        "picked",
    ),
)
_COLUMNS: Final = f"trace_id, span_id, tenant, {', '.join(_OF_REVIEW)}"
_OF_KEY: Final = "trace_id = ? AND span_id = ? AND tenant = ?"
_ALL: Final = "\0"
"""The tenant of views that readers of all tenants saved."""


class KeptSpan(NamedTuple):
    """A span that waits for its delivery."""

    id: int
    payload: bytes


class ReviewFile:
    """Keeps reviews and saved views: in a file of its own, as pages may run beside the collector.

    Methods that write raise WriteError if the file cannot be written: nothing that was kept is lost. Those
    that read raise ReadError.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            ConfigError: it cannot be used; the message says why.
        """
        self._path = path
        self._turn = threading.Lock()
        self._known: tuple[tuple[int, int, str | None], Mapping[AnswerKey, Sequence[Review]]] | None = None
        self.added = asyncio.Event()
        """Set when there are new spans to deliver."""
        try:
            self._db = open_private(path, _FORM, is_shared=True)
        except OSError as exc:
            why = exc if isinstance(exc, SqliteFileError) else exc.strerror or exc
            raise ConfigError(f"reviews cannot be kept in {str(path)!r}: {why}") from exc

    async def add(
        self,
        reviews: Sequence[Review],
        *,
        record: RagRecord,
        claims: int | None = None,
        outbox: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Keep reviews of one answer, all or none. A person's later review of a claim replaces the earlier.

        What a person was asked at random stays a random review, also if they change it later. ``claims`` is
        how many claims the evaluation has, reviewed or not, and ``outbox`` has serialized spans of the
        reviews by sink, which are kept until they are delivered.
        """

        def work(db: sqlite3.Connection) -> None:
            for review in reviews:
                _replace(db, review)
            if reviews:
                _keep_answer(db, reviews[0].key, record, claims)
            db.executemany("INSERT INTO outbox (sink, payload) VALUES (?, ?)", list(outbox.items()))

        await self._write(work)
        self.added.set()

    async def undo(self, key: AnswerKey, *, reviewer: str) -> None:
        """Take back what a person said of an answer; the history stays."""
        statement = f"UPDATE review SET is_current = 0 WHERE {_OF_KEY} AND reviewer = ?"
        await self._write(lambda db: db.execute(statement, (*key, reviewer)))

    async def of(self, key: AnswerKey) -> Sequence[Review]:
        """Return the reviews of an answer, the newest first."""
        query = f"SELECT {_COLUMNS} FROM review WHERE {_OF_KEY} AND is_current ORDER BY time_ns DESC, id DESC"
        return [_review(row) for row in await self._read(query, key)]

    async def reviewed(self, *, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
        """Return every reviewed answer, with its reviews, the newest first.

        As long as nothing is written they are read once: ten thousand answers take a quarter of a second.
        """
        return await asyncio.to_thread(self._reviewed, tenant)

    def _reviewed(self, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
        with self._reading() as db:
            (version,) = db.execute("PRAGMA data_version").fetchone()
            state = (version, db.total_changes, tenant)
            if self._known is None or self._known[0] != state:
                self._known = state, _reviews_in(db, tenant)
            return self._known[1]

    async def labels(self, *, tenant: str | None) -> Sequence[LabelRow]:
        """Return the reviewed answers in the form that ``ragtrace calibrate`` reads."""
        reviewed = await self.reviewed(tenant=tenant)
        texts = {
            AnswerKey(trace_id, span_id, of_tenant): (question, json.loads(contexts), answer, asked)
            for trace_id, span_id, of_tenant, question, contexts, answer, asked in await self._read(
                "SELECT trace_id, span_id, tenant, question, contexts, answer, claims FROM answer", ()
            )
        }
        return [
            label_row(key, reviews, question=question, contexts=contexts, answer=answer, asked=asked)
            for key, reviews in reviewed.items()
            for question, contexts, answer, asked in [texts[key]]
        ]

    async def pass_over(self, key: AnswerKey) -> None:
        """Keep that an answer cannot be reviewed: its content is gone."""
        statement = "INSERT INTO gone VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        await self._write(lambda db: db.execute(statement, key))

    async def passed_over(self, *, tenant: str | None) -> frozenset[AnswerKey]:
        """Return the answers whose content is gone."""
        query = "SELECT trace_id, span_id, tenant FROM gone WHERE (?1 IS NULL OR tenant = ?1)"
        return frozenset(AnswerKey(*row) for row in await self._read(query, (tenant,)))

    async def views(self, *, tenant: str | None) -> Mapping[str, str]:
        """Return the saved filters of the list of answers, which are query strings, by name."""
        query = "SELECT name, query FROM view WHERE tenant = ? ORDER BY name"
        return dict(await self._read(query, (_owner(tenant),)))

    async def save_view(self, name: str, query: str, *, tenant: str | None) -> None:
        """Save a view, in place of one of the same name."""
        statement = "INSERT INTO view VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET query = excluded.query"
        await self._write(lambda db: db.execute(statement, (_owner(tenant), name, query)))

    async def delete_view(self, name: str, *, tenant: str | None) -> None:
        """Delete a view, if there is one."""
        statement = "DELETE FROM view WHERE tenant = ? AND name = ?"
        await self._write(lambda db: db.execute(statement, (_owner(tenant), name)))

    async def waiting(self, sink: str, *, limit: int = 64) -> Sequence[KeptSpan]:
        """Return spans to deliver to a sink, the oldest first."""
        query = "SELECT id, payload FROM outbox WHERE sink = ? AND reason = '' ORDER BY id LIMIT ?"
        return [KeptSpan(*row) for row in await self._read(query, (sink, limit))]

    async def delivered(self, spans: Sequence[KeptSpan]) -> None:
        """Forget spans that a sink has."""
        rows = [(span.id,) for span in spans]
        await self._write(lambda db: db.executemany("DELETE FROM outbox WHERE id = ?", rows))

    async def refused(self, spans: Sequence[KeptSpan], reason: str) -> None:
        """Set spans aside that a sink will never take."""
        rows = [(reason, span.id) for span in spans]
        await self._write(lambda db: db.executemany("UPDATE outbox SET reason = ? WHERE id = ?", rows))

    async def aclose(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._turn:
            self._db.close()

    async def _read(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        def work() -> list[tuple[Any, ...]]:
            with self._reading() as db:
                return db.execute(query, tuple(values)).fetchall()

        return await asyncio.to_thread(work)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._turn:
                yield self._db
        except sqlite3.Error as exc:
            raise ReadError(f"the reviews in {str(self._path)!r} cannot be read: {exc}") from exc

    async def _write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        def run() -> None:
            try:
                with self._turn, transaction(self._db):
                    work(self._db)
            except sqlite3.Error as exc:
                raise WriteError(
                    f"this could not be kept in {str(self._path)!r} ({exc}): nothing that was kept before is"
                    " lost. Make room, or make the file writable, then send it again."
                ) from exc

        await asyncio.to_thread(run)


def _reviews_in(db: sqlite3.Connection, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
    query = (
        f"SELECT {_COLUMNS} FROM review WHERE is_current AND (?1 IS NULL OR tenant = ?1)"
        " ORDER BY time_ns DESC, id DESC"
    )
    found: defaultdict[AnswerKey, list[Review]] = defaultdict(list)
    for row in db.execute(query, (tenant,)):
        review = _review(row)
        found[review.key].append(review)
    return MappingProxyType(dict(found))


def _replace(db: sqlite3.Connection, review: Review) -> None:
    earlier = db.execute(
        f"UPDATE review SET is_current = 0 WHERE {_OF_KEY} AND reviewer = ? AND claim = ? AND start IS ?"
        " AND is_current RETURNING picked",
        (*review.key, review.reviewer, review.claim, review.start),
    ).fetchall()
    picked = ReviewPick.RANDOM if (ReviewPick.RANDOM.value,) in earlier else review.picked
    db.execute(
        f"INSERT INTO review ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*review.key, *(getattr(replace(review, picked=picked), name) for name in _OF_REVIEW)),
    )


def _keep_answer(db: sqlite3.Connection, key: AnswerKey, record: RagRecord, claims: int | None) -> None:
    contexts = json.dumps([[chunk.id, chunk.text or ""] for chunk in record.chunks])
    db.execute(
        "INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " question = excluded.question, contexts = excluded.contexts, answer = excluded.answer,"
        " claims = excluded.claims",
        (*key, record.question, contexts, record.answer, claims),
    )


def _review(row: Sequence[Any]) -> Review:
    told = dict(zip(_OF_REVIEW, row[3:], strict=True))
    told |= {name: VerdictLabel(told[name]) for name in ("verdict", "label")}
    return Review(key=AnswerKey(*row[:3]), **{**told, "picked": ReviewPick(told["picked"])})


def _owner(tenant: str | None) -> str:
    return _ALL if tenant is None else tenant


log = logging.getLogger("ragtrace.reviews")

_PAUSE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDelivery:
    """Sends what waits, at once and again after a pause if a sink is down."""

    reviews: ReviewFile
    sinks: Mapping[str, SpanSink]
    """By the names under which spans wait."""
    pause_s: float = _PAUSE_S

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self.reviews.added.clear()
            for name in self.sinks:
                try:
                    await self.deliver(name)
                except (ReadError, WriteError) as exc:  # it is sent again, and is the same span
                    log.warning("%s", exc)
            try:
                async with asyncio.timeout(self.pause_s):
                    await self.reviews.added.wait()
            except TimeoutError:
                pass

    async def deliver(self, name: str) -> None:
        """Send what waits for one sink, until nothing is left or it fails.

        Raises:
            ReadError: the file cannot be read.
            WriteError: it cannot be written: what was delivered still waits.
        """
        sink = self.sinks[name]
        while waiting := await self.reviews.waiting(name):
            for span in waiting:
                try:
                    await sink.send(span.payload)
                except SendRefused as exc:
                    log.warning("reviews wait for %s: %s", sink.name, exc)
                    return
                except SendRejected as exc:
                    log.warning("a review was refused by %s: %s", sink.name, exc)
                    await self.reviews.refused([span], str(exc))
                    continue
                except SendUnconfirmed:
                    pass  # it reported success: a second copy would be the same span
                except SendError as exc:
                    log.warning("reviews wait for %s: %s", sink.name, exc)
                    return
                await self.reviews.delivered([span])
