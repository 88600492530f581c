"""Break a cluster while it works: ``python -m tests.cluster --minutes 20``.

A broker, three processes that take spans and three that judge, under load. At random moments a process of
either kind is killed, or a process that judges is paused for longer than its session, or one leaves and comes
back, so that partitions move; once, the broker is stopped. In the end every acknowledged answer must have
exactly one carrier, and the ledgers of all shards must have each answer once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from tests.backends.binary import required_binary
from tests.cluster.breaking import break_at_random
from tests.cluster.scene import ClusterScene, cluster_scene


def main() -> int:
    """Run once, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--broker-away", type=float, default=5.0, help="minutes without the broker, of these")
    parser.add_argument("--rate", type=float, default=10.0, help="traces a second")
    parser.add_argument("--ingest", type=int, default=3)
    parser.add_argument("--evaluate", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds that the judge takes for a call")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for logs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        with cluster_scene(
            required_binary("kafka"),
            folder,
            ingest=options.ingest,
            evaluate=options.evaluate,
            partitions=options.partitions,
            delay_s=options.delay,
        ) as scene:
            scene.start(senders=8, rate=options.rate, seed=options.seed)
            done = break_at_random(
                scene,
                seconds=60 * options.minutes,
                broker_away_s=60 * options.broker_away,
                random=Random(options.seed),
            )
            return _report(scene, done)


def _report(scene: ClusterScene, done: Counter[str]) -> int:
    scene.end_load()
    verdict = scene.await_verdict(at_most_s=300)
    for name, number in sorted(done.items()):
        print(f"{number:5} x {name}")
    print(
        f"{verdict.acknowledged} answers acknowledged, {verdict.judged} judged, {verdict.carriers} carriers, "
        f"{verdict.judge_calls} calls of the judge; ledger: {verdict.seen} seen, {verdict.ended} ended"
    )
    print("\n".join(verdict.faults or ["each acknowledged answer is judged exactly once, by id"]))
    if verdict.faults:
        print(scene.told())
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
