"""Names as small numbers, bounded against senders who invent names."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ragtrace.answers.summary import AnswerSummary

OTHERS: Final = "(others)"
"""In place of all names of a kind beyond the bound."""
MOST_WORDS: Final = 1_000
"""Of a kind. Names that no answer has any more make room."""
MOST_STREAMS: Final = 5_000
_MOST_CHARS: Final = 200


class Kind(IntEnum):
    """What a name is the name of."""

    TENANT = 1
    SERVICE = 2
    MODEL = 3
    PROMPT_VERSION = 4
    METRIC = 5
    REASON = 6
    BLAME = 7
    JUDGE = 8
    EVALUATOR = 9
    RULE = 10
    PIPELINE = 11
    SERVICE_VERSION = 12


class Name(NamedTuple):
    """A name as the answers have it."""

    kind: Kind
    text: str


class _Word(NamedTuple):
    """A name as the table has it."""

    name: Name
    number: int
    newest_hour: int
    is_lower_better: int = 0


_KINDS: Final = range(max(Kind) + 1)


class Stream(NamedTuple):
    """Where answers come from, as the numbers of words; 0 for an empty name."""

    tenant: int
    service: int
    model: int
    prompt_version: int
    service_version: int


_NAMES: Final = ", ".join(Stream._fields)


def clean(text: str) -> str:
    """Return a name that SQLite can hold, not too long."""
    return text[:_MOST_CHARS].encode("utf-8", "replace").decode()


def find_word(db: sqlite3.Connection, kind: Kind, text: str) -> int | None:
    """Return the number of a name; 0 for the empty one, ``None`` if it is not known."""
    if not text:
        return 0
    row = db.execute("SELECT id FROM answer_word WHERE kind = ? AND text = ?", (kind, clean(text))).fetchone()
    return None if row is None else int(row[0])


def tenant_number(db: sqlite3.Connection, tenant: str) -> int:
    """Return the number under which a tenant's answers are; -1 if it has none."""
    known = find_word(db, Kind.TENANT, tenant)
    others = find_word(db, Kind.TENANT, OTHERS) if known is None else None
    return known if known is not None else -1 if others is None else others


class QuadrantMetrics(NamedTuple):
    """The numbers of the two metrics of the quadrant; 0 for one that no answer has."""

    chunk_precision: int
    faithfulness: int


def quadrant_metrics(db: sqlite3.Connection) -> QuadrantMetrics:
    """Return the two metrics of the quadrant."""
    return QuadrantMetrics(*(find_word(db, Kind.METRIC, name) or 0 for name in QuadrantMetrics._fields))


@dataclass(slots=True)
class NameCache:
    """What one writer knows of the names in a file; as many as the file has, at most.

    ``answer_size.names`` is another random number after each change of a name, and goes back with a
    transaction that is rolled back: so what is known here holds as long as that number is the same.
    """

    state: int = 0
    words: tuple[dict[str, _Word], ...] = field(
        default_factory=lambda: tuple({} for _ in range(len(Kind) + 1))
    )
    """By kind."""
    streams: dict[Stream, tuple[int, int]] = field(default_factory=dict)
    """The number, and the newest hour."""
    pair: QuadrantMetrics | None = None

    def refresh(self, db: sqlite3.Connection) -> None:
        """Forget everything if names have changed."""
        (state,) = db.execute("SELECT names FROM answer_size").fetchone()
        if state != self.state:
            for words_of_kind in self.words:
                words_of_kind.clear()
            self.streams.clear()
            self.pair, self.state = None, state

    def note_change(self, db: sqlite3.Connection) -> None:
        """Say that a name has changed, here in the same way."""
        self.pair, self.state = None, random.getrandbits(62)
        db.execute("UPDATE answer_size SET names = ?", (self.state,))


