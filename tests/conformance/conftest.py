"""The stores of the conformance kit: every test that asks for one runs on each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ragtrace_collector.store.port import WorkStore
from tests.stores.adapters import PLACES, Place


@pytest.fixture(params=PLACES, ids=lambda kind: kind.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the store of this test lives; it is empty."""
    kind: type[Place] = request.param
    return kind.of(tmp_path)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[WorkStore]:
    """An empty store, open."""
    opened = await place.open()
    yield opened
    await opened.aclose()
