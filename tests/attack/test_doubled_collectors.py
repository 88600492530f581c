"""Two collectors on one store, by another name or without the lock file: the second one must not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.acceptance.collector_process import collector_process
from tests.attack.attacked import idle_config, readiness, send, stored_traces

MOST_BYTES = 50 << 20


def by_hard_link(store: Path, folder: Path) -> Path:
    link = folder / "hard.db"
    os.link(store, link)
    return link


def with_another_lock_file(store: Path, folder: Path) -> Path:
    lock = store.with_name(f"{store.name}.lock")
    lock.rename(folder / "taken.lock")
    lock.touch()
    return store


WAYS = [by_hard_link, with_another_lock_file]
Way = Callable[[Path, Path], Path]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_second_collector_process_ends_with_what_to_do(tmp_path: Path, way: Way) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    store = first / "store.db"
    with collector_process(first, idle_config(first)) as collector:
        acknowledged = send(collector, range(5))
        file = second / "collector.yaml"
        file.write_text(json.dumps(idle_config(second, store=way(store, second))))
        ended = subprocess.run(
            [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(file)],
            cwd=second,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, "in use by another collector" in ended.stderr) == (2, True), ended.stderr
        acknowledged += send(collector, range(5, 10))
        assert readiness(collector)[0] == 200
        collector.kill()
    assert len(acknowledged) == 10
    assert stored_traces(store) == set(acknowledged)


async def test_a_file_with_a_second_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteFile(path), max_bytes=MOST_BYTES)
    await store.aclose()
    with pytest.raises(ConfigError, match=r"second name.*VACUUM INTO"):
        await Store.open(SqliteFile(by_hard_link(path, tmp_path)), max_bytes=MOST_BYTES)
