"""The benchmarks that have a history, in the order of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from tests.benchmarks.recording import Measurement


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A name, and what measures its ratios."""

    name: str
    measure: Callable[[], list[Measurement]]


def _benchmark(name: str, function: str) -> Benchmark:
    def measure() -> list[Measurement]:
        module, _, its = function.partition(".")
        found: list[Measurement] = getattr(import_module(f"tests.benchmarks.ratios.{module}"), its)()
        return found

    return Benchmark(name, measure)


BENCHMARKS: Final = (
    _benchmark("startup", "startup.measure"),
    _benchmark("capture", "capture.measure"),
    _benchmark("judge_client", "judge_client.measure"),
    _benchmark("ingest", "ingest.measure"),
    _benchmark("pipeline", "collector.pipeline"),
    _benchmark("visible", "collector.visible"),
    _benchmark("traffic", "collector.traffic"),
    _benchmark("backfill", "backfill.measure"),
)
"""Imported when they are run."""
