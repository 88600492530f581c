"""Traces that hang or burden the process that reads them: they are set aside, and all others are judged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from ragtrace import semconv
from ragtrace.cli.app import cli
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.ledger import MOST_CRASHES
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.attack.graph_shapes import SHAPES
from tests.backends.process import eventually
from tests.integration.collector.running import carriers_in, config_of
from tests.integration.collector.stepping import stepped_collector
from tests.rag_spans import rag_trace, trace_id_of

GOOD = 8
POISON = 3
RUNAWAY = "(a+)+$"
"""A pattern of the user's own that some names keep busy until the end of time."""


def runaway_trace(number: int) -> tuple[Span, ...]:
    root, retrieval, generation = rag_trace(number)
    attributes = {semconv.OPERATION_NAME: "execute_tool", "gen_ai.tool.name": "a" * 60 + "b"}
    return root, retrieval, generation, replace(generation, span_id="ab" * 8, attributes=attributes)


def send(collector: CollectorProcess) -> None:
    traces = [runaway_trace(number) if number == POISON else rag_trace(number) for number in range(GOOD + 1)]
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        export(encode([span for trace in traces for span in trace]), timeout=30)


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


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_trace_that_hangs_every_process_is_set_aside_and_all_others_are_judged(tmp_path: Path) -> None:
    config = settings_of(tmp_path, extract={"mapping": {"tools": RUNAWAY}}, judge={"use": "lexical"})
    for crash in range(MOST_CRASHES):
        with collector_process(tmp_path, config) as collector:
            if not crash:
                send(collector)
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
    spans = SHAPES["star"](300)
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
