"""Callers that go away while their spans are committed: what is on disk is judged, and without a restart."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import grpc
import pytest

from ragtrace.traces.otlp import parse_request, split_by_trace
from tests.integration.collector.running import carriers_in, config_of, request_of, running_collector, until
from tests.integration.collector.stepping import stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

AT_ONCE = 20
CALLERS = 200
MOST_CALLERS = 4_000
"""Rounds go on until somebody went away during a commit."""
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def stored(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "store.db")) as db:
        return {row[0] for row in db.execute("SELECT trace_id FROM trace")}


async def call_and_give_up(
    export: grpc.aio.UnaryUnaryMultiCallable, number: int, chance: random.Random, within_s: float
) -> bool:
    """Send an answer, and go away at any moment until it is acknowledged; say whether it was."""
    timeout_s = PATIENCE_S if number % 2 else chance.uniform(0.05, 1) * within_s
    call = export(request_of(*rag_trace(number)), timeout=timeout_s)
    if number % 2:
        await asyncio.sleep(chance.uniform(0, within_s))
        call.cancel()
    with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        await call
        return True
    return False


async def acknowledged_of(
    numbers: range, export: grpc.aio.UnaryUnaryMultiCallable, within_s: float
) -> set[str]:
    """Send answers all at once, each by a caller that gives up; return those that were acknowledged."""
    chance = random.Random(numbers.start)
    taken = await asyncio.gather(*(call_and_give_up(export, each, chance, within_s) for each in numbers))
    return {trace_id_of(number) for number, was in zip(numbers, taken, strict=True) if was}


async def a_call_takes_s(numbers: range, export: grpc.aio.UnaryUnaryMultiCallable) -> float:
    """Return how long this machine takes for so many calls at once of callers who wait."""
    began = time.monotonic()
    await asyncio.gather(*(export(request_of(*rag_trace(number))) for number in numbers))
    return time.monotonic() - began


@pytest.mark.slow
async def test_what_cancelled_callers_left_on_disk_is_judged_without_a_restart(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        address = f"127.0.0.1:{collector.grpc_port}"
        acknowledged = {trace_id_of(number) for number in range(2 * AT_ONCE)}
        async with grpc.aio.insecure_channel(address) as channel:
            export = channel.unary_unary(EXPORT)
            await a_call_takes_s(range(AT_ONCE), export)  # the first ones connect
            within_s = await a_call_takes_s(range(AT_ONCE, 2 * AT_ONCE), export)
            for first in range(2 * AT_ONCE, MOST_CALLERS, AT_ONCE):
                acknowledged |= await acknowledged_of(range(first, first + AT_ONCE), export, within_s)
                await collector.pipeline.intake.finish()
                on_disk = stored(tmp_path)
                if first >= CALLERS and on_disk > acknowledged:
                    break
        assert acknowledged <= on_disk
        assert on_disk > acknowledged, "nobody went away during a commit"
        # A call that its caller gave up may reach the disk later than the last look at it.
        await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == len(stored(tmp_path)))
    counts = collector.counters.snapshot()
    on_disk = stored(tmp_path)
    assert (counts["traces_swept"], counts["spans_kept"]) == (0, 3 * len(on_disk))
    assert sorted(span.trace_id for span in carriers_in(tmp_path / "out.jsonl")) == sorted(on_disk)


async def test_a_stored_trace_that_no_stage_has_is_found_by_a_sweep_and_judged(tmp_path: Path) -> None:
    async with stepped_collector(config_of(tmp_path)) as spans:
        body = request_of(*rag_trace(0))
        slices = split_by_trace(parse_request(body, encoding="protobuf"), body=body).slices
        await spans.collector.pipeline.store.append(slices, forward={}, now_ns=spans.clock.now_ns())
        await spans.send(*rag_trace(1))
        for _ in range(2):  # what is committed now is announced soon: the second time, nobody had it
            await spans.collector.pipeline.sweeper.step()
        await spans.pass_time(1)
        await spans.pass_time(1)
        assert await spans.outcomes() == {"judged": 2}
        assert spans.collector.counters.snapshot()["traces_swept"] == 1
