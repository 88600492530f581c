"""Content at rest: with a key, the file says nothing of it, and without the right one it is not opened."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.service.check import check_config
from ragtrace_collector.store.cipher import open_cipher
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace

OLD, NEW, OTHER = (base64.b64encode(bytes([number]) * 32).decode() for number in range(3))
SECRET = b"what nobody but the judge may read"


def part(payload: bytes) -> TraceSlice:
    return TraceSlice(trace_id="t1", payload=payload, spans=(SpanRef(span_id="s1", parent_span_id=None),))


@asynccontextmanager
async def store_with(path: Path, *keys: str) -> AsyncIterator[Store]:
    store = await Store.open(
        SqliteFile(path), max_bytes=10 << 20, forward_to=("sink",), cipher=open_cipher(keys)
    )
    try:
        yield store
    finally:
        await store.aclose()


async def kept(store: Store) -> tuple[bytes, ...]:
    outbox_items = await store.outbox_items("sink", 10)
    return (*(await store.spans("t1")).payloads, *(outbox_item.payload for outbox_item in outbox_items))


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


async def test_no_content_stands_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with store_with(path, OLD) as store:
        await store.append([part(SECRET)], forward={"sink": SECRET}, now_ns=1)
        assert SECRET not in on_disk(path)
        assert await kept(store) == (SECRET, SECRET)
    async with store_with(path, OLD) as store:
        assert await kept(store) == (SECRET, SECRET)
    assert SECRET not in on_disk(path)


async def test_an_answer_that_was_judged_leaves_nothing_readable(tmp_path: Path) -> None:
    texts = ("a question of one person", "a chunk of a secret page", "an answer of the same")
    spans = rag_trace(0, question=texts[0], chunks=[texts[1]], answer=texts[2])
    config = config_of(tmp_path, store={"encryption_keys": [OLD]}, judge={"use": "lexical"})
    async with running_collector(config) as collector:
        await send_grpc(collector, request_of(*spans))
        await until(lambda: carriers_in(tmp_path / "out.jsonl"))
        found = on_disk(tmp_path / "store.db")
    assert not [text for text in texts if text.encode() in found]


@pytest.mark.parametrize("keys", [(), (OTHER,)], ids=["no key", "another key"])
async def test_a_store_whose_key_is_missing_is_not_opened(tmp_path: Path, keys: tuple[str, ...]) -> None:
    path = tmp_path / "store.db"
    async with store_with(path, OLD) as store:
        await store.append([part(SECRET)], forward={}, now_ns=1)
    with pytest.raises(ConfigError, match=r"add that key to `store\.encryption_keys`") as caught:
        async with store_with(path, *keys):
            pass
    assert OLD not in str(caught.value)
    async with store_with(path, OLD) as store:
        assert await kept(store) == (SECRET,)


async def test_keys_are_changed_by_putting_a_new_one_in_front(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with store_with(path, OLD) as store:
        await store.append([part(b"old")], forward={}, now_ns=1)
    async with store_with(path, NEW, OLD) as store:
        await store.append([part(b"new")], forward={}, now_ns=2)
        assert await kept(store) == (b"old", b"new")
    with pytest.raises(ConfigError):
        async with store_with(path, NEW):
            pass


async def test_content_that_was_changed_on_disk_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with store_with(path, OLD) as store:
        await store.append([part(SECRET)], forward={}, now_ns=1)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE slice SET trace_id = 't2'")
        db.execute("UPDATE trace SET trace_id = 't2'")
    db.close()
    async with store_with(path, OLD) as store:
        with pytest.raises(StoreUnavailable):
            await store.spans("t2")


@pytest.mark.parametrize("key", ["", "short", "not base64!", OLD[:-5]])
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=r"encryption_keys\[1\]`: not 32 bytes in base64") as caught:
        check_config(config_of(tmp_path, store={"encryption_keys": [NEW, key]}))
    assert not key or key not in str(caught.value)


def test_no_cache_keeps_in_the_clear_what_the_store_encrypts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`judge\.cache` keeps replies"):
        config_of(tmp_path, store={"encryption_keys": [NEW]}, judge={"cache": "judge.db"})
