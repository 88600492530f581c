"""Measure what recording one RAG call costs an application, library by library, against the bare SDK.

    python -m tests.benchmarks.capture_cost [--peers-python PATH] [--rounds 60] [--calls 40] [--seconds 10]

``PATH`` is the interpreter in ``.venv-frameworks``, which has the other libraries; all
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
import random
import statistics
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack

from tests.benchmarks.capture_cost.contender import Contender, contending
from tests.benchmarks.capture_cost.recorders import RECORDERS

PACKAGE = "tests.benchmarks.capture_cost"
BARE = "bare SDK"
SILENT = ("bare SDK, sampled out", "ragtrace, sampled out", "ragtrace, not instrumented", "no call at all")
PER_SECOND = 1_000
WARM_UP = 3
COSTS = ("wall", "caller", "process")


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
        http, contenders = started(stack, names, options.peers_python)
        interleave(contenders, options.rounds, options.calls)
        print(_costs(contenders))
        if options.seconds:
            print(_losses([each for each in contenders if each.name not in SILENT], http, options.seconds))


def started(stack: ExitStack, names: Sequence[str], peers_python: str | None) -> tuple[str, list[Contender]]:
    """Start a sink and the contenders; return the sink's address and the contenders, which are ready."""
    ports = stack.enter_context(contending("sink", [sys.executable, "-m", f"{PACKAGE}.sink"])).heard()
    http, grpc = (f"http://127.0.0.1:{port}" for port in ports)
    python = peers_python or sys.executable
    contenders = [
        stack.enter_context(
            contending(name, [python, "-m", f"{PACKAGE}.worker", name, http, grpc], **_settings(name))
        )
        for name in names
    ]
    for contender in contenders:
        contender.heard()
    return http, contenders


def _known(peers_python: str | None) -> list[str]:
    ours = ("bare", "ragtrace", "no call")
    return [name for name in RECORDERS if peers_python is not None or name.startswith(ours)]


def _settings(name: str) -> dict[str, str]:
    return {"OTEL_TRACES_SAMPLER": "always_off"} if "sampled out" in name else {}


def interleave(contenders: Sequence[Contender], rounds: int, calls: int) -> None:
    """Measure rounds in shuffled order, after some that warm up."""
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


if __name__ == "__main__":
    main()
