"""What back-fill costs beside reading the file alone, each in a process of its own.

Traces have three spans and five chunks; a hundred of them are interleaved, a span a line. *reading* yields
every trace and drops it; *back-fill* also extracts, samples, judges (the lexical judge, faithfulness) and
makes carriers, which nobody takes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ragtrace.backends import OtlpFileReader
from ragtrace.backfill import Selection, backfill
from ragtrace.judge import open_judge
from ragtrace.metrics import metric_named
from ragtrace.pipeline import Evaluator
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.otlp import encode_json
from tests.benchmarks.recording import Measurement
from tests.rag_spans import rag_trace

ROUNDS: Final = 3
TRACES: Final = 5_000
RATE: Final = 0.02
QUANTITIES: Final = {"cpu_ms": "CPU", "memory": "most memory"}
CHUNKS = tuple(f"Refunds take {days} days. {'The handbook says so at length. ' * 10}" for days in range(5))
INTERLEAVED = 100


class Nowhere:
    """A sink that takes everything and keeps nothing."""

    name = "nowhere"

    async def send(self, request: bytes) -> None:
        """Forget it."""

    async def aclose(self) -> None:
        """Do nothing."""


def measure() -> list[Measurement]:
    """Measure back-fill of a file, of which it judges two in a hundred."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        with path.open("w") as file:
            file.writelines(_lines())
        rounds = [
            {what: _measured_apart(what, path) for what in ("reading", "back-fill")} for _ in range(ROUNDS)
        ]
    return [
        Measurement(
            what=f"back-fill of {TRACES:,} traces, {shown}",
            alternative="reading the file",
            ratios=tuple(found["back-fill"][quantity] / found["reading"][quantity] for found in rounds),
        )
        for quantity, shown in QUANTITIES.items()
    ]


def _measured_apart(what: str, path: Path) -> dict[str, float]:
    """Measure ``reading`` or ``back-fill`` in its own process: CPU ms a trace, most memory in MB."""
    command = [sys.executable, "-m", "tests.benchmarks.ratios.backfill", what, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _lines() -> Iterator[str]:
    traces = (rag_trace(each, chunks=CHUNKS) for each in range(TRACES))
    while some := list(islice(traces, INTERLEAVED)):
        for span in chain.from_iterable(zip(*some, strict=True)):
            yield f"{encode_json([span])}\n"


async def _measured(what: str, path: str) -> dict[str, float]:
    before = time.process_time()
    number = await (_reading(path) if what == "reading" else _backfill(path))
    cpu_ms = 1_000 * (time.process_time() - before) / number
    return {"cpu_ms": cpu_ms, "memory": _most_memory_mb()}


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


async def _backfill(path: str) -> int:
    judge = open_judge("lexical")
    selection = Selection(sampling=SamplingPlan(ratio=RATE))
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
    print(json.dumps(asyncio.run(_measured(*sys.argv[1:]))))
