"""Lists and overviews of the index: pages, cuts, cursors, and an index in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.index_rows import INDEX_TABLES, put
from ragtrace.answers.port import AnswerFilter, TrafficScope
from ragtrace.answers.summary import AnswerSummary
from ragtrace.errors import InputError
from ragtrace.sql import SqliteDb, open_temporary
from tests.unit.answers.rows import a_row


def empty_index() -> tuple[SqliteDb, AnswerIndex]:
    db = open_temporary("")
    db.executescript(INDEX_TABLES)

    @contextmanager
    def connect() -> Iterator[SqliteDb]:
        yield db

    return db, AnswerIndex(connect)


def index_of(*rows: AnswerSummary, steps: Callable[[], bool] = bool) -> AnswerIndex:
    db, index = empty_index()
    for row in rows:
        put(db, row)
    db.set_progress_handler(steps, 1_000)
    return index


def numbers(rows: tuple[AnswerSummary, ...] | list[AnswerSummary]) -> list[int]:
    return [int(row.key.span_id, 16) for row in rows]


@pytest.mark.slow
async def test_sessions_are_listed_in_linear_work_though_one_has_most_of_the_answers() -> None:
    steps, most = 0, 3_000  # thousands of instructions: 800 a row

    def count() -> bool:
        nonlocal steps
        steps += 1
        return steps > most

    rows = [a_row(n, minute=n % 50, session="s" if n > 50 else f"s{n}") for n in range(3_900)]
    index = index_of(*rows, steps=count)
    found, after, pages = list[str](), None, 0
    while pages == 0 or after is not None:
        page = await index.sessions(tenant=None, after=after, limit=20)
        found += [key.session for key in page.sessions]
        after, pages = page.next, pages + 1
    assert sorted(found) == sorted(["s", *(f"s{n}" for n in range(51))])
    assert pages <= 6


async def test_cursor_that_leads_nowhere_is_refused_with_a_way_on() -> None:
    index = index_of(a_row(1, tenant="a"), a_row(2, tenant="a"))
    page = await index.page(AnswerFilter(), limit=1)
    others = AnswerFilter(scope=TrafficScope(tenant="b"))
    for chosen, after in ((others, page.next), (AnswerFilter(), "é?"), (AnswerFilter(), "9" * 30)):
        with pytest.raises(InputError, match="begin at the first page"):
            await index.page(chosen, after=after)
    for after in ("é?", "[1]", "[" * 10_000):
        with pytest.raises(InputError, match="begin at the first page"):
            await index.sessions(tenant=None, after=after)


async def test_arrivals_are_each_valid_evaluation_once_in_the_order_in_which_they_came() -> None:
    (db, index), chosen = empty_index(), AnswerFilter(scope=TrafficScope(tenant="a"))
    put(db, a_row(0, tenant="a"))
    start = await index.arrivals(chosen)
    assert (start.answers, start.has_more) == ((), False)
    for number in (5, 3, 4):  # the time of an answer is not when its verdict comes
        put(db, a_row(number, minute=60 - number, tenant="b" if number == 3 else "a"))
    first = await index.arrivals(chosen, after=start.position, limit=2)
    assert (numbers(first.answers), first.has_more) == ([5], True)
    second = await index.arrivals(chosen, after=first.position, limit=2)
    assert (numbers(second.answers), second.has_more) == ([4], False)
    put(db, a_row(4, minute=56, tenant="a"))  # written again
    assert (await index.arrivals(chosen, after=second.position)).answers == ()
    assert numbers((await index.arrivals(chosen, after=frozenset())).answers) == [0, 5, 4]


async def test_arrival_that_is_seen_after_one_with_a_larger_number_is_not_lost() -> None:
    db, index = empty_index()
    for number in (1, 2):
        put(db, a_row(number))
    move = (
        "UPDATE answer_row SET id = ? WHERE id = ?",
        "UPDATE answer_score SET answer = ? WHERE answer = ?",
    )
    for statement in move:
        db.execute(statement, (9, 2))
    position = (await index.arrivals(AnswerFilter())).position
    put(db, a_row(3))
    for statement in move:  # as if its writer had taken the number first and committed last
        db.execute(statement, (5, 10))
    assert numbers((await index.arrivals(AnswerFilter(), after=position)).answers) == [3]


def test_names_that_no_database_holds_are_kept_nearly() -> None:
    db, _ = empty_index()
    put(db, a_row(1, service="a\0b", blame="\ud800", session="s" * 300))
    ((service, blame, session),) = db.execute("SELECT service, blame, session FROM answer_row")
    assert (service, blame, session) == ("a\ufffdb", "?", "s" * 200)
