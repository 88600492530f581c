"""``ragtrace backup`` and ``ragtrace outbox``, on the store of a collector that runs."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner, Result

from ragtrace.cli.app import cli
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store

A, B = "http://a:4318", "http://b:4318"


def part(trace_id: str, payload: bytes) -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=payload, spans=(SpanRef(span_id="s1", parent_span_id=None),))


PART = part("t1", b"spans")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


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


async def refuse(store: Store, sink: str, reason: str) -> None:
    await store.append([], forward={sink: b"request"}, now_ns=1)
    await store.reject(await store.outbox_items(sink, 1), reason=reason, now_ns=2)


async def test_a_copy_made_while_the_collector_runs_is_a_store(
    store: Store, path: Path, tmp_path: Path
) -> None:
    await store.append([PART], forward={A: b"original"}, now_ns=5)
    copy = tmp_path / "copy.db"
    result = run("backup", copy, "--store", path, "--json")
    assert (result.exit_code, json.loads(result.stdout)["bytes"]) == (0, copy.stat().st_size)
    assert copy.stat().st_mode & 0o777 == 0o600
    await store.append([PART], forward={}, now_ns=6)
    restored = await Store.open(SqliteFile(copy), max_bytes=10 << 20)
    assert await restored.undecided() == ("t1",)
    assert [each.payload for each in await restored.outbox_items(A, 10)] == [b"original"]
    await restored.aclose()


async def test_a_backup_overwrites_nothing(store: Store, path: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    result = run("backup", tmp_path / "copy.db", "--store", path)
    assert (result.exit_code, "name another" in result.stderr) == (2, True)
    assert (tmp_path / "copy.db").read_text() == "mine"


async def test_a_backup_that_cannot_be_written_leaves_nothing_behind(
    store: Store, path: Path, tmp_path: Path
) -> None:
    result = run("backup", tmp_path / "missing" / "copy.db", "--store", path)
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_backup_of_no_store_is_refused(tmp_path: Path) -> None:
    result = run("backup", tmp_path / "copy.db", "--store", tmp_path / "missing.db")
    assert (result.exit_code, "there is no store" in result.stderr) == (1, True)


async def test_what_can_be_read_of_a_damaged_store_is_saved(path: Path, tmp_path: Path) -> None:
    store = await Store.open(SqliteFile(path), max_bytes=10 << 20)
    for number in range(50):
        await store.append([part(f"t{number}", bytes(3_000))], forward={A: b"original"}, now_ns=5)
    await store.aclose()
    damage_slices(path)
    result = run("backup", tmp_path / "saved.db", "--salvage", "--store", path, "--json")
    assert result.exit_code == 0, result.stderr
    assert 10 < json.loads(result.stdout)["rows"]["slice"] < 50
    saved = await Store.open(SqliteFile(tmp_path / "saved.db"), max_bytes=10 << 20)
    assert (len(await saved.undecided()), len(await saved.outbox_items(A, 100))) == (50, 50)
    assert (await saved.ledger()).adds_up
    await saved.aclose()


def test_a_file_that_is_no_database_cannot_be_salvaged(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("my notes " * 1000)
    result = run("backup", tmp_path / "saved.db", "--salvage", "--store", tmp_path / "notes.txt")
    assert (result.exit_code, "restore a backup" in result.stderr) == (1, True)
    assert os.listdir(tmp_path) == ["notes.txt"]


async def test_what_was_refused_is_told_by_reason(store: Store, path: Path) -> None:
    for sink, reason in ((A, "400"), (A, "400"), (B, "413")):
        await refuse(store, sink, reason)
    lines = [json.loads(line) for line in run("outbox", "--store", path, "--json").stdout.splitlines()]
    assert [(each["sink"], each["reason"], each["requests"]) for each in lines] == [
        (A, "400", 2),
        (B, "413", 1),
    ]
    assert "http://a:4318: 2 requests since 1970-01-01" in run("outbox", "--store", path).stdout


async def test_what_one_back_end_refused_is_sent_again_while_the_collector_runs(
    store: Store, path: Path
) -> None:
    for sink in (A, B):
        await refuse(store, sink, "400")
    result = run("outbox", "--store", path, "--retry", "--sink", A)
    assert (result.exit_code, "1 request sent again" in result.stderr) == (0, True)
    assert (len(await store.outbox_items(A, 10)), len(await store.outbox_items(B, 10))) == (1, 0)
    assert (await store.ledger()).adds_up


async def test_an_outbox_without_refusals_says_so(store: Store, path: Path) -> None:
    result = run("outbox", "--store", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing was refused" in result.stderr
