"""How soon a score is on the trace: from the acknowledged spans to the score at the back end.

The collector first judges as fast as it can; then answers come at half that rate. The judge is a stub of a
fixed latency, asked twice, one call after the other. Its two latencies are the alternative: nobody can be
sooner. The quiet period (1 s), in which a trace may get further spans, is part of the time.
"""

from __future__ import annotations

import asyncio
import statistics
from contextlib import ExitStack
from typing import Final

from tests.benchmarks.peers import Peers
from tests.benchmarks.pipeline import (
    LATENCY_S,
    QUIET_S,
    Scores,
    at_limit,
    collector,
    configure,
    new_answers,
    running_stub,
    send_paced,
)
from tests.benchmarks.recording import Measurement

ROUNDS: Final = 3
ANSWERS: Final = 200
AT_ONCE: Final = 64
LOAD: Final = 0.5
CALLS: Final = 2


def measure(_: Peers) -> list[Measurement]:
    p50, p95 = [], []
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        scores = stack.enter_context(Scores.receiving())
        for _ in range(ROUNDS):
            most_a_second, _ = at_limit(stub, scores, LATENCY_S, ANSWERS, AT_ONCE)
            cuts = statistics.quantiles(_at_half_load(stub, scores, most_a_second), n=100)
            p50.append(cuts[49] / (CALLS * LATENCY_S))
            p95.append(cuts[94] / (CALLS * LATENCY_S))
    return [
        Measurement(
            what=f"answer to score at 50 % load, {name}",
            alternative=f"the judge's {CALLS} calls of {LATENCY_S:g} s (quiet period {QUIET_S:g} s)",
            ratios=tuple(ratios),
        )
        for name, ratios in (("p50", p50), ("p95", p95))
    ]


def _at_half_load(stub: str, scores: Scores, most_a_second: float) -> list[float]:
    configure(stub, latency_s=LATENCY_S)
    with collector(stub, scores, AT_ONCE) as server:
        return asyncio.run(send_paced(server, new_answers(ANSWERS), scores, LOAD * most_a_second))
