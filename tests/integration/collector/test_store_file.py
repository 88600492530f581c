"""The store's file: made by earlier versions, damaged, foreign, full, moved, or read by others."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.records import Job, Outcome
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)


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


async def test_what_it_holds_only_its_owner_may_read(path: Path) -> None:
    async with opened(path) as store:
        await store.append([part("t1")], forward={}, now_ns=1)
        modes = {name: os.stat(path.parent / name).st_mode & 0o077 for name in os.listdir(path.parent)}
    assert {name: mode for name, mode in modes.items() if mode and not name.endswith(".lock")} == {}


async def test_a_full_store_forgets_what_is_finished_before_it_refuses_senders(path: Path) -> None:
    async with opened(path, max_bytes=2_000_000) as store:
        await store.append([part("queued", bytes(500_000))], forward={}, now_ns=1)
        await store.decide_trace("queued", jobs=[job_of("queued")], outcomes=[], keep_spans=True, now_ns=1)
        await fill(store, 300, now_ns=2)
        assert (await store.spans("t299")).payloads
        assert not (await store.spans("t0")).payloads
        assert (await store.spans("queued")).payloads
        assert (await store.ledger()).seen == 301
