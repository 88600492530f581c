"""One contender in a process of its own: it measures when it is told to.

    python -m tests.benchmarks.capture_cost.worker NAME HTTP GRPC

A line on stdin is an order, ``round CALLS`` or ``rate CALLS_PER_SECOND SECONDS``; a line of JSON answers it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from tests.benchmarks.capture_cost.recorders import RECORDERS, Recorder, Sink


def main() -> None:
    name, http, grpc = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # some contenders print
    recorder = RECORDERS[name](Sink(http=http, grpc=grpc))
    recorder.call()
    recorder.flush()
    print("{}", file=answers)
    for line in sys.stdin:
        order, *numbers = line.split()
        measurement = ORDERS[order](recorder, *map(int, numbers))
        print(json.dumps(measurement), file=answers)


def measured(recorder: Recorder, calls: int) -> dict[str, float]:
    """Return microseconds a call: of the caller on the clock and of the processor, and of the process."""
    process = time.process_time()
    wall, thread = time.perf_counter(), time.thread_time()
    for _ in range(calls):
        recorder.call()
    wall, thread = time.perf_counter() - wall, time.thread_time() - thread
    recorder.flush()
    process = time.process_time() - process
    return {
        name: spent / calls * 1e6
        for name, spent in (("wall", wall), ("caller", thread), ("process", process))
    }


def at_rate(recorder: Recorder, per_second: int, seconds: int) -> dict[str, float]:
    """Call at a steady rate, or as fast as it goes; return how many calls that were."""
    started = time.perf_counter()
    calls = 0
    while (elapsed := time.perf_counter() - started) < seconds:
        ahead = calls / per_second - elapsed
        if ahead > 0:
            time.sleep(ahead)
        recorder.call()
        calls += 1
    recorder.flush()
    return {"calls": calls}


ORDERS: dict[str, Callable[..., dict[str, float]]] = {"round": measured, "rate": at_rate}


if __name__ == "__main__":
    main()
