"""One of several processes that write one store: it appends traces, decides, judges and sends.

Run it as ``python -m tests.stores.crew URL FOLDER NAME``. SIGTERM lets it finish what is left. Its file in
the folder has a line for each acknowledged trace, and for each carrier that it sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ragtrace.answers.summary import AnswerKey
from ragtrace.budget import Budget, BudgetUnavailable, ExceededLimit, Limit, Period, Spend
from ragtrace.errors import ConfigError
from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace_collector.store.postgres import PostgresServer
from ragtrace_collector.store.records import Job, KeptCarrier, StoreUnavailable
from ragtrace_collector.store.store import Store
from tests.rag_spans import rag_trace
from tests.unit.answers.rows import a_row

SINK: Final = "back end"
SPAN: Final = f"{0xB1:016x}"
SAMPLE: Final = Sample(rule="ratio", rate=1.0, probability=1.0)

GONE_S: Final = 2
BUDGET: Final = Budget(name="live", limits={Period.DAY: Limit(calls=300)})


class Member:
    """A process with its store and its file of what it said."""

    def __init__(self, store: Store, said: int, name: str, ending: asyncio.Event) -> None:
        self.store = store
        self._ending = ending
        self._said = said
        self._name = name
        self._numbers = iter(range(1 << 30))

    async def append(self) -> bool:
        """Append a trace in two parts."""
        if self._ending.is_set():
            return False
        trace_id = f"{int(self._name):08x}{next(self._numbers):024x}"
        for span_id in (SPAN, "00000000000000ff"):
            ref = SpanRef(span_id=span_id, parent_span_id=None)
            part = TraceSlice(trace_id=trace_id, payload=b"spans", spans=(ref,))
            await self.store.append([part], forward={}, now_ns=time.time_ns())
        self._say("appended", trace_id)
        return True

    async def decide(self) -> bool:
        """Decide about this process's traces, and those of others that are gone."""
        undecided = await self.store.undecided()
        for trace_id in undecided:
            if None in (await self.store.look([trace_id])).values():
                continue
            job = Job(trace_id=trace_id, span_id=SPAN, sample=SAMPLE, tenant="t")
            await self.store.decide_trace(
                trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=time.time_ns()
            )
        return bool(undecided)

    async def judge(self) -> bool:
        """Judge what is due: a call each, as far as the budget allows."""
        jobs = await self.store.take_jobs(4, now_ns=time.time_ns())
        for job in jobs:
            outcome, carrier = "over_budget:calls", ""
            items: Mapping[str, bytes] = {}
            if await self._may_ask():
                await asyncio.sleep(0.1)
                carrier = os.urandom(8).hex()
                outcome, items = "judged", {SINK: f"{job.trace_id} {carrier}".encode()}
            await self._finish(job, outcome, items, carrier)
        return bool(jobs)

    async def _may_ask(self) -> bool:
        while True:
            with suppress(BudgetUnavailable):
                reserved = await self.store.budget.reserve(BUDGET, Spend(calls=1), now_ns=time.time_ns())
                return not isinstance(reserved, ExceededLimit)
            await asyncio.sleep(0.1)

    async def _finish(self, job: Job, outcome: str, items: Mapping[str, bytes], carrier: str) -> None:
        """Write a verdict, as the collector does, until the store takes it."""
        summary = replace(a_row(), key=AnswerKey(job.trace_id, SPAN), carrier_span_id=carrier)
        kept = KeptCarrier(summary=summary, payload=encode([rag_trace(0)[0]]))
        while True:
            with suppress(StoreUnavailable):
                await self.store.finish(
                    job,
                    outcome,
                    outbox_items=items,
                    now_ns=time.time_ns(),
                    carrier=carrier,
                    kept=kept if carrier else None,
                )
                return
            await asyncio.sleep(0.1)

    async def send(self) -> bool:
        """Send what waits."""
        items = await self.store.outbox_items(SINK, 16)
        for item in items:
            self._say("sent", item.payload.decode())
        await self.store.delivered(items)
        return bool(items)

    def _say(self, what: str, of: str) -> None:
        os.write(self._said, f"{what} {of}\n".encode())


async def _work(url: str, folder: Path, name: str) -> None:
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    said = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while True:
        try:
            store = await Store.open(PostgresServer(url, gone_s=GONE_S), max_bytes=1 << 30)
            break
        except (ConfigError, StoreUnavailable):  # the server is away, or cut the line
            await asyncio.sleep(0.1)
    member = Member(store, said, name, ending)
    while True:
        try:
            steps = (member.append, member.decide, member.judge, member.send)
            is_busy = [await step() for step in steps]
            left = any((await store.ledger()).left().values())
        except StoreUnavailable:
            await asyncio.sleep(0.1)
            continue
        if ending.is_set() and not any(is_busy) and not left:
            break
        await asyncio.sleep(0.02)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
