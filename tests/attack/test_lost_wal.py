"""The store's log is deleted or replaced under a collector that runs: nothing acknowledged may be lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.sql import Db
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.cipher import NO_CIPHER
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.acceptance.collector_process import collector_process
from tests.attack.attacked import idle_config, readiness, send, stored_traces
from tests.backends.process import eventually


def part(trace_id: str) -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=b"x", spans=(SpanRef(span_id="s1", parent_span_id=None),))


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["-wal", "-shm"])
def test_acknowledged_answers_outlive_a_deleted_log_and_a_kill(tmp_path: Path, gone: str) -> None:
    store = tmp_path / "store.db"
    with collector_process(tmp_path, idle_config(tmp_path)) as collector:
        acknowledged = send(collector, range(30))
        assert readiness(collector)[0] == 200
        (tmp_path / f"store.db{gone}").unlink()
        eventually(lambda: readiness(collector)[0] == 503, what="/readyz to say that it is not ready")
        assert f"store.db{gone}" in readiness(collector)[1]
        acknowledged += send(collector, range(30, 35))
        collector.kill()
    assert len(acknowledged) == 30
    with collector_process(tmp_path, idle_config(tmp_path)) as collector:
        assert readiness(collector)[0] == 200
        acknowledged += send(collector, range(40, 42))
        assert collector.stop() == 0
    assert stored_traces(store) >= set(acknowledged)


@pytest.mark.parametrize("name", ["-wal", "-shm"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_nothing_is_acknowledged_into_a_log_that_is_gone(tmp_path: Path, name: str, how: str) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteFile(path), max_bytes=50 << 20)
    try:
        await store.append([part("t1")], forward={}, now_ns=1)
        file = path.with_name(f"{path.name}{name}")
        copy = file.read_bytes()
        file.unlink()
        if how == "replaced":
            file.write_bytes(copy)
        with pytest.raises(
            StoreUnavailable, match=rf"store\.db{name}.*stop the collector and start it again"
        ):
            await store.append([part("t2")], forward={}, now_ns=2)
        with pytest.raises(StoreUnavailable, match=rf"store\.db{name}"):
            await store.check()
    finally:
        await store.aclose()


async def test_what_was_acknowledged_is_saved_from_a_deleted_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    store = await Store.open(SqliteFile(path), max_bytes=50 << 20)
    try:
        await store.append([part("t1")], forward={}, now_ns=1)
        path.with_name("store.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match="written into the store itself"):
            await store.check()
        copy.write_bytes(path.read_bytes())  # what a kill would leave
    finally:
        await store.aclose()
    assert stored_traces(copy) == {"t1"}


async def test_a_log_that_is_moved_away_and_back_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    log, away = path.with_name("store.db-wal"), tmp_path / "away"
    store = await Store.open(SqliteFile(path), max_bytes=50 << 20)
    try:
        log.rename(away)
        with pytest.raises(StoreUnavailable, match=r"store\.db-wal"):
            await store.append([part("t1")], forward={}, now_ns=1)
        away.rename(log)
        await store.append([part("t2")], forward={}, now_ns=2)
        assert await store.undecided() == ("t2",)
    finally:
        await store.aclose()


async def test_a_store_behind_a_symlink_has_its_log_watched_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    real, link = tmp_path / "disk" / "store.db", tmp_path / "store.db"
    link.symlink_to(real)
    store = await Store.open(SqliteFile(link), max_bytes=50 << 20)
    try:
        await store.append([part("t1")], forward={}, now_ns=1)
        real.with_name("store.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match=r"store\.db-wal"):
            await store.append([part("t2")], forward={}, now_ns=2)
    finally:
        await store.aclose()


async def test_a_folder_that_is_gone_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder exists"):
        await Store.open(SqliteFile(tmp_path / "none" / "store.db"), max_bytes=50 << 20)


async def test_what_was_committed_while_the_file_was_away_is_told_as_done(tmp_path: Path) -> None:
    """A lease that was told as failed, and stands in the database, would be nobody's until a restart."""
    path, away = tmp_path / "store.db", tmp_path / "away.db"
    commits = await SqliteFile(path).open(NO_CIPHER, is_collector=False)
    await commits.submit(lambda db: db.execute("CREATE TABLE t (x)").rowcount)

    def insert_and_lose(value: int) -> Callable[[Db], int]:
        def work(db: Db) -> int:
            path.rename(away)
            return db.execute("INSERT INTO t VALUES (?)", (value,)).rowcount

        return work

    try:
        assert await commits.submit(insert_and_lose(1)) == 1
        away.rename(path)
        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            await commits.submit(insert_and_lose(2), is_acknowledged=True)
        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            await commits.submit(lambda db: db.execute("INSERT INTO t VALUES (3)").rowcount)
        away.rename(path)
        assert await commits.submit(lambda db: db.execute("SELECT x FROM t").fetchall()) == [(1,), (2,)]
    finally:
        await commits.aclose()
