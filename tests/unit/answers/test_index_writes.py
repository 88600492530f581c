"""What the index keeps, and what it forgets."""

from __future__ import annotations

import pytest

from ragtrace.answers.index_rows import INDEX_TABLES, put
from ragtrace.sql import SqliteDb, open_temporary
from tests.unit.answers.rows import a_row


@pytest.fixture
def db() -> SqliteDb:
    made = open_temporary("")
    made.executescript(INDEX_TABLES)
    return made


def test_names_that_no_database_holds_are_kept_nearly(db: SqliteDb) -> None:
    put(db, a_row(1, service="a\0b", blame="\ud800", session="s" * 300))
    ((service, blame, session),) = db.execute(
        "SELECT service, blame, session FROM answer_row JOIN answer_stream ON answer_stream.id = stream"
    )
    assert (service, blame, session) == ("a\ufffdb", "?", "s" * 200)
