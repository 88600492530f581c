"""The store's log is deleted or replaced under a collector that runs: nothing acknowledged may be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.acceptance.collector_process import collector_process
from tests.attack.attacked import idle_config, readiness, send, stored_traces
from tests.backends.process import eventually


def part(trace_id: str) -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=b"x", spans=(SpanRef(span_id="s1", parent_span_id=None),))


@pytest.mark.slow
def test_acknowledged_answers_outlive_a_deleted_log_and_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with collector_process(tmp_path, idle_config(tmp_path)) as collector:
        acknowledged = send(collector, range(30))
        assert readiness(collector)[0] == 200
        (tmp_path / "store.db-wal").unlink()
        eventually(lambda: readiness(collector)[0] == 503, what="/readyz to say that it is not ready")
        assert "store.db-wal" in readiness(collector)[1]
        acknowledged += send(collector, range(30, 35))
        collector.kill()
    assert len(acknowledged) == 30
    with collector_process(tmp_path, idle_config(tmp_path)) as collector:
        assert readiness(collector)[0] == 200
        acknowledged += send(collector, range(40, 42))
        assert collector.stop() == 0
    assert stored_traces(store) >= set(acknowledged)


@pytest.mark.parametrize(("name", "how"), [("-shm", "deleted"), ("-wal", "replaced")])
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
