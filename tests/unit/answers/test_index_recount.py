"""Sums that are made anew from the rows are those that were kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.answers.index.sums import SUM_TABLES, fold, recount
from ragtrace.answers.index.tables import INDEX_TABLES
from ragtrace.answers.index.writes import put
from tests.unit.answers.rows import a_row

rows = st.builds(
    a_row,
    number=st.integers(1, 5),
    score=st.none() | st.sampled_from([0.0, 0.3, 1.0]),
    trace=st.integers(1, 2),
    tenant=st.sampled_from(["", "acme"]),
    minute=st.integers(-100, 100),
    supersedes=st.none() | st.integers(1_000_001, 1_000_005),
    blame=st.sampled_from(["", "retrieval"]),
    probability=st.sampled_from([None, 0.1, 1.0]),
)


@given(st.lists(rows, max_size=8))
@settings(max_examples=60, deadline=None)
def test_recounted_sums_are_those_that_were_kept(summaries: list[object]) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(INDEX_TABLES)
        for summary in summaries:
            put(db, summary)  # type: ignore[arg-type]
        while fold(db, at_once=2, is_open=True):
            pass
        kept = read(db)
        recount(db)
        assert read(db) == kept


def read(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    return {table: sorted(db.execute(f"SELECT * FROM {table}"), key=repr) for table in SUM_TABLES}
