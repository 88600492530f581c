"""Soak the collector: ``python -m tests.soak --minutes 10``. Ten minutes for CI, an hour by hand.

Good RAG traces in every recorded convention, in parts and in any order, late and twice; other traces;
malformed requests; feedback; a judge that is slow, over its limits and down by turns; a back end that goes
away. Memory, disk, file handles, threads and tasks must be flat after a third of the time, and the ledger
must add up at every look and in the end. Each answer that was sent is looked up: what became of it, and
whether its own carrier came.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.running import Report, soak
from tests.soak.watching import shown

_A_SECOND = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=_A_SECOND, help="requests or traces a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the store and the log")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = soak(folder, seconds=60 * options.minutes, a_second=options.rate, seed=options.seed)
    _print(report)
    return 1 if report.faults else 0


def _print(report: Report) -> None:
    print(shown(report.samples, report.measures))
    print("\nsent:", ", ".join(f"{kind} {number}" for kind, number in sorted(report.sent.items())))
    print(
        "ledger:", ", ".join(f"{name} {number}" for name, number in sorted(report.ledger.by_name().items()))
    )
    print(f"seen {report.ledger.seen}, superseded {report.ledger.superseded}, carriers {report.carriers}")
    print(
        "\n" + "\n".join(report.faults or ["flat, and every answer and carrier is accounted for, one by one"])
    )


if __name__ == "__main__":
    sys.exit(main())
