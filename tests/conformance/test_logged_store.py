"""What a store promises whose rows are logged: the log is the truth, whatever becomes of its file."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from ragtrace.errors import ConfigError, ReadError, ReadUnavailable
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.changelog.capture import RowCapture
from ragtrace_collector.store.changelog.copy import VERSION_KEY
from ragtrace_collector.store.changelog.log import LoggedRow, LogState
from ragtrace_collector.store.changelog.messages import decode, encode_key, encode_values
from ragtrace_collector.store.changelog.store import follow, open_logged_store
from ragtrace_collector.store.changelog.tables import COPY, all_rows, tables_of
from ragtrace_collector.store.maintenance import send_again
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.store.schema import NEWEST, migrate_to, prepare
from ragtrace_collector.store.sqlite import SqliteStore, open_budget
from tests.conformance.test_store_laws import SideBySide
from tests.patience import PATIENCE_S
from tests.stores.adapters import MAX_BYTES, LoggedPlace, Place
from tests.stores.dump import dump
from tests.stores.row_log import Failure, MemoryLog, MemoryReader, MemoryTopic

pytestmark = pytest.mark.slow

HOUR_NS = 3600 * 10**9


async def opened(path: Path, topic: MemoryTopic) -> SqliteStore:
    return await open_logged_store(path, MemoryLog(topic), max_bytes=MAX_BYTES)


def part(number: int, size: int = 10) -> TraceSlice:
    ref = SpanRef(span_id=f"{number:016x}", parent_span_id=None)
    return TraceSlice(trace_id=f"{number:032x}", payload=bytes(size), spans=(ref,))


async def add(store: SqliteStore, number: int) -> None:
    await store.append([part(number)], forward={"sink": b"x"}, now_ns=number)


async def traces_in(store: SqliteStore) -> set[int]:
    return {int(trace_id, 16) for trace_id in await store.find_traces("", limit=1_000)}


class History(SideBySide):
    """Whatever is done to a store, its log alone tells all of it: as it is, compacted, and to a follower."""

    kinds: ClassVar[tuple[type[Place], ...]] = (LoggedPlace,)

    @invariant()
    def a_log_tells_everything(self) -> None:
        (place,) = self.places
        assert isinstance(place, LoggedPlace)
        folder = Path(self.folder.name)
        written = dump(place.path)
        readers = {
            "whole": MemoryReader(place.topic),
            "in portions": MemoryReader(place.topic, at_once=3),
            "compacted": MemoryReader(place.topic.compacted(), at_once=7),
        }
        for name, reader in readers.items():
            with tempfile.TemporaryDirectory(dir=folder) as anew:
                follow(Path(anew) / "copy.db", reader)
                assert dump(Path(anew) / "copy.db") == written, name
        follow(folder / "follower.db", MemoryReader(place.topic.compacted(keeps_deletions=True)))
        assert dump(folder / "follower.db") == written


TestHistory = pytest.mark.slow(History.TestCase)
TestHistory.settings = settings(
    max_examples=6,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.slow
@given(failures=st.lists(st.none() | st.sampled_from(Failure), max_size=12), compacts=st.booleans())
def test_whichever_write_fails_nothing_is_lost_or_invented(
    failures: list[Failure | None], compacts: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_fail(Path(folder), list(failures), compacts=compacts))


async def _fail(folder: Path, failures: list[Failure | None], *, compacts: bool) -> None:
    topic = MemoryTopic()
    store = await opened(folder / "copy.db", topic)
    there, unknown = set(), set()
    for number, failure in enumerate(failures):
        topic.failures = [failure]
        try:
            await add(store, number)
            there.add(number)
        except StoreUnavailable:
            assert failure is not None
            if failure is not Failure.REFUSED:
                unknown |= {number} if failure is Failure.UNKNOWN else set()
                await asyncio.wait_for(store.lost.wait(), PATIENCE_S)
                await store.aclose()
                store = await opened(folder / "copy.db", topic)
    assert await traces_in(store) == there | unknown
    await store.aclose()
    anew = await opened(folder / "anew.db", topic.compacted() if compacts else topic)
    assert await traces_in(anew) == there | unknown
    await anew.aclose()


async def test_the_former_owner_can_keep_nothing_more(tmp_path: Path) -> None:
    topic = MemoryTopic()
    first = await opened(tmp_path / "first.db", topic)
    second = await opened(tmp_path / "second.db", topic)
    with pytest.raises(StoreUnavailable, match="another process owns"):
        await add(first, 1)
    await asyncio.wait_for(first.lost.wait(), PATIENCE_S)
    writes = topic.writes
    with pytest.raises(StoreUnavailable):
        await add(first, 2)
    await add(second, 3)
    assert (await traces_in(second), topic.writes) == ({3}, writes + 1)
    for store in (first, second):
        await store.aclose()


async def test_a_client_that_fails_unexpectedly_ends_the_store_and_hangs_nobody(tmp_path: Path) -> None:
    topic = MemoryTopic()
    store = await opened(tmp_path / "copy.db", topic)
    await add(store, 1)
    topic.failures.append(Failure.CRASHED)
    for number in (2, 3):
        with pytest.raises(StoreUnavailable, match="SystemError"):
            await asyncio.wait_for(add(store, number), PATIENCE_S)
    await asyncio.wait_for(store.lost.wait(), PATIENCE_S)
    await store.aclose()
    store = await opened(tmp_path / "copy.db", topic)
    assert await traces_in(store) == {1}
    await store.aclose()


async def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    topic = MemoryTopic()
    store = await opened(tmp_path / "copy.db", topic)
    writes = topic.writes
    await store.spans("1" * 32)
    await store.take_jobs(9, now_ns=1)
    await store.check()
    assert topic.writes == writes
    await store.aclose()


async def test_work_that_fails_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    topic = MemoryTopic(most_row_bytes=1_000)
    store = await opened(tmp_path / "copy.db", topic)
    with pytest.raises(StoreUnavailable, match="a row of slice is larger than a message of the log"):
        await store.append([part(1), part(2, size=2_000)], forward={}, now_ns=1)
    await add(store, 3)
    follow(tmp_path / "follower.db", MemoryReader(topic))
    assert dump(tmp_path / "follower.db") == dump(tmp_path / "copy.db")
    assert await traces_in(store) == {3}
    await store.aclose()


@pytest.mark.parametrize("version", range(1, NEWEST))
async def test_a_log_of_an_older_version_is_migrated_as_a_file_is(tmp_path: Path, version: int) -> None:
    topic, plain = MemoryTopic(), tmp_path / "plain.db"
    with closing(sqlite3.connect(plain, isolation_level=None)) as db:
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        migrate_to(db, version)
        db.execute("INSERT INTO slice VALUES (7, 'ab', x'00')")
        db.execute("INSERT INTO trace (trace_id, last_arrival_ns) VALUES ('ab', 1)")
        db.execute("INSERT INTO job (trace_id, span_id, state, due_ns) VALUES ('ab', 'c', 'queued', 5)")
        db.execute("INSERT INTO parcel (sink, payload) VALUES ('sink', x'01')")
        log = MemoryLog(topic)
        log.open()
        log.write([LoggedRow("", VERSION_KEY, (version,)), *all_rows(db, tables_of(db))])
        prepare(db)
        db.execute("DELETE FROM unkeyed")
    store = await opened(tmp_path / "copy.db", topic)
    await store.aclose()
    assert dump(tmp_path / "copy.db") == dump(plain)
    for number, reader in enumerate([MemoryReader(topic), MemoryReader(topic.compacted(), at_once=2)]):
        follow(tmp_path / f"{number}.db", reader)
        assert dump(tmp_path / f"{number}.db") == dump(plain)


async def test_a_follower_of_a_log_that_is_upgraded_goes_on(tmp_path: Path) -> None:
    topic = MemoryTopic()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate_to(db, 3)
        db.execute("INSERT INTO slice VALUES (7, 'ab', x'00')")
        log = MemoryLog(topic)
        log.open()
        log.write([LoggedRow("", VERSION_KEY, (3,)), *all_rows(db, tables_of(db))])
    follow(tmp_path / "follower.db", MemoryReader(topic))
    store = await opened(tmp_path / "copy.db", topic)
    follow(tmp_path / "follower.db", MemoryReader(topic))
    assert dump(tmp_path / "follower.db") == dump(tmp_path / "copy.db")
    await store.aclose()


async def test_a_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    topic = MemoryTopic()
    log = MemoryLog(topic)
    log.open()
    log.write([LoggedRow("", VERSION_KEY, (NEWEST + 1,))])
    with pytest.raises(ConfigError, match=r"newer ragtrace: its rows are of version .*: upgrade ragtrace"):
        await opened(tmp_path / "copy.db", topic)
    with pytest.raises(ConfigError, match="newer"):
        follow(tmp_path / "follower.db", MemoryReader(topic))


BAD_ROWS = {
    "too few columns": LoggedRow("slice", (1,), ("trace",)),
    "no such table": LoggedRow("nothing", (1,), ()),
    "a key of two parts": LoggedRow("slice", (1, 2), None),
    "no version": LoggedRow("", VERSION_KEY, ("one",)),
    "a column that is not null": LoggedRow("slice", (1,), (None, None)),
}


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
async def test_a_row_that_is_none_of_a_store_is_named(tmp_path: Path, row: LoggedRow) -> None:
    topic = MemoryTopic()
    await (await opened(tmp_path / "copy.db", topic)).aclose()
    log = MemoryLog(topic)
    log.open()
    log.write([row])
    offset = topic.end - 2
    with pytest.raises(ConfigError, match=rf"a topic\[0\]: .*offsets? .*{offset}"):
        await opened(tmp_path / "copy.db", topic)
    with pytest.raises(ReadError, match=rf"offsets? .*{offset}"):
        follow(tmp_path / "follower.db", MemoryReader(topic))


async def test_a_log_without_a_version_is_refused(tmp_path: Path) -> None:
    topic = MemoryTopic()
    log = MemoryLog(topic)
    log.open()
    log.write([LoggedRow("slice", (1,), ("trace", b""))])
    with pytest.raises(ConfigError, match="of which version"):
        await opened(tmp_path / "copy.db", topic)


def is_another_log(db: sqlite3.Connection) -> None:
    db.execute(f"UPDATE {COPY} SET log = 'another'")


def is_beyond_the_end(db: sqlite3.Connection) -> None:
    db.execute(f"UPDATE {COPY} SET position = position + 100")


def is_of_another_version(db: sqlite3.Connection) -> None:
    db.execute(f"UPDATE {COPY} SET version = version - 1")


def is_too_old(db: sqlite3.Connection) -> None:
    db.execute(f"UPDATE {COPY} SET position = 1, current_ns = ?", (time.time_ns() - 23 * HOUR_NS,))


@pytest.mark.parametrize("spoil", [is_another_log, is_beyond_the_end, is_of_another_version, is_too_old])
async def test_a_file_that_cannot_be_trusted_is_made_anew(
    tmp_path: Path, spoil: Callable[[sqlite3.Connection], None]
) -> None:
    path, topic = tmp_path / "copy.db", MemoryTopic()
    store = await opened(path, topic)
    await add(store, 1)
    await store.aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        spoil(db)
        db.execute("UPDATE trace SET trace_id = 'not in the log'")
    store = await opened(path, topic)
    assert await traces_in(store) == {1}
    await store.aclose()


async def test_a_file_that_is_behind_catches_up(tmp_path: Path) -> None:
    path, topic = tmp_path / "copy.db", MemoryTopic()
    store = await opened(path, topic)
    await add(store, 1)
    await store.aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE trace SET last_arrival_ns = 77")
    other = await opened(tmp_path / "other.db", topic)
    await add(other, 2)
    await other.aclose()
    store = await opened(path, topic)
    assert await traces_in(store) == {1, 2}
    await store.aclose()
    with closing(sqlite3.connect(path)) as db:  # what it had was not read again
        assert db.execute("SELECT max(last_arrival_ns) FROM trace").fetchone() == (77,)


async def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    path, topic = tmp_path / "copy.db", MemoryTopic()
    store = await opened(path, topic)
    for number in range(200):
        await add(store, number)
    await store.aclose()
    with path.open("r+b") as file:
        file.seek(4096 * 20)
        file.write(b"\xff" * 4096 * 20)
    store = await opened(path, topic)
    assert len(await traces_in(store)) == 200
    await store.aclose()


async def test_a_store_of_its_own_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    plain = await SqliteStore.open(path, max_bytes=MAX_BYTES)
    await add(plain, 1)
    await plain.aclose()
    before = dump(path)
    with pytest.raises(ConfigError, match="no copy of a log"):
        await opened(path, MemoryTopic())
    with pytest.raises(ConfigError, match="no copy of a log"):
        follow(path, MemoryReader(MemoryTopic()))
    assert dump(path) == before


async def test_nobody_else_writes_into_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    await (await opened(path, MemoryTopic())).aclose()
    with pytest.raises(ConfigError, match="copy of a log"):
        await SqliteStore.open(path, max_bytes=MAX_BYTES)
    with pytest.raises(ConfigError, match="copy of a log"):
        async with open_budget(path):
            pass
    with pytest.raises(ReadError, match="copy of a log"):
        send_again(path, sink=None)


async def test_a_log_that_does_not_answer_is_no_mistake_of_the_configuration(tmp_path: Path) -> None:
    topic = MemoryTopic(is_away=True)
    with pytest.raises(StoreUnavailable, match="away"):
        await opened(tmp_path / "copy.db", topic)
    with pytest.raises(ReadUnavailable, match="away"):
        follow(tmp_path / "follower.db", MemoryReader(topic))
    topic.is_away = False
    await (await opened(tmp_path / "copy.db", topic)).aclose()


async def test_a_lost_file_ends_the_store_and_it_is_made_anew(tmp_path: Path) -> None:
    path, topic = tmp_path / "copy.db", MemoryTopic()
    store = await opened(path, topic)
    await add(store, 1)
    path.unlink()
    with pytest.raises(StoreUnavailable):
        await add(store, 2)
    await asyncio.wait_for(store.lost.wait(), PATIENCE_S)
    await store.aclose()
    store = await opened(path, topic)
    assert await traces_in(store) == {1}
    await store.aclose()


async def test_a_file_that_is_moved_away_and_back_is_no_mix_of_two_copies(tmp_path: Path) -> None:
    path, away, topic = tmp_path / "copy.db", tmp_path / "away.db", MemoryTopic()
    store = await opened(path, topic)
    for number in range(30):
        await add(store, number)
    await store.aclose()  # now the file itself has all of it
    store = await opened(path, topic)
    for number in range(30, 40):
        await add(store, number)
    path.rename(away)
    store = await _opened_after_loss(store, path, topic)
    for number in range(40, 60):
        await add(store, number)
    away.rename(path)
    store = await _opened_after_loss(store, path, topic)
    await add(store, 60)
    written = dump(path)
    await store.aclose()
    follow(tmp_path / "follower.db", MemoryReader(topic))
    assert dump(tmp_path / "follower.db") == written
    assert _check(path) == "ok"


async def _opened_after_loss(store: SqliteStore, path: Path, topic: MemoryTopic) -> SqliteStore:
    with pytest.raises(StoreUnavailable):
        await add(store, 999)
    await asyncio.wait_for(store.lost.wait(), PATIENCE_S)
    await store.aclose()
    return await opened(path, topic)


def _check(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    return str(found)


@pytest.mark.parametrize("of_what", ["an empty one", "an older copy"])
async def test_a_file_that_is_exchanged_while_it_is_opened_is_not_used(tmp_path: Path, of_what: str) -> None:
    path, topic = tmp_path / "copy.db", MemoryTopic()
    older = tmp_path / "older.db"
    if of_what == "an older copy":
        store = await opened(older, topic)
        await add(store, 1)
        await store.aclose()
    else:
        older.touch()
    store = await opened(path, topic)
    await add(store, 2)
    await store.aclose()
    with pytest.raises(StoreUnavailable, match="exchanged"):
        await open_logged_store(path, ExchangingLog(topic, older, path), max_bytes=MAX_BYTES)
    store = await opened(path, topic)
    assert await traces_in(store) == {2} | ({1} if of_what == "an older copy" else set())
    await store.aclose()


class ExchangingLog(MemoryLog):
    """While it is read, somebody puts another file in the place of the copy."""

    def __init__(self, topic: MemoryTopic, other: Path, path: Path) -> None:
        super().__init__(topic)
        self._other, self._path = other, path

    def look(self) -> LogState:
        self._other.rename(self._path)
        return super().look()


async def test_an_empty_log_reads_as_an_empty_store(tmp_path: Path) -> None:
    follow(tmp_path / "follower.db", MemoryReader(MemoryTopic()))
    plain = await SqliteStore.open(tmp_path / "plain.db", max_bytes=MAX_BYTES)
    await plain.aclose()
    assert dump(tmp_path / "follower.db") == dump(tmp_path / "plain.db")


def test_rows_that_are_replaced_under_another_key_are_deleted_in_the_log() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        prepare(db)
        capture = RowCapture(db, most_row_bytes=1 << 20)
        tables = [table for table in tables_of(db).values() if table.unique]
        for table in tables:
            columns = ", ".join(table.columns)
            marks = ", ".join("1" for _ in table.columns)
            for key in ("41", "42"):
                db.execute(
                    f"INSERT OR REPLACE INTO {table.name} ({table.key[0]}, {columns}) VALUES ({key}, {marks})"
                )
            changed = {row.key: row.values for row in capture.changed() if row.table == table.name}
            assert (changed[(41,)], bool(changed[(42,)])) == (None, True)
    assert {"answer_session", "kept_carrier"} <= {table.name for table in tables}


cells = (
    st.none()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)


@given(
    row=st.builds(
        LoggedRow, st.text(min_size=1), st.tuples(cells, cells), st.none() | st.tuples(cells, cells)
    )
)
def test_a_row_is_the_same_as_a_message(row: LoggedRow) -> None:
    assert decode(encode_key(row), encode_values(row)) == row
