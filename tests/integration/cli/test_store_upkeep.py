"""Copies of a store by SQLite itself, as docs/collector.md says, and what is saved of a damaged one."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.patience import PATIENCE_S

A = "http://a:4318"


def part(trace_id: str, payload: bytes) -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(SpanRef(span_id="s1", parent_span_id=None),))


PART = part("t1", b"spans")


def sqlite(command: str, folder: Path) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("sqlite3 is not installed")
    subprocess.run(command, shell=True, cwd=folder, check=True, timeout=PATIENCE_S)


def damage_slices(path: Path) -> None:
    """Overwrite a page that holds rows of spans, and nothing else."""
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'slice'").fetchone()
        pages = range(root + 1, db.execute("PRAGMA page_count").fetchone()[0])
    contents = path.read_bytes()
    leaf = next(page for page in reversed(pages) if is_leaf_with(contents, page, b"t25"))
    with path.open("r+b") as file:
        file.seek((leaf - 1) * 4096)
        file.write(b"\xff" * 4096)


def is_leaf_with(contents: bytes, page: int, text: bytes) -> bool:
    of_page = contents[(page - 1) * 4096 : page * 4096]
    return of_page[:1] == b"\x0d" and text in of_page


async def test_a_copy_made_while_the_collector_runs_is_a_store(
    store: Store, path: Path, tmp_path: Path
) -> None:
    await store.append([PART], forward={A: b"original"}, now_ns=5)
    backup = f"umask 077 && sqlite3 {path} \"VACUUM INTO 'copy.db'\""
    await asyncio.to_thread(sqlite, backup, tmp_path)
    copy = tmp_path / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    await store.append([PART], forward={}, now_ns=6)
    restored = await Store.open(SqliteFile(copy), max_bytes=10 << 20)
    assert await restored.undecided() == ("t1",)
    assert [each.payload for each in await restored.outbox_items(A, 10)] == [b"original"]
    await restored.aclose()


@pytest.mark.slow
async def test_what_can_be_read_of_a_damaged_store_is_saved(path: Path, tmp_path: Path) -> None:
    store = await Store.open(SqliteFile(path), max_bytes=10 << 20)
    for number in range(50):
        await store.append([part(f"t{number}", bytes(3_000))], forward={A: b"original"}, now_ns=5)
    await store.aclose()
    damage_slices(path)
    command = [sys.executable, "-m", "ragtrace_collector.store.recovery", str(path), "saved.db"]
    done = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    saved = await Store.open(SqliteFile(tmp_path / "saved.db"), max_bytes=10 << 20)
    assert (len(await saved.undecided()), len(await saved.outbox_items(A, 100))) == (50, 50)
    assert (await saved.ledger()).adds_up
    await saved.aclose()
