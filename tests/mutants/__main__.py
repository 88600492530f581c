"""``python -m tests.mutants``: break each promise on purpose, and see that a test notices.

Exits with 1 unless every mutant was killed: by a test that failed, and that passes without the mutant.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.running import Fate, Row, Yard

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="mutants whose promise or name has these")
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than 15 seconds")
    parser.add_argument("-j", "--at-once", type=int, default=os.cpu_count() or 1, metavar="N")
    options = parser.parse_args(arguments)
    chosen = [
        mutant
        for mutant in CATALOGUE
        if options.only in f"{mutant.promise}: {mutant.breaks}" and not (options.quick and mutant.is_slow)
    ]
    bad = 0
    print(f"{'promise':<14} {'mutant':<76} {'seconds':>7}  killed by", flush=True)
    with tempfile.TemporaryDirectory(prefix="ragtrace-mutants-") as folder:
        for row in Yard(Path(folder), at_once=min(options.at_once, len(chosen) or 1)).rows(chosen):
            bad += row.fate is not Fate.KILLED
            _print(row)
    print(f"{len(chosen)} mutants, {bad} of them not killed")
    return 1 if bad or not chosen else 0


def _print(row: Row) -> None:
    mutant = row.mutant
    by = row.killed_by if row.fate is Fate.KILLED else row.fate
    print(f"{mutant.promise:<14} {mutant.breaks:<76} {row.took_s:>7.1f}  {by}", flush=True)
    if row.fate is not Fate.KILLED:
        print(f"\n{mutant.breaks}: {row.fate}\n{row.killed_by}\n{row.told}\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
