"""``make test-faults``: strike a collector in every way there is, and print what it cost.

With ``--store kafka`` its store is in a real Kafka, and the brokers are struck, too. Exits with 1 unless
nothing was lost, doubled or unaccounted for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.backends.binary import required_binary
from tests.cluster.scene import Broker
from tests.faults.catalogue import catalogue
from tests.faults.cluster_catalogue import cluster_catalogue
from tests.faults.place import FilePlace, KafkaPlace, PlaceAt
from tests.faults.table import heading, rows

__all__ = ["main"]

_FULL = {"sqlite": (200, 1, 4), "kafka": (40, 40, 2)}
"""Kills, each how-manieth statement, and tries at a time for a core: a try over Kafka takes seconds."""


def main(arguments: list[str] | None = None) -> int:
    """Run the suite and return the exit code."""
    parser = argparse.ArgumentParser(prog="make test-faults ARGS=…", description=__doc__)
    parser.add_argument("--store", choices=_FULL, default="sqlite", help="where the work is kept (sqlite)")
    parser.add_argument("--only", default="", metavar="WORDS", help="faults whose name holds these words")
    parser.add_argument("--kills", type=int, help="at random moments (200; over Kafka 40)")
    parser.add_argument("--every", type=int, help="fail at each how-manieth statement (1; over Kafka 40)")
    parser.add_argument(
        "--times", type=int, default=3, help="tries of what has no moments to choose from (3)"
    )
    parser.add_argument("--at-once", type=int, help="tries at a time (4 a core; over Kafka 2 a core)")
    options = parser.parse_args(arguments)
    kills, every, a_core = _FULL[options.store]
    faults = {"sqlite": catalogue, "kafka": cluster_catalogue}[options.store](
        kills=options.kills or kills, every=options.every or every, times=options.times
    )
    chosen = [fault for name, fault in faults.items() if options.only in name]
    print(heading(), flush=True)
    bad = 0
    with _places(options.store) as place_at:
        at_once = options.at_once or a_core * (os.cpu_count() or 1)
        for row in rows(chosen, at_once=at_once, place_at=place_at):
            print(row, flush=True)
            bad += bool(row)
            for reason in row.broken[:2]:
                print(f"\n{row.fault}:\n{reason}", file=sys.stderr)
    return 1 if bad or not chosen else 0


@contextmanager
def _places(store: str) -> Iterator[PlaceAt]:
    """Run what the tries share: a broker, if their stores are in Kafka."""
    if store == "sqlite":
        yield FilePlace
        return
    with TemporaryDirectory(prefix="ragtrace-faults-kafka-") as folder:
        broker = Broker(required_binary("kafka"), Path(folder))
        broker.start()
        try:
            yield partial(KafkaPlace.at, broker)
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main())
