"""What one evaluation costs in processor time, beside the same requests posted and read by an HTTP client."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Final

from tests.benchmarks.peers import Peers
from tests.benchmarks.pipeline import (
    Scores,
    at_limit,
    configure,
    floor,
    library,
    requests_of_one_evaluation,
    running_stub,
)
from tests.benchmarks.recording import Measurement, versions_of

ROUNDS: Final = 5
ANSWERS: Final = 150
AT_ONCE: Final = 64


def measure(_: Peers) -> list[Measurement]:
    """Measure the whole collector, and the library alone."""
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        scores = stack.enter_context(Scores.receiving())
        bodies = asyncio.run(requests_of_one_evaluation(stub))
        collector, alone = [], []
        for _ in range(ROUNDS):
            _, whole_ms = at_limit(stub, scores, 0.0, ANSWERS, AT_ONCE)
            configure(stub, latency_s=0.0)
            library_ms = asyncio.run(library(stub, ANSWERS, AT_ONCE))
            floor_ms = asyncio.run(floor(stub, bodies, ANSWERS, AT_ONCE))
            collector.append(whole_ms / floor_ms)
            alone.append(library_ms / floor_ms)
    return [
        Measurement(
            what=what,
            alternative=f"its {len(bodies)} requests by aiohttp",
            ratios=tuple(ratios),
            versions=versions_of(["aiohttp"]),
        )
        for what, ratios in (
            ("the collector, CPU an evaluation", collector),
            ("evaluate() alone, CPU an evaluation", alone),
        )
    ]
