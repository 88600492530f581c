"""What the index keeps, and what it forgets."""

from __future__ import annotations

import sqlite3

import pytest

from ragtrace.answers.index_rows import INDEX_TABLES, forget, put, size
from ragtrace.answers.sums import fold
from tests.unit.answers.rows import HOUR_NS, NOON_NS, a_row


@pytest.fixture
def db() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript(INDEX_TABLES)
    return made


def contents(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def test_carrier_sent_twice_is_one_row(db: sqlite3.Connection) -> None:
    put(db, a_row(1))
    before = contents(db)
    put(db, a_row(1))
    assert (contents(db), size(db)) == (before, 1)


def test_streams_that_were_forgotten_make_room_for_others(db: sqlite3.Connection) -> None:
    put(db, a_row(1, service="old"))
    assert forget(db, before_ns=NOON_NS * 2, most_rows=9, at_once=9)
    put(db, a_row(2, service="new", minute=60))  # may take the number that is free again
    put(db, a_row(3, service="old", minute=61))
    services = "SELECT service FROM answer_row JOIN answer_stream ON answer_stream.id = stream"
    assert db.execute(f"{services} ORDER BY answer_row.id").fetchall() == [("new",), ("old",)]


def test_names_that_no_database_holds_are_kept_nearly(db: sqlite3.Connection) -> None:
    put(db, a_row(1, service="a\0b", blame="\ud800", session="s" * 300))
    ((service, blame, session),) = db.execute(
        "SELECT service, blame, session FROM answer_row JOIN answer_stream ON answer_stream.id = stream"
    )
    assert (service, blame, session) == ("a\ufffdb", "?", "s" * 200)


def test_sums_are_made_of_what_is_over_and_of_no_more(db: sqlite3.Connection) -> None:
    for number, minute in enumerate((0, 60, 25 * 60)):  # two hours of a day, and one of the next
        put(db, a_row(number, minute=minute))
    while fold(db, at_once=1):
        pass
    first, newest = NOON_NS // HOUR_NS, NOON_NS // HOUR_NS + 25
    sums = "SELECT hours, first_hour, answers FROM answer_sum ORDER BY hours, first_hour"
    assert db.execute(sums).fetchall() == [(1, first, 1), (1, first + 1, 1), (24, first - 12, 2)]
    assert db.execute("SELECT hours, first_hour FROM answer_touched").fetchall() == [(1, newest)]
