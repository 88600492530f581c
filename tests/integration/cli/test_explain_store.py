"""``ragtrace explain`` on a collector's store: encrypted, of another version, damaged, or in use."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragtrace.traces.otlp import encode, parse_request, split_by_trace
from ragtrace.traces.trace import Trace
from ragtrace_collector.store.cipher import open_cipher
from ragtrace_collector.store.sqlite import SCHEMA, SqliteFile
from ragtrace_collector.store.store import Store
from ragtrace_collector.store.tables import VERSION
from tests.integration.cli.program import json_lines, run
from tests.unit.backfill.stored_traces import RIGHT, rag_trace, trace_id

KEY, NEWER_KEY, OTHER_KEY = (base64.b64encode(bytes([number]) * 32).decode() for number in range(3))
KEYS = "store.encryption_keys"


def config_file(path: Path, store: Path, *keys: str, **sections: Any) -> Path:
    settings: Mapping[str, Any] = {
        "export": [{"endpoint": f"otlp-file:{path.with_name('out.jsonl')}"}],
        "store": {"path": str(store), "encryption_keys": list(keys)},
        **sections,
    }
    path.write_text(json.dumps(settings))
    return path


def request(trace: Trace) -> bytes:
    return encode(trace.spans)


def write_store(path: Path, *keys: str, trace: Trace) -> None:
    asyncio.run(append(path, *keys, trace=trace))


async def append(path: Path, *keys: str, trace: Trace) -> None:
    store = await Store.open(SqliteFile(path), max_bytes=1 << 30, cipher=open_cipher(keys))
    slices = split_by_trace(parse_request(request(trace), encoding="protobuf")).slices
    await store.append(slices, forward={}, now_ns=1)
    await store.aclose()


def explained(*args: str, columns: int = 200) -> dict[str, Any]:
    result = run("explain", *args, "--json", columns=columns)
    assert result.exit_code == 0, result.stderr
    (trace,) = json_lines(result.stdout)
    return trace


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    """An encrypted store that nobody has open."""
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / "ragtrace.db"
    write_store(path, KEY, trace=rag_trace(0))
    return path


@pytest.mark.parametrize("source", [[], ["--from", "store"], ["--from", "store:PATH"]])
def test_the_keys_are_those_of_the_configuration(encrypted: Path, tmp_path: Path, source: list[str]) -> None:
    config = config_file(tmp_path / "collector.json", encrypted, NEWER_KEY, KEY)
    named = [part.replace("PATH", str(encrypted)) for part in source]
    found = explained(trace_id(0), *named, "--config", str(config))
    assert found["records"][0]["answer"] == RIGHT


def test_without_keys_the_store_is_called_encrypted_and_not_damaged(encrypted: Path, tmp_path: Path) -> None:
    keyless = config_file(tmp_path / "collector.json", encrypted)
    for args in (["--from", f"store:{encrypted}"], ["--config", str(keyless)]):
        result = run("explain", trace_id(0), *args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is encrypted" in result.stderr
        assert f"name the collector's configuration with --config: its `{KEYS}` " in result.stderr
        assert "damaged" not in result.stderr


def test_a_wrong_key_is_called_so_and_not_shown(encrypted: Path, tmp_path: Path) -> None:
    config = config_file(tmp_path / "collector.json", encrypted, OTHER_KEY)
    result = run("explain", trace_id(0), "--config", str(config))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "which is not among those given: add that key to `store.encryption_keys`" in result.stderr
    assert "damaged" not in result.stderr
    assert KEY not in result.stderr
    assert OTHER_KEY not in result.stderr


def test_a_payload_that_was_moved_is_not_believed(encrypted: Path, tmp_path: Path) -> None:
    config = config_file(tmp_path / "collector.json", encrypted, KEY)
    with closing(sqlite3.connect(encrypted)) as db, db:
        db.execute("UPDATE slice SET trace_id = ?", (trace_id(1),))
    result = run("explain", trace_id(1), "--config", str(config))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be decrypted: it was changed, damaged or moved" in result.stderr


def test_a_store_is_not_changed_by_looking_into_it(encrypted: Path, tmp_path: Path) -> None:
    keys = (KEY,)
    before = contents(encrypted.parent)
    config = config_file(tmp_path / "collector.json", encrypted, *keys)
    run("explain", trace_id(0), "--config", str(config))
    after = contents(encrypted.parent)
    assert {name: after[name] for name in before} == before
    assert not any(after[name] for name in after.keys() - before.keys() if name.endswith("-wal"))


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmark (url TEXT)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{SCHEMA} PRAGMA user_version = 99;")


def half_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{SCHEMA} DROP TABLE slice; CREATE TABLE slice (number);")
        db.execute(f"PRAGMA user_version = {VERSION}")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(lambda path: None, "there is no store", id="missing"),
        pytest.param(lambda path: path.mkdir(), "there is no store", id="folder"),
        pytest.param(other_program, "it holds the tables of another program", id="other"),
        pytest.param(newer, "was written by another ragtrace: it is of version 99", id="newer"),
        pytest.param(half_a_table, "no such column: trace_id): restore a backup", id="half a table"),
        pytest.param(lambda path: path.write_text("no database " * 99), "is not a database", id="text"),
    ],
)
def test_what_is_no_store_of_this_version_is_told_with_what_to_do(
    tmp_path: Path, made: Any, says: str
) -> None:
    path = tmp_path / "ragtrace.db"
    made(path)
    result = run("explain", trace_id(0), "--from", f"store:{path}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr
