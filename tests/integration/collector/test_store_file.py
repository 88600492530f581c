"""The store's file: of other versions, damaged, foreign or full; and sealed with a key."""

from __future__ import annotations

import base64
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
from ragtrace_collector.sampling import Decision
from ragtrace_collector.service.check import check_config
from ragtrace_collector.store.cipher import open_cipher
from ragtrace_collector.store.records import Job, StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.integration.collector.running import config_of

OLD, NEW, OTHER = (base64.b64encode(bytes([number]) * 32).decode() for number in range(3))
SECRET = b"what nobody but the judge may read"


def contents(path: Path) -> bytes:
    return path.read_bytes()


def part(trace_id: str, payload: bytes = b"spans") -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(SpanRef(span_id="s1", parent_span_id=None),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@asynccontextmanager
async def opened(path: Path, *keys: str, max_bytes: int = 50 << 20) -> AsyncIterator[Store]:
    store = await Store.open(
        SqliteFile(path), max_bytes=max_bytes, forward_to=("sink",), cipher=open_cipher(keys)
    )
    try:
        yield store
    finally:
        await store.aclose()


async def refuse(path: Path, match: str, *keys: str) -> str:
    """See that the store is not opened; return what is said."""
    with pytest.raises(ConfigError, match=match) as caught:
        async with opened(path, *keys):
            pass
    return str(caught.value)


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db, db:
        yield db


@pytest.mark.parametrize("version", [1, 99])
async def test_a_file_of_another_version_is_refused_and_left_as_it_was(path: Path, version: int) -> None:
    async with opened(path):
        pass
    with by_hand(path) as db:
        db.execute(f"PRAGMA user_version={version}")
    before = contents(path)
    await refuse(path, r"another ragtrace.*version \d+.*start the ragtrace that wrote it")
    assert contents(path) == before


@pytest.mark.parametrize("version", [0, 1])
async def test_the_database_of_another_program_is_refused_and_left_as_it_was(
    path: Path, version: int
) -> None:
    with by_hand(path) as db:
        db.executescript(f"CREATE TABLE bookmark (url TEXT); PRAGMA user_version={version}")
    before = contents(path)
    await refuse(path, r"tables of another program.*a path of its own")
    assert contents(path) == before


async def fill(store: Store, traces: int, *, now_ns: int = 1) -> None:
    """Settle some traces, each with an answer that was sampled out."""
    left_out = [
        Decision(span_id="s1", sample=Sample(rule="ratio", rate=0.5, probability=0.5), left_out="sampled_out")
    ]
    for number in range(traces):
        await store.append([part(f"t{number}", bytes(10_000))], forward={}, now_ns=now_ns)
        await store.decide_trace(f"t{number}", jobs=[], outcomes=left_out, keep_spans=True, now_ns=now_ns)


@pytest.mark.parametrize("what", ["a page of garbage", "the end cut off"])
async def test_a_damaged_file_is_refused_with_what_to_do(path: Path, what: str) -> None:
    async with opened(path) as store:
        await fill(store, 50)
    if what == "the end cut off":
        os.truncate(path, len(contents(path)) // 2)
    else:
        with path.open("r+b") as file:
            file.seek(3 * 4096)
            file.write(random.Random(1).randbytes(4096))
    await refuse(path, r"restore a backup, or save what can be read.*store.recovery STORE NEW")


async def test_what_it_holds_only_its_owner_may_read(path: Path) -> None:
    async with opened(path) as store:
        await store.append([part("t1")], forward={}, now_ns=1)
        modes = {name: os.stat(path.parent / name).st_mode & 0o077 for name in os.listdir(path.parent)}
    assert {name: mode for name, mode in modes.items() if mode and not name.endswith(".lock")} == {}


async def test_a_full_store_forgets_what_is_finished_before_it_refuses_senders(path: Path) -> None:
    job = Job(trace_id="queued", span_id="s1", sample=Sample(rule="ratio", rate=0.5, probability=0.5))
    async with opened(path, max_bytes=2_000_000) as store:
        await store.append([part("queued", bytes(500_000))], forward={}, now_ns=1)
        await store.decide_trace("queued", jobs=[job], outcomes=[], keep_spans=True, now_ns=1)
        await fill(store, 300, now_ns=2)
        kept = {name: bool((await store.spans(name)).payloads) for name in ("t299", "t0", "queued")}
        assert kept == {"t299": True, "t0": False, "queued": True}
        assert (await store.ledger()).seen == 301


# -- with a key -------------------------------------------------------------------------------------------
async def kept(store: Store) -> tuple[bytes, ...]:
    outbox_items = await store.outbox_items("sink", 10)
    return (*(await store.spans("t1")).payloads, *(outbox_item.payload for outbox_item in outbox_items))


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


async def test_no_content_stands_in_the_file(path: Path) -> None:
    async with opened(path, OLD) as store:
        await store.append([part("t1", SECRET)], forward={"sink": SECRET}, now_ns=1)
        assert SECRET not in on_disk(path)
        assert await kept(store) == (SECRET, SECRET)
    async with opened(path, OLD) as store:
        assert await kept(store) == (SECRET, SECRET)
    assert SECRET not in on_disk(path)


async def test_a_store_whose_key_is_missing_is_not_opened_and_keys_are_changed(path: Path) -> None:
    async with opened(path, OLD) as store:
        await store.append([part("t1", b"old")], forward={}, now_ns=1)
    for keys in ((), (OTHER,)):
        assert OLD not in await refuse(path, r"add that key to `store\.encryption_keys`", *keys)
    async with opened(path, NEW, OLD) as store:
        await store.append([part("t1", b"new")], forward={}, now_ns=2)
        assert await kept(store) == (b"old", b"new")
    await refuse(path, "add that key", NEW)


async def test_content_that_was_changed_on_disk_is_not_believed(path: Path) -> None:
    async with opened(path, OLD) as store:
        await store.append([part("t1", SECRET)], forward={}, now_ns=1)
    with by_hand(path) as db:
        db.execute("UPDATE slice SET trace_id = 't2'")
        db.execute("UPDATE trace SET trace_id = 't2'")
    async with opened(path, OLD) as store:
        with pytest.raises(StoreUnavailable):
            await store.spans("t2")


@pytest.mark.parametrize("key", ["", "short", "not base64!", OLD[:-5]])
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=r"encryption_keys\[1\]`: not 32 bytes in base64") as caught:
        check_config(config_of(tmp_path, store={"encryption_keys": [NEW, key]}))
    assert not key or key not in str(caught.value)
