"""A conformance check for work stores, called by the tests of an adapter.

The tests in ``tests/conformance`` go on from here, method by method.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from ragtrace.budget import Budget, ExceededLimit, Limit, Period, Reservation, Spend
from ragtrace.traces.attach import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.ledger.outcomes import State
from ragtrace_collector.sampling.follow_up import LowAnswer
from ragtrace_collector.sampling.sampler import SamplingChanges
from ragtrace_collector.sampling.windows import WindowRow
from ragtrace_collector.store.records import Job, QuarantineReason
from ragtrace_collector.store.store import Store

__all__ = ["check_store"]

OpenStore = Callable[[], Awaitable[Store]]
"""Opens the same store each time, as a start of the collector does."""

_SINK: Final = "grpc://back-end:4317"
_TRACES: Final = tuple(f"{number:032x}" for number in range(1, 21))
_SAMPLE: Final = Sample(rule="ratio", rate=1.0, probability=1.0)
_TIMEOUT_S: Final = 30.0


async def check_store(open_store: OpenStore) -> None:
    """Check that a reopened work store has everything it accepted once, and that its sums are right.

    ``open_store`` opens one store, empty at first, again and again; each time the previous one is closed in
    the middle of its work.

    Raises:
        AssertionError: says what the store did.
    """
    accepted = await _append_and_close(open_store)
    await _check_spans(open_store, accepted)
    await _check_suspects(open_store)
    await _check_leases(open_store, accepted)
    await _check_endings(open_store, accepted)
    await _check_reports(open_store, accepted)
    await _check_budget(open_store)
    await _check_sampling(open_store)


async def _append_and_close(open_store: OpenStore) -> Sequence[str]:
    async with asyncio.TaskGroup() as group, _opened(open_store) as store:
        appends = [group.create_task(_try_append(store, trace_id)) for trace_id in _TRACES]
        await asyncio.sleep(0)  # they are under way when it is closed
    accepted = [trace_id for trace_id, append in zip(_TRACES, appends, strict=True) if append.result()]
    assert accepted, "it accepted nothing"
    return accepted


async def _check_suspects(open_store: OpenStore) -> None:
    innocent, suspect = f"{98:032x}", f"{99:032x}"
    async with _opened(open_store) as store:
        await store.append([_part(innocent), _part(suspect)], forward={}, now_ns=1)
        assert await store.look((innocent, suspect)) == {}, "it suspects traces of which nothing is known"
        await store.end_look((innocent,))
    async with _opened(open_store) as store:
        known = await store.look((innocent, suspect))
        assert {trace_id: each.crashes for trace_id, each in known.items()} == {suspect: 1}, (
            "it does not know which trace was looked at when it was closed"
        )
        await store.end_look((innocent,))
        assert await store.look_alone(suspect), "it lets nobody look at a suspect that is alone"
        assert not await store.look_alone(suspect), "it lets two look at suspects"
        await store.set_aside(suspect, poison=QuarantineReason.CRASHES, now_ns=2)
    async with _opened(open_store) as store:
        (found,) = (await store.look((suspect,))).values()
        assert found.poison == QuarantineReason.CRASHES, "it forgot why a trace was set aside"
        assert suspect not in await store.undecided(), "it has a restart look at a trace that was set aside"
        await store.decide_trace(innocent, jobs=[], outcomes=[], keep_spans=False, now_ns=3)


async def _try_append(store: Store, trace_id: str) -> bool:
    try:
        await store.append([_part(trace_id)], forward={_SINK: _payload(trace_id)}, now_ns=1)
    except Exception:  # noqa: BLE001 -- whatever it says to whom it closes on, it did not accept the spans
        return False
    return True


async def _check_spans(open_store: OpenStore, accepted: Sequence[str]) -> None:
    async with _opened(open_store) as store:
        kept = {trace_id: (await store.spans(trace_id)).payloads for trace_id in accepted}
        lost = [trace_id for trace_id, payloads in kept.items() if _payload(trace_id) not in payloads]
        assert not lost, f"{len(lost)} traces were accepted before it was closed and have lost their spans"
        doubled = [trace_id for trace_id, payloads in kept.items() if len(payloads) > 1]
        assert not doubled, f"{len(doubled)} traces have their spans twice after it was closed"
        assert set(accepted) <= set(await store.undecided()), "`undecided` forgot traces that nobody settled"
        waiting = [outbox_item.payload for outbox_item in await store.outbox_items(_SINK, len(_TRACES) + 1)]
        assert all(waiting.count(_payload(trace_id)) == 1 for trace_id in accepted), (
            "originals to forward are not in the outbox once each"
        )
        for trace_id in accepted:
            job = Job(trace_id=trace_id, span_id=trace_id[:16], sample=_SAMPLE)
            await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=2)
        await _check_ledger(store, seen=len(accepted), pending=len(accepted))


async def _check_leases(open_store: OpenStore, accepted: Sequence[str]) -> None:
    async with _opened(open_store) as store:
        taken = await store.take_jobs(len(_TRACES), now_ns=3)
        assert len(taken) == len(accepted), f"{len(accepted)} jobs were queued, and {len(taken)} are leased"
        assert not await store.take_jobs(1, now_ns=3), "a job is leased twice"
        await _check_ledger(store, seen=len(accepted), pending=len(accepted))


async def _check_endings(open_store: OpenStore, accepted: Sequence[str]) -> None:
    async with _opened(open_store) as store:
        jobs = []
        while taken := await store.take_jobs(len(_TRACES), now_ns=4):  # suspects of a crash come one by one
            for job in taken:
                await store.finish(job, State.JUDGED, outbox_items={_SINK: _carrier(job.trace_id)}, now_ns=4)
            jobs += [job.trace_id for job in taken]
        assert sorted(jobs) == sorted(accepted), "leases did not end with the process, or jobs came twice"
    async with _opened(open_store) as store:
        assert not await store.take_jobs(1, now_ns=5), "an answer that was judged is queued again"
        waiting = [
            outbox_item.payload for outbox_item in await store.outbox_items(_SINK, 2 * len(_TRACES) + 1)
        ]
        assert all(waiting.count(_carrier(trace_id)) == 1 for trace_id in accepted), (
            "carriers of answers that were judged are not in the outbox once each"
        )
        await _check_ledger(store, seen=len(accepted), pending=0)


async def _check_reports(open_store: OpenStore, accepted: Sequence[str]) -> None:
    async with _opened(open_store) as store:
        found = await store.find_traces("", limit=2 * len(_TRACES))
        assert found == tuple(sorted(found)), "the traces that it finds come in no order"
        assert set(accepted) <= set(found), "it does not find a trace that it has"
        for trace_id in accepted:
            report = await store.trace_report(trace_id)
            assert report.trace is not None, "it reports nothing about a trace that it has"
            states = [(answer.span_id, answer.state) for answer in report.answers]
            assert states == [(trace_id[:16], State.JUDGED)], "it reports otherwise how an answer ended"


async def _check_budget(open_store: OpenStore) -> None:
    budget = Budget(name="live", limits={Period.DAY: Limit(calls=3, tokens=100)})
    async with _opened(open_store) as store:
        first, second = [
            await store.budget.reserve(budget, Spend(calls=1, tokens=40), now_ns=1) for _ in range(2)
        ]
        assert isinstance(first, Reservation), "it refuses a request within the limits"
        assert isinstance(second, Reservation), "it refuses a request within the limits"
    async with _opened(open_store) as store:
        third = await store.budget.reserve(budget, Spend(calls=1, tokens=40), now_ns=1)
        assert isinstance(third, ExceededLimit), "it exceeds a limit after it was closed"
        await store.budget.settle(first, Spend(calls=1, tokens=10))
        spent = {usage.limit: usage.spent for usage in (await store.budget.status(budget, now_ns=1)).left()}
        assert spent == {"day_calls": 2, "day_tokens": 50}, (
            f"it counts {spent}: one request took 10 tokens, the other is counted by its estimate, 40"
        )


async def _check_sampling(open_store: OpenStore) -> None:
    row = WindowRow("minute", 60, "acme", 5, 2.5, 1.0, 2)
    low = LowAnswer(trace_id=_TRACES[0], span_id="low", keys=("session",), remaining=3, until_ns=100)
    async with _opened(open_store) as store:
        await store.sampling.save(SamplingChanges(windows=(row,)))
        await store.sampling.select_related(low, [], now_ns=1)
    async with _opened(open_store) as store:
        read = await store.sampling.load(now_ns=1)
        assert read == ((row,), (low,)), f"it was given other counts and low answers than it has: {read}"


async def _check_ledger(store: Store, *, seen: int, pending: int) -> None:
    ledger = await store.ledger()
    assert ledger.adds_up, f"the ledger does not add up: {ledger}"
    assert (ledger.seen, ledger.pending) == (seen, pending), (
        f"{seen} answers were seen, {pending} are pending; the ledger says {ledger.seen} and {ledger.pending}"
    )


@asynccontextmanager
async def _opened(open_store: OpenStore) -> AsyncIterator[Store]:
    store = await open_store()
    try:
        yield store
    finally:
        async with asyncio.timeout(_TIMEOUT_S):
            await store.aclose()


def _part(trace_id: str) -> TraceSlice:
    ref = SpanRef(span_id=trace_id[:16], parent_span_id=None)
    return TraceSlice(trace_id=trace_id, payload=_payload(trace_id), spans=(ref,))


def _payload(trace_id: str) -> bytes:
    return f"spans of {trace_id}".encode()


def _carrier(trace_id: str) -> bytes:
    return f"carrier of {trace_id}".encode()
