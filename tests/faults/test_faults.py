"""The suite in the size of a test run: fewer moments, every fault."""

from __future__ import annotations

import pytest

from tests.backends.postgres_server import Postgres
from tests.faults.catalogue import ENGINES, Engine, catalogue
from tests.faults.scene import on
from tests.faults.table import Made, heading, rows

pytestmark = pytest.mark.night

FAULTS = {
    f"{engine}: {name}": (engine, fault)
    for engine in ENGINES
    for name, fault in catalogue(engine, kills=8, every=60, times=1, away_s=5).items()
}


@pytest.mark.long
@pytest.mark.parametrize(("engine", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_nothing_is_lost_doubled_or_unaccounted_for_whatever_fails(
    request: pytest.FixtureRequest, engine: Engine, fault: Made
) -> None:
    server: Postgres | None = request.getfixturevalue("postgres") if engine == "PostgreSQL" else None
    (row,) = rows([fault], on(server), at_once=4)
    print(heading(), row, sep="\n")
    assert not row, (row.tally, *row.broken)
