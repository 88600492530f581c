"""Measure how long a captured stream's first token takes, beside the same stream without capture.

    python -m tests.benchmarks.capture_cost.streams [--peers-python PATH] [--rounds 40] [--streams 5]

The generators yield their first token after 20 ms, as a fast model would, then a hundred at once; *openai* is
the SDK's stream of a model server on loopback, instrumented by ``ragtrace.instrument()`` (it needs ``PATH``,
``.venv-frameworks``). Two processes, one captured, take turns; the ratio is the median over
the rounds of the rounds' medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tests.benchmarks.capture_cost.contender import Contender, contending
from tests.model_server import running_model_server

PACKAGE = "tests.benchmarks.capture_cost"
WARM_UP = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--streams", type=int, default=5)
    options = parser.parse_args()
    with ExitStack() as stack:
        sink = stack.enter_context(contending("sink", [sys.executable, "-m", f"{PACKAGE}.sink"]))
        model = stack.enter_context(running_model_server())
        places = [model, f"http://127.0.0.1:{sink.heard()[0]}"]
        plain, captured = (
            stack.enter_context(
                contending(mode, [options.peers_python, "-m", f"{PACKAGE}.stream_worker", mode, *places])
            )
            for mode in ("plain", "captured")
        )
        kinds = plain.heard()
        captured.heard()
        print("| stream | first token, ms | captured | ratio | whole stream, ms | captured | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for kind in kinds:
            print(f"| {kind} | {_compared(kind, plain, captured, options.rounds, options.streams)} |")


def _compared(kind: str, plain: Contender, captured: Contender, rounds: int, streams: int) -> str:
    measured: list[tuple[Sequence[float], Sequence[float]]] = []
    for number in range(WARM_UP + rounds):
        turns = (plain, captured) if number % 2 else (captured, plain)
        told = {contender.name: _medians(contender.told(f"{kind} {streams}")) for contender in turns}
        if number >= WARM_UP:
            measured.append((told["plain"], told["captured"]))
    return " | ".join(_cells(measured, which) for which in (0, 1))


def _medians(streams: Sequence[Sequence[float]]) -> Sequence[float]:
    return [statistics.median(times) for times in zip(*streams, strict=True)]


def _cells(measured: Sequence[tuple[Sequence[float], Sequence[float]]], which: int) -> str:
    without = statistics.median(plain[which] for plain, _ in measured) / 1_000
    with_it = statistics.median(captured[which] for _, captured in measured) / 1_000
    low, middle, high = statistics.quantiles((ours[which] / plain[which] for plain, ours in measured), n=4)
    return f"{without:.2f} | {with_it:.2f} | {middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
