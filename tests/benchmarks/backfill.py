"""Measure back-fill from a file: rate and memory, beside reading the file alone.

    python -m tests.benchmarks.backfill [--traces 10000 100000] [--rate 0.02]

Traces have three spans and five chunks; a hundred of them are interleaved, a span a line. *reading* yields
every trace and drops it; *back-fill* also extracts, samples at the rate, judges (the lexical judge,
faithfulness) and makes carriers, which nobody takes. Where a machine does other things besides, the CPU
time says more than the rate. Each runs in a process of its own, on files of each
size: memory that does not grow with the file is the same on all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from ragtrace.backends import OtlpFileReader
from ragtrace.backfill import Selection, backfill
from ragtrace.judge import open_judge
from ragtrace.metrics import metric_named
from ragtrace.pipeline import Evaluator
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.otlp import encode_json
from tests.rag_spans import rag_trace

CHUNKS = tuple(f"Refunds take {days} days. {'The handbook says so at length. ' * 10}" for days in range(5))
INTERLEAVED = 100


class Nowhere:
    """A sink that takes everything and keeps nothing."""

    name = "nowhere"

    async def send(self, request: bytes) -> None:
        """Forget it."""

    async def aclose(self) -> None:
        """Do nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FILE"), help="in a process of its own")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(_measured(*options.measure, rate=options.rate))))
        return
    print("| traces | file, MB | | traces/s | CPU ms a trace | times reading | most memory, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for number in options.traces:
            _compare(Path(folder) / f"{number}.jsonl", number, rate=options.rate)


def _compare(path: Path, number: int, *, rate: float) -> None:
    write_traces(path, number)
    size = path.stat().st_size / 1e6
    reading = 0.0
    for what in ("reading", "back-fill"):
        found = measured_apart(what, path, rate=rate)
        reading = reading or found["cpu_ms"]
        cells = (number, f"{size:.0f}", what, f"{found['rate']:,.0f}", f"{found['cpu_ms']:.2f}")
        cost = f"{found['cpu_ms'] / reading:.1f}"
        print(f"| {' | '.join(map(str, cells))} | {cost} | {found['memory']:.0f} |", flush=True)
    path.unlink()


def write_traces(path: Path, number: int) -> None:
    """Write a file of traces."""
    with path.open("w") as file:
        file.writelines(_lines(number))


def measured_apart(what: str, path: Path, *, rate: float) -> dict[str, float]:
    """Measure ``reading`` or ``back-fill`` in its own process: rate, CPU ms a trace, most memory in MB."""
    command = [sys.executable, "-m", "tests.benchmarks.backfill", "--rate", str(rate), "--measure", what]
    done = subprocess.run([*command, path], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _lines(number: int) -> Iterator[str]:
    traces = (rag_trace(each, chunks=CHUNKS) for each in range(number))
    while some := list(islice(traces, INTERLEAVED)):
        for span in chain.from_iterable(zip(*some, strict=True)):
            yield f"{encode_json([span])}\n"


async def _measured(what: str, path: str, *, rate: float) -> dict[str, float]:
    started, cpu_before = time.perf_counter(), time.process_time()
    number = await (_reading(path) if what == "reading" else _backfill(path, rate))
    seconds = time.perf_counter() - started
    cpu_ms = 1_000 * (time.process_time() - cpu_before) / number
    return {"rate": number / seconds, "cpu_ms": cpu_ms, "memory": _most_memory_mb()}


def _most_memory_mb() -> float:
    """Return the most memory that this process held. `ru_maxrss` would have the parent's, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / 1_000


async def _reading(path: str) -> int:
    number = 0
    async for _ in OtlpFileReader(path).traces():
        number += 1
    return number


async def _backfill(path: str, rate: float) -> int:
    judge = open_judge("lexical")
    selection = Selection(sampling=SamplingPlan(ratio=rate))
    metrics = [metric_named("faithfulness")]
    report = await backfill(
        OtlpFileReader(path),
        Nowhere(),
        evaluator=Evaluator(metrics=metrics, judge=judge),
        selection=selection,
    )
    assert report.records == report.sampled_out + report.judged
    return report.traces


if __name__ == "__main__":
    main()
