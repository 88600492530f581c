"""The store of the conformance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragtrace_collector.store.store import Store
from tests.stores.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where the store of this test lives; it is empty."""
    return Place(tmp_path / "store.db")


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    """An empty store, open."""
    opened = await place.open()
    yield opened
    await opened.aclose()