class Names:
    """The numbers of the names of one answer: new names get one, and all are seen in its hour."""

    def __init__(self, db: sqlite3.Connection, cache: NameCache, *, hour: int) -> None:
        cache.refresh(db)
        self._db, self._cache, self._hour = db, cache, hour

    def number(self, kind: Kind, text: str) -> int:
        """Return the number of a name; 0 for the empty one."""
        return self._seen(kind, text).number if text else 0

    def pair(self) -> QuadrantMetrics:
        """Return the two metrics of the quadrant."""
        if self._cache.pair is None:
            self._cache.pair = quadrant_metrics(self._db)
        return self._cache.pair

    def metric(self, name: str, *, is_lower_better: bool) -> int:
        """Return the number of a metric, and note its direction."""
        if not name:
            return 0
        word = self._seen(Kind.METRIC, name)
        if word.is_lower_better != is_lower_better:
            self._change(word._replace(is_lower_better=int(is_lower_better)))
        return word.number

    def stream(self, summary: AnswerSummary) -> int:
        """Return the number of where an answer comes from."""
        stream = Stream(
            tenant=self.number(Kind.TENANT, summary.key.tenant),
            service=self.number(Kind.SERVICE, summary.service),
            model=self.number(Kind.MODEL, summary.model),
            prompt_version=self.number(Kind.PROMPT_VERSION, summary.prompt_version),
            service_version=self.number(Kind.SERVICE_VERSION, summary.service_version),
        )
        known = self._stream(stream)
        if known is not None:
            return known
        (streams,) = self._db.execute("SELECT count(*) FROM answer_stream").fetchone()
        if streams < MOST_STREAMS:
            return self._new_stream(stream)
        # beyond the bound, a stream is told by its tenant alone, so that none sees another's answers
        service, model, prompt = (
            self.number(kind, OTHERS) for kind in (Kind.SERVICE, Kind.MODEL, Kind.PROMPT_VERSION)
        )
        rest = Stream(stream.tenant, service, model, prompt, service_version=0)
        known = self._stream(rest)
        return self._new_stream(rest) if known is None else known

    def _seen(self, kind: Kind, text: str) -> _Word:
        word = self._cache.words[kind].get(text) or self._found(Name(kind, clean(text)))
        if word.newest_hour < self._hour:
            word = self._change(word._replace(newest_hour=self._hour))
        return word

    def _found(self, name: Name) -> _Word:
        word = _find(self._db, name)
        if word is None:
            (known,) = self._db.execute(
                "SELECT count(*) FROM answer_word WHERE kind = ?", (name.kind,)
            ).fetchone()
            if known >= MOST_WORDS and name.text != OTHERS:
                return self._seen(name.kind, OTHERS)
            word = _new_word(self._db, name, self._hour)
            self._cache.note_change(self._db)
        self._cache.words[name.kind][name.text] = word
        return word

    def _change(self, word: _Word) -> _Word:
        self._db.execute(
            "UPDATE answer_word SET newest_hour = ?, is_lower_better = ? WHERE id = ?",
            (word.newest_hour, word.is_lower_better, word.number),
        )
        self._cache.note_change(self._db)
        self._cache.words[word.name.kind][word.name.text] = word
        return word

    def _stream(self, stream: Stream) -> int | None:
        known = self._cache.streams.get(stream) or _find_stream(self._db, stream)
        if known is None:
            return None
        number, newest_hour = known
        if newest_hour < self._hour:
            newest_hour = self._hour
            self._db.execute("UPDATE answer_stream SET newest_hour = ? WHERE id = ?", (newest_hour, number))
            self._cache.note_change(self._db)
        self._cache.streams[stream] = number, newest_hour
        return number

    def _new_stream(self, stream: Stream) -> int:
        number = _free(self._db, "answer_stream")
        self._db.execute(
            f"INSERT INTO answer_stream (id, {_NAMES}, newest_hour) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (number, *stream, self._hour),
        )
        self._cache.note_change(self._db)
        self._cache.streams[stream] = number, self._hour
        return number


def _find(db: sqlite3.Connection, name: Name) -> _Word | None:
    row = db.execute(
        "SELECT id, newest_hour, is_lower_better FROM answer_word WHERE kind = ? AND text = ?", name
    ).fetchone()
    return None if row is None else _Word(name, *row)


def _new_word(db: sqlite3.Connection, name: Name, hour: int) -> _Word:
    number = _free(db, "answer_word")
    db.execute(
        "INSERT INTO answer_word (id, kind, text, newest_hour) VALUES (?, ?, ?, ?)", (number, *name, hour)
    )
    return _Word(name, number, hour)


def _find_stream(db: sqlite3.Connection, stream: Stream) -> tuple[int, int] | None:
    row = db.execute(
        f"SELECT id, newest_hour FROM answer_stream WHERE ({_NAMES}) = (?, ?, ?, ?, ?)",
        stream,
    ).fetchone()
    return None if row is None else (int(row[0]), int(row[1]))


def _free(db: sqlite3.Connection, table: str) -> int:
    """Return the smallest free number: small ones take fewer bytes."""
    (number,) = db.execute(
        f"SELECT min(id) FROM (SELECT 1 AS id UNION ALL SELECT id + 1 FROM {table})"
        f" WHERE id NOT IN (SELECT id FROM {table})"
    ).fetchone()
    return int(number)


def words(db: sqlite3.Connection) -> dict[int, str]:
    """Return all names by number."""
    return {0: "", **dict(db.execute("SELECT id, text FROM answer_word"))}


def streams(db: sqlite3.Connection) -> dict[int, Stream]:
    """Return all streams by number."""
    rows = db.execute(f"SELECT id, {_NAMES} FROM answer_stream")
    return {number: Stream(*names) for number, *names in rows}


def forget_unused(db: sqlite3.Connection, *, oldest_hour: int) -> None:
    """Delete the names that only forgotten answers had: those from before the oldest kept hour."""
    db.execute("DELETE FROM answer_stream WHERE newest_hour < ?", (oldest_hour,))
    db.execute("DELETE FROM answer_word WHERE newest_hour < ?", (oldest_hour,))
    NameCache().note_change(db)
