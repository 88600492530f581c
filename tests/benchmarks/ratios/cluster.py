"""How a cluster scales: answers a second with two and three processes that judge, to those with one.

All share a store in a real Kafka, on one machine. The judge takes half a second a call and is asked twice
an answer, so a process waits most of the time, as with a real endpoint. Linear is 1: n processes judge n
times as many answers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ragtrace.traces.otlp import encode
from tests.acceptance.replies import ANSWER
from tests.backends.binary import required_binary
from tests.backends.process import eventually
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.measurement import Measurement
from tests.cluster.scene import ClusterScene, cluster_scene
from tests.rag_spans import rag_trace

ROUNDS: Final = 3
PROCESSES: Final = (1, 2, 3)
PARTITIONS: Final = 12
ANSWERS: Final = 150
"""Of each process."""
LATENCY_S: Final = 0.5
AT_ONCE: Final = 8
_FROM, _TO = 0.15, 0.75
"""Between these shares of all answers the rate is measured: at the end, single shards have nothing left."""
_POLL_S: Final = 0.05


def measure(_: Peers) -> list[Measurement]:
    """Measure the answers a second that one process of several judges."""
    rates = [[_rate(number) for number in PROCESSES] for _ in range(ROUNDS)]
    return [
        Measurement(
            what=f"one of {number} evaluate processes, time an answer",
            alternative=f"one alone, a judge of {LATENCY_S:g} s",
            ratios=tuple(number * row[0] / row[place] for row in rates),
        )
        for place, number in enumerate(PROCESSES)
        if number > 1
    ]


def _rate(processes: int) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster_scene(
            required_binary("kafka"),
            Path(folder),
            ingest=1,
            evaluate=processes,
            partitions=PARTITIONS,
            delay_s=LATENCY_S,
            at_once=AT_ONCE,
        ) as scene,
    ):
        for member in scene.members:
            member.start()
        eventually(lambda: _owned(scene) == PARTITIONS, what="all shards to be given out")
        for first in range(0, ANSWERS * processes, 50):
            spans = [span for number in range(first, first + 50) for span in rag_trace(number, answer=ANSWER)]
            assert scene.ingest[0].send(encode(spans))
        return _between(scene, ANSWERS * processes)


def _between(scene: ClusterScene, answers: int) -> float:
    """Return the answers a second between two shares of all."""
    times: list[float] = []
    for share in (_FROM, _TO):
        while len(scene.carriers()) < share * answers:
            time.sleep(_POLL_S)
        times.append(time.monotonic())
    return (_TO - _FROM) * answers / (times[1] - times[0])


def _owned(scene: ClusterScene) -> int:
    owned: Sequence[int] = [member.page("/status")["kafka"]["partitions"] for member in scene.evaluate]
    return sum(owned) if min(owned) else 0
