"""Judge one record by ragtrace, ragas and deepeval against the same stub, in turns, and print ratios.

    python -m tests.benchmarks.judge_cost --peers-python PATH

``PATH`` is the interpreter of an environment with ragas, deepeval, ``langchain-community<0.4`` (without it
ragas does not import) and litellm (for the tables of the tokenizer). ragtrace runs six metrics, deepeval its
six, ragas the five of them that it has (no hallucination).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks.judge_cost.ours import METRIC_NAMES

HERE = Path(__file__).parent
LATENCY_S = 0.5
LONG_LATENCY_S = 3.0
"""So long that the peers' own seconds do not matter: the critical path shows."""
CONCURRENCY = 256
"""So many that ragtrace fills a core; the others take no more records a second than with 16 at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who judges, and how its process is started."""

    name: str
    command: Sequence[str]
    records: int
    metrics: int
    arguments: Sequence[str] = ()
    """The names of the metrics, if it is not all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one record."""

    calls: Counter[str]
    depth: int
    prompt_tokens: int
    completion_tokens: int


def main() -> None:
    options = _options()
    contenders = _contenders(options.peers_python, options.records)
    with running_stub() as url:
        costs = {each.name: _cost(each, url, options.peers_python) for each in contenders}
        speeds: dict[str, list[dict[str, float]]] = {each.name: [] for each in contenders}
        for _ in range(options.rounds):
            for each in contenders:
                speeds[each.name].append(run(each, url, each.records))
    _print(contenders, costs, speeds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.judge_cost", description=__doc__)
    parser.add_argument("--peers-python", required=True, help="interpreter with ragas and deepeval")
    parser.add_argument("--records", type=int, default=768, help="a round, for ragtrace; peers take fewer")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _contenders(peers_python: str, records: int) -> Sequence[Contender]:
    return [contender_named(name, peers_python, records) for name in ("ragtrace", "ragas", "deepeval")]


def contender_named(name: str, peers_python: str, records: int) -> Contender:
    """Return ragtrace, ragas or deepeval. ``records`` are ragtrace's in a round: slower ones get fewer."""
    own = [sys.executable, "-m", "tests.benchmarks.judge_cost.ours"]
    peers = [peers_python, str(HERE / "peers.py"), name]
    share, metrics = {"ragtrace": (1, 6), "ragas": (48, 5), "deepeval": (24, 6)}[name]
    return Contender(
        name=name,
        command=own if name == "ragtrace" else peers,
        records=max(records // share, 1),
        metrics=metrics,
    )


def ragtrace_beside(tool: str, records: int) -> Contender:
    names = METRIC_NAMES if tool == "deepeval" else [name for name in METRIC_NAMES if name != "hallucination"]
    ours = contender_named("ragtrace", sys.executable, records)
    return replace(ours, metrics=len(names), arguments=names)


@contextmanager
def running_stub() -> Iterator[str]:
    """Run the stub judge; yield its address."""
    command = [sys.executable, "-m", "tests.benchmarks.judge_cost.stub"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def run(contender: Contender, url: str, records: int) -> dict[str, float]:
    """Judge so many records; return what was measured."""
    command = [*contender.command, f"{url}/v1", str(records), str(min(CONCURRENCY, records))]
    command += contender.arguments
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _cost(contender: Contender, url: str, peers_python: str) -> Cost:
    """Count one record's requests: the process judges three, of which the first may probe."""
    set_stub(url, keep=True, latency_s=LONG_LATENCY_S)
    measured = run(contender, url, 1)
    taken = set_stub(url, keep=False, latency_s=LATENCY_S)
    third = taken[-len(taken) // 3 :]
    prompts, completions = _tokens(
        [[r["prompt"] for r in third], [r["completion"] for r in third]], peers_python
    )
    return Cost(
        calls=Counter(request["step"] for request in third),
        depth=int(measured["alone_s"] / LONG_LATENCY_S),
        prompt_tokens=prompts,
        completion_tokens=completions,
    )


def set_stub(url: str, *, keep: bool, latency_s: float) -> list[dict[str, str]]:
    """Tell the stub what to do, and take what it kept."""
    taken: list[dict[str, str]] = httpx.post(
        f"{url}/taken", json={"keep": keep, "latency_s": latency_s}
    ).json()
    return taken


def _tokens(groups: list[list[str]], peers_python: str) -> list[int]:
    command = [peers_python, str(HERE / "tokens.py")]
    done = subprocess.run(command, input=json.dumps(groups), check=True, stdout=subprocess.PIPE, text=True)
    counted: list[int] = json.loads(done.stdout)
    return counted


def _print(
    contenders: Sequence[Contender], costs: dict[str, Cost], speeds: dict[str, list[dict[str, float]]]
) -> None:
    print("           metrics  calls  depth   prompt  completion   CPU ms   rec/s")
    own: Any = None
    for each in contenders:
        cost = costs[each.name]
        cpu = statistics.median(run["cpu_ms"] for run in speeds[each.name])
        rate = statistics.median(run["records_per_s"] for run in speeds[each.name])
        own = own or (cost, cpu)
        print(
            f"{each.name:10}{each.metrics:8}{cost.calls.total():7}{cost.depth:7}{cost.prompt_tokens:9,}"
            f"{cost.completion_tokens:12,}{cpu:9.1f}{rate:8.1f}"
        )
        if each.name != "ragtrace":
            tokens = (cost.prompt_tokens + cost.completion_tokens) / (
                own[0].prompt_tokens + own[0].completion_tokens
            )
            print(f"          {tokens:.2f} x ragtrace's tokens, {cpu / own[1]:.1f} x its CPU a record")
        print(f"          {dict(cost.calls)}")


if __name__ == "__main__":
    main()
