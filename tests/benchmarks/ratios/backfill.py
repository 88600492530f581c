"""What back-fill costs beside reading the file alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.backfill import measured_apart, write_traces
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 3
TRACES: Final = 5_000
RATE: Final = 0.02
QUANTITIES: Final = {"cpu_ms": "CPU", "memory": "most memory"}


def measure(_: Peers) -> list[Measurement]:
    """Measure back-fill of a file, of which it judges two in a hundred."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        write_traces(path, TRACES)
        rounds = [
            {what: measured_apart(what, path, rate=RATE) for what in ("reading", "back-fill")}
            for _ in range(ROUNDS)
        ]
    return [
        Measurement(
            what=f"back-fill of {TRACES:,} traces, {shown}",
            alternative="reading the file",
            ratios=tuple(found["back-fill"][quantity] / found["reading"][quantity] for found in rounds),
        )
        for quantity, shown in QUANTITIES.items()
    ]
