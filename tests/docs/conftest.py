"""What the blocks of the documents run beside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.stand_ins import Place, running_place


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Prepare what a reader has, once."""
    with running_place(tmp_path_factory.mktemp("reader")) as running:
        yield running
