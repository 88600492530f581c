"""Traces built to be slow: what one costs is proportional to its spans, in whatever shape they hang."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ragtrace import semconv
from tests.attack.graph_shapes import SHAPES
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import stepped_collector
from tests.rag_spans import trace_id_of

SIZE = 40
MOST_GROWTH = 2.4
"""What a trace of twice the size may cost, in instructions."""


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """Count instructions of the project's own code in all threads: a busy machine does not change them."""
    steps = [0]

    def step(_frame: FrameType, event: str, _arg: object) -> Any:
        steps[0] += event == "opcode"
        return step

    def enter(frame: FrameType, _event: str, _arg: object) -> Any:
        if not str(frame.f_globals.get("__name__")).startswith("ragtrace"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    before = sys.gettrace()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        yield steps
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]


async def cost(folder: Path, shape: str, size: int) -> int:
    """Count what a trace costs: taken in, waited for, read, judged and told."""
    spans = list(SHAPES[shape](size))
    random.Random(1).shuffle(spans)  # half of them come before their parents
    async with stepped_collector(config_of(folder)) as stepped:
        with counted_steps() as steps:
            await stepped.send(*spans[: size // 2])
            await stepped.send(*spans[size // 2 :])
            for _ in range(3):
                await stepped.pass_time(60)
    return steps[0]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_trace_of_twice_the_size_costs_twice_as_much_in_any_shape(tmp_path: Path, shape: str) -> None:
    for size in (20, SIZE, 2 * SIZE):
        (tmp_path / str(size)).mkdir()
    await cost(tmp_path / "20", shape, 20)  # what is made once and kept
    once, twice = [await cost(tmp_path / str(size), shape, size) for size in (SIZE, 2 * SIZE)]
    assert twice <= MOST_GROWTH * once


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_chains_of_4900_spans_are_judged_by_the_process_that_is_killed_and_the_next(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, assemble={"quiet_period": "1s"})
    async with stepped_collector(config) as first:
        for number in range(3):
            chain = [replace(span, trace_id=trace_id_of(number)) for span in SHAPES["chain"](4_900)]
            await first.send(*chain)
            if number == 1:
                await first.pass_time(2)
        assert await first.outcomes() == {"judged": 2}
    async with stepped_collector(config, clock=first.clock) as second:
        await second.pass_time(1)
        await second.pass_time(2)
        assert await second.outcomes() == {"judged": 3}
        assert second.collector.counters.snapshot()["traces_poison"] == 0
    carriers = second.carriers()
    assert sorted(span.trace_id for span in carriers) == [trace_id_of(number) for number in range(3)]
    assert {span.attributes[semconv.EVAL_STATUS] for span in carriers} == {"ok"}
