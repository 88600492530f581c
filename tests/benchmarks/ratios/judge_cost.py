"""What judging one record costs in processor time, beside other tools with the same metrics."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.benchmarks.judge_cost.__main__ import (
    LATENCY_S,
    contender_named,
    ragtrace_beside,
    run,
    running_stub,
    set_stub,
)
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording import Measurement

ROUNDS: Final = 3
RECORDS: Final = 768


def measure(peers: Peers) -> list[Measurement]:
    """Measure ragtrace beside each tool that an interpreter has; nothing if none has one."""
    return [
        measurement
        for tool in ("ragas", "deepeval")
        if tool in peers.python
        for measurement in _beside(tool, peers.python[tool], peers.version[tool])
    ]


def _beside(tool: str, python: str, version: str) -> list[Measurement]:
    ours, other = ragtrace_beside(tool, RECORDS), contender_named(tool, python, RECORDS)
    with ExitStack() as stack:
        url = stack.enter_context(running_stub())
        set_stub(url, keep=False, latency_s=LATENCY_S)
        rounds = [[run(each, url, each.records) for each in (ours, other)] for _ in range(ROUNDS)]
    ratios = {
        "CPU": tuple(mine["cpu_ms"] / its["cpu_ms"] for mine, its in rounds),
        "time in one process": tuple(its["records_per_s"] / mine["records_per_s"] for mine, its in rounds),
    }
    return [
        Measurement(
            what=f"a record's {ours.metrics} metrics, {quantity}",
            alternative=tool,
            ratios=found,
            versions={tool: version},
        )
        for quantity, found in ratios.items()
    ]
