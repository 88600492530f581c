"""Some of the faults over Kafka, once each; `make test-faults ARGS="--store kafka"` tries all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.scene import Broker
from tests.faults.cluster_catalogue import cluster_catalogue
from tests.faults.place import KafkaPlace
from tests.faults.table import heading, rows

pytestmark = [pytest.mark.slow, pytest.mark.long]

FAULTS: Final = cluster_catalogue(kills=8, every=10_000, times=1)
CHOSEN: Final = (
    "killed at a random moment (file)",
    "disk full for a while",
    "a copy is deleted while it is in use",
    "the copies are deleted between two kills",
    "a second member joins, and is killed for good",
    "the broker is killed, and started again",
)


@pytest.fixture(scope="module")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Run a broker that may be killed."""
    broker = Broker(kafka_jars, tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", CHOSEN)
def test_nothing_is_lost_doubled_or_unaccounted_for_in_a_cluster(name: str, broker: Broker) -> None:
    (row,) = rows([FAULTS[name]], at_once=2, place_at=partial(KafkaPlace.at, broker))
    print(heading(), row, sep="\n")
    assert not row, (row.tally, *row.broken)


def test_what_has_no_meaning_in_a_cluster_is_named_with_the_reason(broker: Broker) -> None:
    (row,) = rows([FAULTS["a store of a newer version"]], at_once=1, place_at=partial(KafkaPlace.at, broker))
    assert str(row).endswith("not tried: the state has a version of its own, below")
    assert not row
