"""What the index keeps, and what it forgets."""

from __future__ import annotations

import sqlite3

import pytest

from ragtrace.answers.index.tables import INDEX_STEPS, INDEX_TABLES
from ragtrace.answers.index.writes import NameCache, forget, note_feedback, put, size
from ragtrace.model import VerdictCounts
from tests.unit.answers.rows import NOON_NS, a_row


@pytest.fixture
def db() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript(INDEX_TABLES)
    return made


def contents(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables if name != "answer_size"}


def test_carrier_sent_twice_is_one_row(db: sqlite3.Connection) -> None:
    put(db, a_row(1))
    before = contents(db)
    put(db, a_row(1))
    assert (contents(db), size(db)) == (before, 1)


def test_forgetting_everything_leaves_nothing_behind(db: sqlite3.Connection) -> None:
    for number in range(5):
        put(db, a_row(number, 0.1 * number, trace=1, probability=0.3, minute=40 * number, reason="why"))
    put(db, a_row(9, trace=1, carrier=99, supersedes=1_000_002))
    assert len(forget(db, before_ns=NOON_NS * 2, most_rows=0, at_once=4)) == 4
    assert len(forget(db, before_ns=NOON_NS * 2, most_rows=0, at_once=4)) == 2
    assert not any(contents(db).values())
    assert size(db) == 0


def test_oldest_are_forgotten_first_and_only_as_many_as_there_are_too_many(db: sqlite3.Connection) -> None:
    for number in (3, 1, 2, 4):
        put(db, a_row(number, minute=number))
    assert len(forget(db, before_ns=0, most_rows=2, at_once=100)) == 2
    assert db.execute("SELECT span FROM answer_row ORDER BY span").fetchall() == [(3,), (4,)]


def test_feedback_may_come_before_its_answer(db: sqlite3.Connection) -> None:
    note_feedback(db, a_row(1).key, "up")
    note_feedback(db, a_row(1).key, "down")
    put(db, a_row(1))
    put(db, a_row(1, carrier=7, supersedes=1_000_001))
    assert db.execute("SELECT feedback FROM answer_row").fetchall() == [(2,), (2,)]
    assert db.execute("SELECT * FROM answer_feedback").fetchall() == []


def test_names_that_were_forgotten_are_not_remembered_by_a_writer(db: sqlite3.Connection) -> None:
    names = NameCache()
    put(db, a_row(1, service="old"), names)
    assert forget(db, before_ns=NOON_NS * 2, most_rows=9, at_once=9)
    put(db, a_row(2, service="new", minute=60), NameCache())  # takes the numbers that are free again
    put(db, a_row(3, service="old", minute=61), names)
    streams = "answer_row JOIN answer_stream ON answer_stream.id = stream"
    services = f"SELECT text FROM {streams} JOIN answer_word ON answer_word.id = service"
    assert db.execute(f"{services} ORDER BY answer_row.id").fetchall() == [("new",), ("old",)]


def test_index_of_the_first_version_becomes_one_of_the_newest() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(INDEX_TABLES)
    put(db, a_row(1, claims=VerdictCounts(supported=1, unjudged=3)))
    put(db, a_row(2, minute=1, claims=VerdictCounts()))
    columns = [
        name
        for _, name, *_ in db.execute("PRAGMA table_info(answer_row)")
        if name not in ("doubt", "suspicion", "pipeline", "question")
    ]
    rows = db.execute(f"SELECT {', '.join(columns)} FROM answer_row").fetchall()
    old = sqlite3.connect(":memory:", isolation_level=None)
    old.executescript(INDEX_STEPS[0])
    old.executemany(
        f"INSERT INTO answer_row ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows
    )
    for step in INDEX_STEPS[1:]:
        old.executescript(step)
    assert old.execute("SELECT doubt FROM answer_row ORDER BY id").fetchall() == [(75,), (0,)]
    put(old, a_row(3, minute=2), NameCache())
    assert old.execute("SELECT count(*) FROM answer_row").fetchone() == (3,)
