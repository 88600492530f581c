"""Measure what recording one RAG call costs an application, library by library, against the bare SDK.

    python -m tests.benchmarks.capture_cost [--peers-python PATH] [--rounds 60] [--calls 40] [--seconds 10]

``PATH`` is the interpreter of the environment of `make frameworks`, which has the other libraries; all
contenders run in it. The call: a root span (100-character question, 600-character answer), a retrieval (five
chunks of 1 kB with ids and scores) and a generation (6 kB prompt, answer, model, usage). *bare SDK* writes by
hand every attribute that ragtrace writes. Exporters send to a process that counts spans and drops them.

Each contender is a process of its own and measures in turns, many short rounds in shuffled order: the ratios
are medians over the rounds, each against the bare SDK of the same round. *caller* is the calling thread, on
the clock and in processor time; *process* is all of the contender's processor time, exports included. At last
each records 1,000 calls a second, and the spans that never arrive are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.benchmarks.capture_cost.recorders import RECORDERS

BARE = "bare SDK"
SILENT = ("bare SDK, sampled out", "ragtrace, sampled out", "ragtrace, not instrumented", "no call at all")
PER_SECOND = 1_000
WARM_UP = 3
COSTS = ("wall", "caller", "process")


@dataclass(slots=True)
class Contender:
    """A library at work in a process, and what it was measured at."""

    name: str
    process: subprocess.Popen[str]
    rounds: list[dict[str, float]] = field(default_factory=list)

    def told(self, order: str) -> dict[str, float]:
        """Give an order and wait for the measurement."""
        assert self.process.stdin is not None
        print(order, file=self.process.stdin, flush=True)
        return self.heard()

    def heard(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(
                f"{self.name!r} ended: run {subprocess.list2cmdline(self.process.args)} to see why"
            )
        return {name: float(number) for name, number in json.loads(line).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", default=None, metavar="PATH")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=list(RECORDERS), help="besides the bare SDK")
    options = parser.parse_args()
    names = [BARE, *(name for name in options.only or _known(options.peers_python) if name != BARE)]
    with ExitStack() as stack:
        http, grpc = stack.enter_context(_sink())
        contenders = [
            stack.enter_context(_contender(name, options.peers_python or sys.executable, http, grpc))
            for name in names
        ]
        _interleave(contenders, options.rounds, options.calls)
        print(_costs(contenders))
        if options.seconds:
            print(_losses([each for each in contenders if each.name not in SILENT], http, options.seconds))


def _known(peers_python: str | None) -> list[str]:
    ours = ("bare", "ragtrace", "no call")
    return [name for name in RECORDERS if peers_python is not None or name.startswith(ours)]


def _interleave(contenders: Sequence[Contender], rounds: int, calls: int) -> None:
    shuffled = random.Random(5)
    for number in range(WARM_UP + rounds):
        for contender in shuffled.sample(contenders, len(contenders)):
            measurement = contender.told(f"round {calls}")
            if number >= WARM_UP:
                contender.rounds.append(measurement)


def _costs(contenders: Sequence[Contender]) -> str:
    lines = [
        "| times the bare SDK | caller, µs | caller | caller's CPU | process CPU |",
        "| --- | --- | --- | --- | --- |",
    ]
    bare = contenders[0].rounds
    for contender in contenders:
        wall = statistics.median(each["wall"] for each in contender.rounds)
        ratios = " | ".join(_spread(contender.rounds, bare, cost) for cost in COSTS)
        lines.append(f"| {contender.name} | {wall:.1f} | {ratios} |")
    return "\n".join(lines)


def _spread(mine: Sequence[dict[str, float]], bare: Sequence[dict[str, float]], cost: str) -> str:
    """Return the median ratio, and between which two half of the rounds lie."""
    ratios = [one[cost] / other[cost] for one, other in zip(mine, bare, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _losses(contenders: Sequence[Contender], http: str, seconds: int) -> str:
    lines = [f"| | calls/s of {PER_SECOND:,} | spans lost |", "| --- | --- | --- |"]
    for contender in contenders:
        before = _spans(http)
        contender.told("round 1")
        spans_a_call = (once := _spans(http)) - before
        calls = contender.told(f"rate {PER_SECOND} {seconds}")["calls"]
        lost = calls * spans_a_call - (_spans(http) - once)
        lines.append(
            f"| {contender.name} | {calls / seconds:,.0f} | {lost:,.0f} of {calls * spans_a_call:,.0f} |"
        )
    return "\n".join(lines)


def _spans(http: str) -> int:
    with urllib.request.urlopen(http) as reply:
        return int(json.load(reply))


@contextmanager
def _sink() -> Iterator[tuple[str, str]]:
    command = [sys.executable, "-m", "tests.benchmarks.capture_cost.sink"]
    with _running(command, dict(os.environ)) as process:
        assert process.stdout is not None
        http, grpc = process.stdout.readline().split()
        yield f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}"


@contextmanager
def _contender(name: str, python: str, http: str, grpc: str) -> Iterator[Contender]:
    command = [python, "-m", "tests.benchmarks.capture_cost.worker", name, http, grpc]
    env = {**os.environ, "OTEL_TRACES_SAMPLER": "always_off"} if "sampled out" in name else dict(os.environ)
    with _running(command, env) as process:
        contender = Contender(name, process)
        contender.heard()
        yield contender


@contextmanager
def _running(command: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=env,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
