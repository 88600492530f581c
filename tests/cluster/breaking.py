"""What is done to a cluster at random while it works."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tests.cluster.members import Member
from tests.cluster.scene import ClusterScene

__all__ = ["break_at_random"]

_SESSION_S: Final = 6.0


def break_at_random(
    scene: ClusterScene, *, seconds: float, broker_away_s: float, random: Random, pause_s: float = 7.0
) -> Counter[str]:
    """Break something every now and then for so long, and once the broker; return what was done how often."""
    done: Counter[str] = Counter()
    end = time.monotonic() + seconds
    broker_goes = time.monotonic() + random.uniform(0.2, 0.5) * (seconds - broker_away_s)
    while time.monotonic() < end:
        time.sleep(random.uniform(0.3, 1.7) * pause_s)
        if broker_away_s and time.monotonic() >= broker_goes and "the broker stopped" not in done:
            name = "the broker stopped"
            scene.broker.stop()
            time.sleep(broker_away_s)
            scene.broker.start()
        else:
            name = random.choice(sorted(_FAULTS))
            _FAULTS[name](scene, random)
        done[name] += 1
        print(f"{name}; {len(scene.acknowledged)} acknowledged, {len(scene.carriers())} judged", flush=True)
    return done


def _kill(member: Member) -> None:
    member.kill()
    member.start()


def _pause(scene: ClusterScene, random: Random) -> None:
    member = random.choice(scene.evaluate)
    member.pause()
    time.sleep(2 * _SESSION_S)
    member.go_on()


def _leave(scene: ClusterScene, random: Random) -> None:
    member = random.choice(scene.evaluate)
    member.stop()
    time.sleep(1.5 * _SESSION_S)
    member.start()


_FAULTS: Final[Mapping[str, Callable[[ClusterScene, Random], None]]] = {
    "an ingest process killed": lambda scene, random: _kill(random.choice(scene.ingest)),
    "an evaluate process killed": lambda scene, random: _kill(random.choice(scene.evaluate)),
    "an evaluate process paused beyond its session": _pause,
    "an evaluate process away: partitions move": _leave,
}
