"""The store of the conformance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragtrace_collector.store.store import Store
from tests.backends.postgres_server import Postgres
from tests.stores.place import Place, PostgresPlace


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place | PostgresPlace:
    """Where the store of this test lives; it is empty."""
    if request.param == "sqlite":
        return Place(tmp_path / "store.db")
    server: Postgres = request.getfixturevalue("postgres")
    return PostgresPlace(server, server.new_database())


@pytest.fixture
async def store(place: Place | PostgresPlace) -> AsyncIterator[Store]:
    """An empty store, open."""
    opened = await place.open()
    yield opened
    await opened.aclose()
