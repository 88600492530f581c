"""Measures causes by a real judge: ``python -m tests.measure_blame openai:gpt-4o-mini --each 100``.

The pipelines have one injected fault each, or none; see `tests.unit.scoring.faulty_pipelines`. The judge
grades chunks and claims; the causes follow from that by rules.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Final

from ragtrace.judge.layers import ScreenSpec
from ragtrace.judge.spec import JudgeSpec
from ragtrace.pipeline import evaluate
from ragtrace.ports import Judge
from ragtrace.scoring.blame import BlameClass, blame_of
from ragtrace.traces.extract import extract_records
from tests.unit.scoring.faulty_pipelines import pipeline

__all__ = ["METRICS", "Told", "lines", "told_by"]

METRICS: Final = ("faithfulness", "chunk_precision")


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of pipelines whose fault is known."""

    causes: Mapping[tuple[BlameClass | None, BlameClass | None], int]
    """How often a fault was given a cause; ``None`` is no fault, or no cause."""
    unmeasured: int
    """Answers with a metric that failed or was skipped."""


async def told_by(judge: Judge, *, each: int) -> Told:
    """Judge so many pipelines of each class, and as many healthy ones."""
    found: Counter[tuple[BlameClass | None, BlameClass | None]] = Counter()
    unmeasured = 0
    for fault in (None, *BlameClass):
        for number in range(each):
            built = pipeline(fault, Random(f"{fault} {number}"))
            (record,) = extract_records(built.trace(number)).records
            evaluation = await evaluate(record, metrics=METRICS, judge=judge)
            found[fault, blame_of(record, evaluation).primary] += 1
            unmeasured += sum(of.score is not None for of in evaluation.results) < len(METRICS)
    return Told(found, unmeasured)


def lines(told: Told) -> Iterator[str]:
    """Write recall and precision of each class, and what took the place of what."""
    found = told.causes
    for fault in (None, *BlameClass):
        given = sum(number for (_, cause), number in found.items() if cause is fault)
        there = sum(number for (injected, _), number in found.items() if injected is fault)
        right = found.get((fault, fault), 0)
        precision = f"{right / given:.2f}" if given else "none given"
        yield f"{fault or 'no fault':28} recall {right / there:.2f}  precision {precision}  of {there}"
    for (fault, cause), number in sorted(found.items(), key=str):
        if fault is not cause:
            yield f"{fault or 'no fault'} was told as {cause or 'no cause'}: {number}"
    yield f"answers with a metric that failed or was skipped: {told.unmeasured} of {sum(found.values())}"


async def _measure(spec: JudgeSpec, each: int) -> Told:
    async with aclosing(spec.open()) as opened:
        return await told_by(opened, each=each)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judge", help="as --judge takes it")
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument(
        "--screen", action="store_true", help="a cascade behind `lexical`, which lists claims"
    )
    arguments = parser.parse_args()
    screen = ScreenSpec() if arguments.screen else None
    for line in lines(asyncio.run(_measure(JudgeSpec(use=arguments.judge, screen=screen), arguments.each))):
        print(line)
