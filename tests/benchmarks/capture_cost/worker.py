"""One contender in a process of its own: it measures when it is told to.

    python -m tests.benchmarks.capture_cost.worker NAME HTTP

A line on stdin is an order, so many calls; a line of JSON answers it.
"""

from __future__ import annotations

import json
import os
import sys
import time

from tests.benchmarks.capture_cost.recorders import RECORDERS, Recorder, Sink


def main() -> None:
    name, http = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # some contenders print
    recorder = RECORDERS[name](Sink(http=http))
    recorder.call()
    recorder.flush()
    print("{}", file=answers)
    for line in sys.stdin:
        print(json.dumps(measured(recorder, int(line))), file=answers)


def measured(recorder: Recorder, calls: int) -> dict[str, float]:
    """Return microseconds a call: of the caller on the clock, and of the process."""
    process, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        recorder.call()
    wall = time.perf_counter() - wall
    recorder.flush()
    process = time.process_time() - process
    return {name: spent / calls * 1e6 for name, spent in (("wall", wall), ("process", process))}


if __name__ == "__main__":
    main()
