"""Names as small numbers, bounded against senders who invent names."""

from __future__ import annotations

import sqlite3
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


class Stream(NamedTuple):
    """Where answers come from, as the numbers of words; 0 for an empty name."""

    tenant: int
    service: int
    model: int
    prompt_version: int


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


def word_of(db: sqlite3.Connection, kind: Kind, text: str, hour: int) -> int:
    """Return the number of a name, which an answer of this hour has; a new name gets one."""
    if not text:
        return 0
    row = _seen(db, kind, clean(text), hour)
    if row is not None:
        return row
    (known,) = db.execute("SELECT count(*) FROM answer_word WHERE kind = ?", (kind,)).fetchone()
    if known < MOST_WORDS:
        return _new_word(db, kind, clean(text), hour)
    others = _seen(db, kind, OTHERS, hour)
    return _new_word(db, kind, OTHERS, hour) if others is None else others


def _seen(db: sqlite3.Connection, kind: Kind, text: str, hour: int) -> int | None:
    row = db.execute(
        "SELECT id, newest_hour FROM answer_word WHERE kind = ? AND text = ?", (kind, text)
    ).fetchone()
    if row is None:
        return None
    if row[1] < hour:
        db.execute("UPDATE answer_word SET newest_hour = ? WHERE id = ?", (hour, row[0]))
    return int(row[0])


def _new_word(db: sqlite3.Connection, kind: Kind, text: str, hour: int) -> int:
    number = _free(db, "answer_word")
    db.execute(
        "INSERT INTO answer_word (id, kind, text, newest_hour) VALUES (?, ?, ?, ?)",
        (number, kind, text, hour),
    )
    return number


def _free(db: sqlite3.Connection, table: str) -> int:
    """Return the smallest free number: small ones take fewer bytes."""
    (number,) = db.execute(
        f"SELECT min(id) FROM (SELECT 1 AS id UNION ALL SELECT id + 1 FROM {table})"
        f" WHERE id NOT IN (SELECT id FROM {table})"
    ).fetchone()
    return int(number)


def stream_of(db: sqlite3.Connection, summary: AnswerSummary, hour: int) -> int:
    """Return the number of where an answer comes from."""
    names = Stream(
        tenant=word_of(db, Kind.TENANT, summary.key.tenant, hour),
        service=word_of(db, Kind.SERVICE, summary.service, hour),
        model=word_of(db, Kind.MODEL, summary.model, hour),
        prompt_version=word_of(db, Kind.PROMPT_VERSION, summary.prompt_version, hour),
    )
    known = _stream(db, names, hour)
    if known is not None:
        return known
    (streams,) = db.execute("SELECT count(*) FROM answer_stream").fetchone()
    if streams < MOST_STREAMS:
        return _new_stream(db, names, hour)
    # beyond the bound, a stream is told by its tenant alone, so that none sees another's answers
    rest = Stream(
        names.tenant,
        *(word_of(db, kind, OTHERS, hour) for kind in (Kind.SERVICE, Kind.MODEL, Kind.PROMPT_VERSION)),
    )
    others = _stream(db, rest, hour)
    return _new_stream(db, rest, hour) if others is None else others


def _stream(db: sqlite3.Connection, names: Stream, hour: int) -> int | None:
    row = db.execute(
        "SELECT id, newest_hour FROM answer_stream"
        " WHERE tenant = ? AND service = ? AND model = ? AND prompt_version = ?",
        names,
    ).fetchone()
    if row is None:
        return None
    if row[1] < hour:
        db.execute("UPDATE answer_stream SET newest_hour = ? WHERE id = ?", (hour, row[0]))
    return int(row[0])


def _new_stream(db: sqlite3.Connection, names: Stream, hour: int) -> int:
    number = _free(db, "answer_stream")
    db.execute("INSERT INTO answer_stream VALUES (?, ?, ?, ?, ?, ?)", (number, *names, hour))
    return number


def words(db: sqlite3.Connection) -> dict[int, str]:
    """Return all names by number."""
    return {0: "", **dict(db.execute("SELECT id, text FROM answer_word"))}


def streams(db: sqlite3.Connection) -> dict[int, Stream]:
    """Return all streams by number."""
    rows = db.execute("SELECT id, tenant, service, model, prompt_version FROM answer_stream")
    return {number: Stream(*names) for number, *names in rows}


def forget_unused(db: sqlite3.Connection, *, oldest_hour: int) -> None:
    """Delete the names that only forgotten answers had: those from before the oldest kept hour."""
    db.execute("DELETE FROM answer_stream WHERE newest_hour < ?", (oldest_hour,))
    db.execute("DELETE FROM answer_word WHERE newest_hour < ?", (oldest_hour,))
