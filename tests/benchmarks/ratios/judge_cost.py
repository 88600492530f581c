"""What judging one record costs in processor time, beside other tools with the same metrics.

All ask the same stub, in turns. The interpreter of ragas needs ``langchain-community<0.4`` to import it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks import judge_cost
from tests.benchmarks.judge_cost.ours import METRIC_NAMES
from tests.benchmarks.peers import Peers
from tests.benchmarks.ratios.collector import LATENCY_S, configure, running_stub
from tests.benchmarks.recording import Measurement

ROUNDS: Final = 3
RECORDS: Final = 768
RECORDS_OF: Final = {"ragas": RECORDS // 48, "deepeval": RECORDS // 24}
AT_ONCE: Final = 256
"""So many that ragtrace fills a core; the others take no more records a second than with 16 at once."""
METRICS: Final = {
    "ragas": [name for name in METRIC_NAMES if name != "hallucination"],
    "deepeval": list(METRIC_NAMES),
}
OURS: Final = [sys.executable, "-m", "tests.benchmarks.judge_cost.ours"]
THEIRS: Final = Path(judge_cost.__file__).with_name("peers.py")


def measure(peers: Peers) -> list[Measurement]:
    """Measure ragtrace beside each tool that an interpreter has; nothing if none has one."""
    return [
        measurement
        for tool in METRICS
        if tool in peers.python
        for measurement in _beside(tool, peers.python[tool], peers.version[tool])
    ]


def _beside(tool: str, python: str, version: str) -> list[Measurement]:
    with running_stub() as url:
        configure(url, latency_s=LATENCY_S)
        rounds = [
            (
                _run(OURS, url, RECORDS, METRICS[tool]),
                _run([python, str(THEIRS), tool], url, RECORDS_OF[tool], []),
            )
            for _ in range(ROUNDS)
        ]
    ratios = {
        "CPU": tuple(mine["cpu_ms"] / its["cpu_ms"] for mine, its in rounds),
        "time in one process": tuple(its["records_per_s"] / mine["records_per_s"] for mine, its in rounds),
    }
    return [
        Measurement(
            what=f"a record's {len(METRICS[tool])} metrics, {quantity}",
            alternative=tool,
            ratios=found,
            versions={tool: version},
        )
        for quantity, found in ratios.items()
    ]


def _run(command: Sequence[str], url: str, records: int, metrics: Sequence[str]) -> dict[str, float]:
    """Judge so many records; return what was measured."""
    command = [*command, f"{url}/v1", str(records), str(min(AT_ONCE, records)), *metrics]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print the requests that a record takes, and their text, by each tool of an interpreter."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ratios.judge_cost", description=__doc__)
    parser.add_argument("--peers-python", required=True, help="interpreter with ragas and deepeval")
    python = parser.parse_args().peers_python
    tools = {"ragtrace": OURS, **{tool: [python, str(THEIRS), tool] for tool in METRICS}}
    with running_stub() as url:
        for tool, command in tools.items():
            configure(url, latency_s=0.0, keep=True)
            _run(command, url, 1, [])
            taken = configure(url, latency_s=0.0)
            of_one = taken[-len(taken) // 3 :]  # it judges three, of which the first may probe
            text = sum(len(each["prompt"]) + len(each["completion"]) for each in of_one)
            print(f"{tool}: {len(of_one)} calls, {text:,} characters")


if __name__ == "__main__":
    main()
