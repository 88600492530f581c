"""Traces that are built to be slow, or that hang the process that reads them, and answers that kill it."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copy
from signal import SIGKILL
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner

from ragtrace import semconv
from ragtrace.cli.app import cli
from ragtrace.traces.trace import Span
from ragtrace_collector.ledger import MOST_CRASHES
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.process import eventually
from tests.integration.collector import broken_metric
from tests.integration.collector.running import carriers_in, config_of
from tests.integration.collector.stepping import stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow


GOOD = 8
POISON = 3
RUNAWAY = "(a+)+$"
"""A pattern of the user's own that some names keep busy until the end of time."""


def runaway_trace(number: int) -> Sequence[Span]:
    root, retrieval, generation = rag_trace(number)
    attributes = {semconv.OPERATION_NAME: "execute_tool", "gen_ai.tool.name": "a" * 60 + "b"}
    return root, retrieval, generation, replace(generation, span_id="ab" * 8, attributes=attributes)


def send(collector: CollectorProcess, poison: Sequence[Span]) -> None:
    """Send one request with good answers, and among them the poison."""
    traces = [poison if number == POISON else rag_trace(number) for number in range(GOOD + 1)]
    assert collector.send(*(span for trace in traces for span in trace)).status_code == 200


def is_looked_at(folder: Path) -> bool:
    with closing(sqlite3.connect(folder / "store.db")) as db:
        query = "SELECT 1 FROM suspect WHERE trace_id = ? AND is_looked_at"
        return db.execute(query, (trace_id_of(POISON),)).fetchone() is not None


def delivered(out: Path) -> set[tuple[str, str]]:
    """Return the carriers in a file; one that was being delivered at a crash is there twice, under its id."""
    return {(span.trace_id, span.span_id) for span in carriers_in(out)}


def told_of(folder: Path, number: int) -> dict[str, Any]:
    command = ["why", trace_id_of(number), "--from", f"store:{folder}/store.db", "--json"]
    told: dict[str, Any] = json.loads(CliRunner().invoke(cli, command).stdout)
    return told


@pytest.mark.timeout(240)
def test_a_trace_that_hangs_every_process_is_set_aside_and_all_others_are_judged(tmp_path: Path) -> None:
    config = settings_of(tmp_path, extract={"mapping": {"tools": RUNAWAY}}, judge={"use": "lexical"})
    for crash in range(MOST_CRASHES):
        with collector_process(tmp_path, config) as collector:
            if not crash:
                send(collector, runaway_trace(POISON))
            eventually(lambda: is_looked_at(tmp_path), what="the look at the trace", deadline_s=60)
            collector.kill()  # as whoever watches /livez does
    with collector_process(tmp_path, config):
        out = tmp_path / "out.jsonl"
        eventually(lambda: len(delivered(out)) == GOOD, what="all other answers", deadline_s=60)
        eventually(lambda: told_of(tmp_path, POISON)["trace"]["poison"], what="the trace set aside")
    others = {trace_id_of(number) for number in range(GOOD + 1) if number != POISON}
    assert {trace_id for trace_id, _ in delivered(out)} == others
    told = told_of(tmp_path, POISON)
    assert (told["trace"]["poison"], told["trace"]["is_open"], told["answers"]) == ("crashes", False, [])
    assert "quarantined as poison: the process ended each time" in "\n".join(told["why"])
    counted = CliRunner().invoke(cli, ["ledger", "--from", f"store:{tmp_path}/store.db", "--json"])
    assert json.loads(counted.stdout)["poison_traces"] == 1


async def test_a_trace_that_takes_too_much_cpu_is_set_aside_for_later_processes_too(tmp_path: Path) -> None:
    spans = star(300)
    impatient = config_of(tmp_path, assemble={"max_cpu": "1ms"})
    async with stepped_collector(impatient) as first:
        await first.send(*spans)
        await first.pass_time(1)
        assert first.collector.counters.snapshot()["traces_poison"] == 1
        assert await first.outcomes() == {}
    async with stepped_collector(config_of(tmp_path), clock=first.clock) as second:
        await second.send(replace(spans[-1], span_id="dd" * 8))
        await second.send(*rag_trace(1))
        await second.pass_time(1)
        await second.pass_time(1)
        assert await second.outcomes() == {"judged": 1}
        ledger = await second.collector.pipeline.store.ledger()
        assert (ledger.poison_traces, ledger.open_traces) == (1, 0)
        assert second.collector.counters.snapshot()["traces_poison"] == 0  # it was told of before
    assert "more CPU time than `assemble.max_cpu`" in "\n".join(told_of(tmp_path, 0)["why"])
    assert [span.trace_id for span in second.carriers()] == [trace_id_of(1)]


