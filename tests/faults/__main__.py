"""``python -m tests.faults``: strike a collector in every way there is, and print what it cost.

Exits with 1 unless nothing was lost, doubled or unaccounted for.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext

from tests.backends.postgres_server import running_postgres
from tests.faults.catalogue import ENGINES, Engine, catalogue
from tests.faults.scene import on
from tests.faults.table import heading, rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="faults whose name holds these words")
    parser.add_argument("--kills", type=int, default=200, help="at random moments (200)")
    parser.add_argument("--every", type=int, default=1, help="fail at each how-manieth statement (1)")
    parser.add_argument(
        "--times", type=int, default=3, help="tries of what has no moments to choose from (3)"
    )
    parser.add_argument("--at-once", type=int, help="tries at a time (4 a core)")
    parser.add_argument("--on", choices=ENGINES, action="append", help="what keeps the store (all)")
    options = parser.parse_args(arguments)
    return max(_table(engine, options) for engine in options.on or ENGINES)


def _table(engine: Engine, options: argparse.Namespace) -> int:
    faults = catalogue(engine, kills=options.kills, every=options.every, times=options.times, away_s=60)
    chosen = [fault for name, fault in faults.items() if options.only in name]
    print(f"{engine}\n{heading()}", flush=True)
    bad = 0
    with running_postgres() if engine == "PostgreSQL" else nullcontext() as server:
        for row in rows(chosen, on(server), at_once=options.at_once or 4 * (os.cpu_count() or 1)):
            print(row, flush=True)
            bad += bool(row)
            for reason in row.broken[:2]:
                print(f"\n{row.fault}:\n{reason}", file=sys.stderr)
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
