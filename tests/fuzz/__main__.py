"""Fire at both receivers for some minutes: ``python -m tests.fuzz --minutes 10``."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.bodies import Body, bodies, heavy_bodies, odd_http
from tests.fuzz.target import Target, running_target

_A_ROUND = 500
_SENTINEL_EVERY = 50


def fire(target: Target, *, requests: int, seed_number: int) -> None:
    """Send so many requests over each protocol. A failure is shrunk to the least that shows it."""

    @seed(seed_number)
    @settings(
        max_examples=requests,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies(), st.booleans(), st.none() | odd_http())
    def shoot(body: Body, packed: bool, odd: bytes | None) -> None:
        if odd is not None:
            target.say(odd)
        target.post(body)
        target.call(body.content, packed=packed)
        target.check_alive()
        if sum(target.answers.values()) // 2 % _SENTINEL_EVERY == 0:
            target.send_sentinel()

    shoot()


def main() -> None:
    """Print the answers and what they took; a failure ends it with the least request that shows it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder, running_target(Path(folder)) as target:
        for body in heavy_bodies():
            target.post(body)
        rounds, until = 0, time.monotonic() + 60 * options.minutes
        while time.monotonic() < until:
            fire(target, requests=_A_ROUND, seed_number=options.seed + rounds)
            rounds += 1
        print(f"{sum(target.answers.values())} requests, {target.sentinels} good answers among them")
        print(f"peak memory {target.peak_bytes / 2**20:.0f} MiB")
        for what, share in target.worst_shares.items():
            print(f"the dearest request took {share:.0%} of the {what} that one of its size may take")
        for answer, number in target.answers.most_common():
            print(f"{number:>9} {answer}")
    print("every good answer was judged")


if __name__ == "__main__":
    main()
