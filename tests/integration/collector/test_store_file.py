"""The store's file: made by earlier versions, damaged, foreign, full, moved, or read by others."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.records import Job, Outcome, StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)
SINK = "http://localhost:4318"


def part(trace_id: str, payload: bytes = b"spans") -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(SpanRef(span_id="s1", parent_span_id=None),))


def job_of(trace_id: str) -> Job:
    return Job(trace_id=trace_id, span_id="s1", sample=SAMPLE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@asynccontextmanager
async def opened(path: Path, *, max_bytes: int = 50 << 20) -> AsyncIterator[Store]:
    store = await Store.open(SqliteFile(path), max_bytes=max_bytes)
    try:
        yield store
    finally:
        await store.aclose()


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db, db:
        yield db


def contents(path: Path) -> bytes:
    return path.read_bytes()


def size_of(path: Path) -> int:
    return path.stat().st_size


def move(path: Path, to: Path) -> None:
    path.rename(to)


def damage(path: Path, *, at_byte: int, pages: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(at_byte)
        file.write(random.Random(1).randbytes(pages * 4096))


@pytest.mark.parametrize("version", [1, 14, 99])
async def test_a_file_of_another_version_is_refused_and_left_as_it_was(path: Path, version: int) -> None:
    async with opened(path):
        pass
    with by_hand(path) as db:
        db.execute(f"PRAGMA user_version={version}")
    before = contents(path)
    with pytest.raises(ConfigError, match=r"another ragtrace.*version \d+.*start the ragtrace that wrote it"):
        await Store.open(SqliteFile(path), max_bytes=1 << 20)
    assert contents(path) == before


@pytest.mark.parametrize("version", [0, 1])
async def test_the_database_of_another_program_is_refused_and_left_as_it_was(
    path: Path, version: int
) -> None:
    with by_hand(path) as db:
        db.executescript(f"CREATE TABLE bookmark (url TEXT); PRAGMA user_version={version}")
    before = contents(path)
    with pytest.raises(ConfigError, match=r"tables of another program.*a path of its own"):
        await Store.open(SqliteFile(path), max_bytes=1 << 20)
    assert contents(path) == before


@pytest.mark.slow
async def test_a_file_that_another_program_holds_locked_is_refused_with_what_to_do(path: Path) -> None:
    async with opened(path):
        pass
    with by_hand(path) as db:
        db.execute("BEGIN EXCLUSIVE")
        db.execute("UPDATE trace SET settled_ns = 1")
        with pytest.raises(ConfigError, match=r"is locked.*end that program"):
            await Store.open(SqliteFile(path), max_bytes=1 << 20)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write what is read-only")
async def test_a_file_that_cannot_be_written_is_refused_with_what_to_do(path: Path) -> None:
    async with opened(path):
        pass
    os.chmod(path, 0o400)
    with pytest.raises(ConfigError, match="name a writable path"):
        await Store.open(SqliteFile(path), max_bytes=1 << 20)


async def fill(store: Store, traces: int, *, size: int = 10_000, now_ns: int = 1) -> None:
    """Settle some traces, each with an answer that was sampled out."""
    left_out = [Outcome(span_id="s1", outcome="sampled_out")]
    for number in range(traces):
        await store.append([part(f"t{number}", bytes(size))], forward={}, now_ns=now_ns)
        await store.decide_trace(f"t{number}", jobs=[], outcomes=left_out, keep_spans=True, now_ns=now_ns)


@pytest.mark.parametrize("what", ["a page of garbage", "the end cut off"])
async def test_a_damaged_file_is_refused_with_what_to_do(path: Path, what: str) -> None:
    async with opened(path) as store:
        await fill(store, 50)
    if what == "the end cut off":
        os.truncate(path, size_of(path) // 2)
    else:
        damage(path, at_byte=3 * 4096)
    with pytest.raises(
        ConfigError, match=r"restore a backup, or save what can be read.*store.recovery STORE NEW"
    ):
        await Store.open(SqliteFile(path), max_bytes=1 << 20)


async def test_damage_that_shows_while_the_collector_runs_is_told_and_harms_no_other_trace(
    path: Path,
) -> None:
    async with opened(path) as store:
        await fill(store, 50)
    store = await Store.open(SqliteFile(path), max_bytes=50 << 20)
    damage(path, at_byte=100 * 4096, pages=16)  # behind its back, where it has not read since
    answers = {}
    for number in range(50):
        try:
            answers[number] = len((await store.spans(f"t{number}")).payloads)
        except StoreUnavailable as exc:
            answers[number] = "restore a backup" in str(exc)
    await store.aclose()
    assert True in answers.values()
    assert 1 in answers.values()


async def test_what_it_holds_only_its_owner_may_read(path: Path) -> None:
    async with opened(path) as store:
        await store.append([part("t1")], forward={}, now_ns=1)
        modes = {name: os.stat(path.parent / name).st_mode & 0o077 for name in os.listdir(path.parent)}
    assert {name: mode for name, mode in modes.items() if mode and not name.endswith(".lock")} == {}


async def test_nothing_is_acknowledged_into_a_file_that_was_moved_away(path: Path, tmp_path: Path) -> None:
    async with opened(path) as store:
        move(path, tmp_path / "away.db")
        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            await store.append([part("t1")], forward={}, now_ns=1)
        move(tmp_path / "away.db", path)
        await store.append([part("t2")], forward={}, now_ns=1)
        assert await store.undecided() == ("t2",)


async def come_and_go(store: Store, traces: int) -> None:
    for _ in range(traces):
        await store.append([part("t", bytes(500_000))], forward={}, now_ns=1)
        await store.decide_trace("t", jobs=[], outcomes=[], keep_spans=False, now_ns=1)


async def test_a_reader_that_never_ends_cannot_make_the_log_grow_without_bound(path: Path) -> None:
    async with opened(path, max_bytes=1 << 20) as store:
        with by_hand(path) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM trace").fetchall()
            with pytest.raises(StoreUnavailable, match="another program reads it"):
                await come_and_go(store, 100)
            reader.execute("ROLLBACK")
        await store.append([part("t1")], forward={}, now_ns=1)


async def test_a_full_store_forgets_what_is_finished_before_it_refuses_senders(path: Path) -> None:
    async with opened(path, max_bytes=2_000_000) as store:
        await store.append([part("queued", bytes(500_000))], forward={}, now_ns=1)
        await store.decide_trace("queued", jobs=[job_of("queued")], outcomes=[], keep_spans=True, now_ns=1)
        await fill(store, 300, now_ns=2)
        assert (await store.spans("t299")).payloads
        assert not (await store.spans("t0")).payloads
        assert (await store.spans("queued")).payloads
        assert (await store.ledger()).seen == 301


async def take_all(store: Store, parts: Iterable[TraceSlice]) -> None:
    for each in parts:
        await store.append([each], forward={}, now_ns=1)


async def test_a_store_that_is_full_of_unfinished_work_refuses_senders(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path, max_bytes=1_000_000) as store:
        parts = [part(f"t{number}", bytes(100_000)) for number in range(20)]
        with pytest.raises(StoreUnavailable, match=r"max_bytes.*unfinished"):
            await take_all(store, parts)
        assert await store.undecided()
    assert [each.message for each in caplog.records] == ["the store is full: senders are told to wait"]


async def test_what_a_back_end_refused_is_kept_for_the_retention(path: Path) -> None:
    async with opened(path) as store:
        await store.append([], forward={SINK: b"request"}, now_ns=1)
        await store.reject(await store.outbox_items(SINK, 1), reason="400", now_ns=10)
        await store.expire(decided_before_ns=100, ended_before_ns=10)
        assert (await store.ledger()).outbox_items_in("rejected") == 1
        await store.expire(decided_before_ns=100, ended_before_ns=11)
        with by_hand(path) as db:
            assert db.execute("SELECT count(*) FROM parcel").fetchone() == (0,)


@pytest.mark.slow
async def test_the_file_shrinks_after_much_was_forgotten(path: Path) -> None:
    async with opened(path) as store:
        await fill(store, 500, size=20_000)
        before = size_of(path) + store._commits._log_bytes()
        await store.expire(decided_before_ns=10, ended_before_ns=0)
    assert before > 10_000_000
    assert size_of(path) < 1_000_000


async def test_a_disk_that_is_full_is_told_to_the_sender_and_harms_nothing(tmp_path: Path) -> None:
    store = await Store.open(SqliteFile(tmp_path / "store.db"), max_bytes=1 << 30)
    await store._commits.submit(lambda db: db.execute("PRAGMA max_page_count = 30").close())
    append = functools.partial(store.append, forward={}, now_ns=1)
    requests = [append([part(f"t{number}", bytes(20_000))]) for number in range(10)]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    kept = [bool((await store.spans(f"t{number}")).payloads) for number in range(10)]
    assert kept == [not isinstance(answer, StoreUnavailable) for answer in answers]
    assert not all(kept)
    await append([part("small", b"small")])
    assert (await store.spans("small")).payloads == (b"small",)
    await store.aclose()


@pytest.mark.parametrize("bad", ["missing/folder/store.db", ".", "nul\0.db"])
async def test_an_unusable_path_is_named(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ConfigError, match=r"`store\.path`: .* cannot be used"):
        await Store.open(SqliteFile(tmp_path / bad), max_bytes=1 << 20)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are my notes, " * 500)
    with pytest.raises(ConfigError, match="file is not a database"):
        await Store.open(SqliteFile(file), max_bytes=1 << 20)
    assert file.read_text().startswith("these are my notes")
