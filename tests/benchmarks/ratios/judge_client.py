"""What a judge's call costs the client in processor time, beside the SDK's typed method."""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

from tests.benchmarks.judge_client import one_round, running_stub
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.machine import versions_of
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 5
SIZES: Final = argparse.Namespace(calls=600, at_once=64, old=None)
WHAT: Final = {"judge": "a judge's call, CPU", "cached": "a judge's call from the cache, CPU"}


def measure(_: Peers) -> list[Measurement]:
    """Measure a call by ragtrace's judge, asked and remembered."""
    with running_stub() as url:
        rounds = [asyncio.run(one_round(url, SIZES)) for _ in range(ROUNDS)]
    return [
        Measurement(
            what=what,
            alternative="the openai SDK's call",
            ratios=tuple(found[name][0] / found["sdk"][0] for found in rounds),
            versions=versions_of(["openai", "httpx"]),
        )
        for name, what in WHAT.items()
    ]
