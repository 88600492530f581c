"""``python -m tests.mutants``: break each promise on purpose, and see that a test notices.

Exits with 1 unless every mutant was killed: by a test that failed, and that passes without the mutant.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.running import Fate, fate_of


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="mutants whose promise or name has these")
    parser.add_argument("-j", "--at-once", type=int, default=os.cpu_count() or 1, metavar="N")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in CATALOGUE if options.only in f"{mutant.promise}: {mutant.breaks}"]
    bad = 0
    with (
        tempfile.TemporaryDirectory(prefix="ragtrace-mutants-") as folder,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        places = [Path(folder, str(number)) for number in range(len(chosen))]
        for mutant, (fate, said) in zip(chosen, pool.map(fate_of, chosen, places), strict=True):
            print(f"{mutant.promise:<10} {mutant.breaks:<60} {fate}", flush=True)
            if fate is not Fate.KILLED:
                bad += 1
                print(said, file=sys.stderr, flush=True)
    print(f"{len(chosen)} mutants, {bad} of them not killed")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
