"""What every work store promises of a crash: each change is there as a whole, or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from ragtrace.answers.summary import AnswerKey
from ragtrace_collector.ledger import State
from ragtrace_collector.store.store import Store
from tests.architecture.source import ROOT
from tests.stores.place import Place
from tests.stores.victim import CARRIER, SINK, SPAN, carrier_of, follow_trace, payload_of

Said = tuple[str, ...]
"""What was acknowledged, and of which trace."""


async def check_left(store: Store, acknowledged: Collection[Said]) -> None:
    """Check what a crash left: each trace is as after one of its changes, at least the acknowledged one."""
    sent = [item.payload for item in await store.outbox_items(SINK, 10_000, most_bytes=1 << 30)]
    found = set()
    for trace_id in await store.find_traces("", limit=10_000):
        report, spans = await store.trace_report(trace_id), await store.spans(trace_id)
        assert spans.payloads == (payload_of(trace_id),), "spans are half there, or twice"
        assert sent.count(payload_of(trace_id)) == 1, "spans are stored without their originals, or otherwise"
        states = [answer.state for answer in report.answers]
        is_judged = states == [State.JUDGED]
        assert sent.count(carrier_of(trace_id)) == is_judged, (
            "a verdict is there without its carrier, or otherwise"
        )
        key = AnswerKey(trace_id, SPAN)
        kept = [span.span_id for span in (await store.content.kept(key)).carriers]
        rows = [row.carrier_span_id for row in await store.answers.versions(key)]
        assert kept == rows == [CARRIER] * is_judged, (
            "a verdict is there without what is kept of it, or otherwise"
        )
        found |= {("appended", trace_id)}
        found |= {("decided", trace_id)} if states else set()
        found |= {("judged", trace_id)} if is_judged else set()
    assert set(acknowledged) <= found, "what was acknowledged is lost"
    ledger = await store.ledger()
    assert ledger.adds_up
    assert ledger.seen == sum(what == "decided" for what, _ in found)
    assert (await store.index_size()).rows == sum(what == "judged" for what, _ in found)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 5, 40])
async def test_whenever_the_process_is_gone_changes_are_whole(
    place: Place, tmp_path: Path, number: int
) -> None:
    store = await place.open()
    said: list[Said] = []
    is_time = asyncio.Event()

    def say(*what: str) -> None:
        said.append(what)
        if len(said) >= number:
            is_time.set()

    async with asyncio.TaskGroup() as tasks:
        for trace in range(1, 21):
            following = follow_trace(store, f"{trace:032x}", say)
            tasks.create_task(following)
        await (is_time.wait() if number else asyncio.sleep(0))
        acknowledged = tuple(said)
        image = place.as_of_now(tmp_path / "image")
    await store.aclose()
    left = await image.open()
    await check_left(left, acknowledged)
    await left.aclose()


@pytest.mark.slow
async def test_what_a_killed_process_acknowledged_is_there(place: Place) -> None:
    said = await asyncio.to_thread(killed, place.address, after=60)
    store = await place.after_a_while().open()
    await check_left(store, said)
    assert {job.crashes for job in await store.take_jobs(1, now_ns=9)} <= {0, 1}
    await store.aclose()


def killed(address: str, *, after: int) -> list[Said]:
    """Let a process work on a store, kill it after so many changes, and return what it said."""
    command = [sys.executable, "-m", "tests.stores.victim", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as victim:
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(after)]
        victim.kill()
        lines += victim.stdout.readlines()
    return [tuple(line.split()) for line in lines if line.endswith("\n")]