ROOT, RETRIEVAL, GENERATION = rag_trace(0)
STEP = replace(ROOT, name="step", attributes={})
"""A span that says nothing: a step of some framework."""
LABEL = replace(ROOT, name="label", attributes={semconv.REFERENCE_ANSWER: "Refunds take 14 days."})
CHAT = {"openinference.span.kind": "LLM", "input.value": "How long?", "output.value": "14 days."}


def hung(span: Span, number: int, below: int | None) -> Span:
    """Give a span the id of its number, and hang it below another."""
    parent = None if below is None else f"{below + 1:016x}"
    return replace(span, span_id=f"{number + 1:016x}", parent_span_id=parent)


def spine(size: int, of: Span = STEP) -> list[Span]:
    """Return a root, and spans that each hang below the one before."""
    return [hung(ROOT, 0, None), *(hung(of, number, number - 1) for number in range(1, size))]


def chain(size: int) -> list[Span]:
    ends = ((RETRIEVAL, size - 2), (GENERATION, size - 1))
    return [*spine(size - 2), *(hung(span, number, size - 3) for span, number in ends)]


def star(size: int) -> list[Span]:
    kinds = (STEP, RETRIEVAL, GENERATION)
    return [hung(ROOT, 0, None), *(hung(kinds[number % 3], number, 0) for number in range(1, size))]


SHAPES: Mapping[str, Callable[[int], list[Span]]] = {
    "chain": chain,
    "chain of references": lambda size: spine(size, LABEL),
    "star": star,
    "cycle of calls": lambda size: [hung(ROOT, number, (number - 1) % size) for number in range(size)],
    "generations alone": lambda size: [
        hung(replace(STEP, name="chat", attributes=CHAT), number, None) for number in range(size)
    ],
}


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
    spans = SHAPES[shape](size)
    random.Random(1).shuffle(spans)  # half of them come before their parents
    async with stepped_collector(config_of(folder)) as stepped:
        with counted_steps() as steps:
            await stepped.send(*spans[: size // 2])
            await stepped.send(*spans[size // 2 :])
            for _ in range(3):
                await stepped.pass_time(60)
    return steps[0]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_trace_of_twice_the_size_costs_twice_as_much_in_any_shape(tmp_path: Path, shape: str) -> None:
    for size in (20, SIZE, 2 * SIZE):
        (tmp_path / str(size)).mkdir()
    await cost(tmp_path / "20", shape, 20)  # what is made once and kept
    once, twice = [await cost(tmp_path / str(size), shape, size) for size in (SIZE, 2 * SIZE)]
    assert twice <= MOST_GROWTH * once


def poison_config(folder: Path) -> Mapping[str, Any]:
    copy(broken_metric.__file__, folder / "broken.py")
    return settings_of(folder, judge={"max_concurrency": 4}, evaluate={"metrics": ["./broken.py:Broken"]})


def outcomes(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "store.db")) as db:
        return dict(db.execute("SELECT trace_id, outcome FROM job WHERE state = 'ended'").fetchall())


def test_an_answer_that_kills_its_process_is_set_aside_and_all_others_are_judged(tmp_path: Path) -> None:
    config = poison_config(tmp_path)
    with collector_process(tmp_path, config) as collector:
        send(collector, rag_trace(POISON, answer="KILL"))
        assert collector.process.wait(PATIENCE_S) == -SIGKILL
    for _ in range(MOST_CRASHES - 1):
        with collector_process(tmp_path, config) as collector:
            assert collector.process.wait(PATIENCE_S) == -SIGKILL
    with collector_process(tmp_path, config):
        eventually(lambda: len(outcomes(tmp_path)) == GOOD + 1, what="all answers")
        eventually(lambda: len(carriers_in(tmp_path / "out.jsonl")) == GOOD, what="all carriers")
    ended = outcomes(tmp_path)
    assert ended.pop(trace_id_of(POISON)) == "failed:poison"
    assert set(ended.values()) == {"judged"}
    assert sorted(span.trace_id for span in carriers_in(tmp_path / "out.jsonl")) == sorted(ended)
    assert json.dumps("KILL") not in (tmp_path / "collector.log").read_text()
