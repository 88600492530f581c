"""Fire at both receivers for some minutes: ``python -m tests.fuzz --minutes 10``."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.fuzz.firing import fire
from tests.fuzz.target import running_target

_A_ROUND = 500


def main() -> None:
    """Print the answers and what they took; a failure ends it with the least request that shows it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder, running_target(Path(folder)) as target:
        rounds = 0
        while time.monotonic() < until:
            fire(target, requests=_A_ROUND, seed_number=options.seed + rounds)
            rounds += 1
        print(f"{sum(target.answers.values())} requests, {target.sentinels} good answers among them")
        print(f"peak memory {target.meter.peak_bytes / 2**20:.0f} MiB")
        print(
            f"the dearest request took {target.meter.worst_cpu_share:.0%} of the CPU time"
            f" and {target.meter.worst_memory_share:.0%} of the memory that one of its size may take"
        )
        for answer, number in target.answers.most_common():
            print(f"{number:>9} {answer}")
    print("every good answer was judged")


if __name__ == "__main__":
    main()
