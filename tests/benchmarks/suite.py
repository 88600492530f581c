"""The benchmarks that have a history, in the order of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from tests.benchmarks.peers import Peers
from tests.benchmarks.recording import Measurement


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A name, and what measures its ratios."""

    name: str
    measure: Callable[[Peers], list[Measurement]]


def _benchmark(name: str) -> Benchmark:
    def measure(peers: Peers) -> list[Measurement]:
        found: list[Measurement] = import_module(f"tests.benchmarks.ratios.{name}").measure(peers)
        return found

    return Benchmark(name, measure)


BENCHMARKS: Final = tuple(
    map(
        _benchmark,
        (
            *("startup", "capture", "judge_client", "ingest", "pipeline", "visible", "traffic", "backfill"),
            *("answer_index", "judge_cost"),
        ),
    )
)
