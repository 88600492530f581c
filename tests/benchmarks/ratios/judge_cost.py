"""What judging one record costs in processor time, beside other tools with as many of the same metrics."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.benchmarks.judge_cost.__main__ import LATENCY_S, contender_named, run, running_stub, set_stub
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 3
RECORDS: Final = 96


def measure(peers: Peers) -> list[Measurement]:
    """Measure ragtrace beside each tool that an interpreter has; nothing if none has one."""
    return [
        _beside(tool, peers.python[tool], peers.version[tool])
        for tool in ("ragas", "deepeval")
        if tool in peers.python
    ]


def _beside(tool: str, python: str, version: str) -> Measurement:
    ours, other = (contender_named(name, python, RECORDS) for name in ("ragtrace", tool))
    with ExitStack() as stack:
        url = stack.enter_context(running_stub())
        set_stub(url, keep=False, latency_s=LATENCY_S)
        rounds = [[run(each, url, each.records)["cpu_ms"] for each in (ours, other)] for _ in range(ROUNDS)]
    return Measurement(
        what=f"a record's six metrics (its {other.metrics}), CPU",
        alternative=tool,
        ratios=tuple(mine / its for mine, its in rounds),
        versions={tool: version},
    )
