"""The store of a collector, for commands that read one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(SqliteFile(path), max_bytes=10 << 20)
    yield opened
    await opened.aclose()
