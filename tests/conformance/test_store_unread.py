"""What every work store promises of traces in which nothing was read, run on each adapter."""

from __future__ import annotations

from pathlib import Path

from ragtrace.traces.extract import Unread
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.store.store import Store
from tests.stores.place import Place


def unread(producer: str, **mapping: str) -> Unread:
    return Unread(producer=producer, attributes=("acme.q",), mapping=mapping)


async def decide(store: Store, trace_id: str, found: Unread | None) -> None:
    ref = SpanRef(span_id="s", parent_span_id=None)
    await store.append([TraceSlice(trace_id=trace_id, payload=b"", spans=(ref,))], forward={}, now_ns=1)
    await store.decide_trace(trace_id, jobs=[], outcomes=[], keep_spans=True, now_ns=1, unread=found)


async def counted(store: Store, tenant: str | None = None) -> dict[str, int]:
    return {each.producer: each.number for each in (await store.ledger(tenant)).unread}


async def test_a_trace_is_counted_once_under_the_producer_that_it_has_now(store: Store) -> None:
    await decide(store, "t1", unread("shop"))
    await decide(store, "t1", unread("shop"))
    assert await counted(store) == {"shop": 1}
    await decide(store, "t1", unread("desk"))
    assert await counted(store) == {"shop": 0, "desk": 1}
    await decide(store, "t1", None)
    assert await counted(store) == {"shop": 0, "desk": 0}


async def test_senders_that_name_ever_new_producers_fill_a_bounded_number_of_accounts(
    store: Store,
) -> None:
    for number in range(130):
        await decide(store, f"t{number}", unread(f"{number}{'x' * 1000}"))
    found = (await store.ledger()).unread
    assert len(found) == 101
    assert sum(each.number for each in found) == 130
    assert max(len(each.producer) for each in found) <= 200


async def test_the_counts_outlive_the_traces_and_a_crash(place: Place, tmp_path: Path) -> None:
    store = await place.open()
    await decide(store, "t1", unread("shop"))
    await store.expire(decided_before_ns=2, ended_before_ns=2)
    assert (await store.trace_report("t1")).trace is None
    again = await place.as_of_now(tmp_path / "later").open()
    assert await counted(again) == {"shop": 1}
    await again.aclose()
    await store.aclose()
