"""``python -m tests.faults``: strike a collector in every way there is, and print what it cost.

Exits with 1 unless nothing was lost, doubled or unaccounted for.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.backends.postgres_server import running_postgres
from tests.faults.catalogue import ENGINES, Engine, Fault, Try, catalogue
from tests.faults.scene import Ground, Grounds, Tally, on


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
    at_once = options.at_once or 4 * (os.cpu_count() or 1)
    print(f"{engine}\n{'fault':<58} {'tries':>5} {'lost':>5} {'doubled':>7} {'unaccounted':>11}", flush=True)
    bad = 0
    with running_postgres() if engine == "PostgreSQL" else nullcontext() as server:
        for made in chosen:
            grounds = on(server)
            bad += _is_bad(made(grounds), grounds, at_once)
    return 1 if bad or not chosen else 0


def _is_bad(fault: Fault, grounds: Grounds, at_once: int) -> bool:
    """Try a fault, several times at once, and print its row; a try that breaks is unaccounted for."""
    with TemporaryDirectory(prefix="ragtrace-faults-") as folder:
        its = [grounds(Path(folder, str(number))) for number in range(len(fault.tries))]
        with ThreadPoolExecutor(1 if fault.is_for_all else at_once) as pool:
            results = list(pool.map(_attempt, fault.tries, its))
    broken = [each for each in results if isinstance(each, str)]
    accounts = [each for each in results if not isinstance(each, str)]
    tally = Tally.sum([Tally(unaccounted=len(broken)), *accounts])
    numbers = f"{len(results):>5} {tally.lost:>5} {tally.doubled:>7} {tally.unaccounted:>11}"
    print(f"{fault.name:<58} {numbers}", flush=True)
    for reason in broken[:2]:
        print(f"\n{fault.name}:\n{reason}", file=sys.stderr)
    return any(tally)


def _attempt(one: Try, ground: Ground) -> Tally | str:
    try:
        return one(ground)
    except Exception:  # noqa: BLE001 -- a try that breaks is told in its row, and the others go on
        return traceback.format_exc()


if __name__ == "__main__":
    sys.exit(main())
