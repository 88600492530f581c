"""Several stores merged say what one store with all of their traces says."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.answers.port import AnswerFilter, SortBy, TrafficScope
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import ReadError
from ragtrace.traces.attach import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace_collector.ledger.account import Ledger, merge_ledgers
from ragtrace_collector.ledger.outcomes import State
from ragtrace_collector.operations.vitals import VitalStore
from ragtrace_collector.operations.why import look_up
from ragtrace_collector.store.cipher import NO_CIPHER
from ragtrace_collector.store.maintenance import refused, refused_in
from ragtrace_collector.store.merged import MergedReader, MergedStores
from ragtrace_collector.store.open_reading import open_shards
from ragtrace_collector.store.port import (
    IndexSize,
    Job,
    JudgedInput,
    KeptCarrier,
    LedgerStore,
    Outcome,
    StoredContent,
    StoreUnavailable,
    WorkStore,
)
from ragtrace_collector.store.reader import StoreReader
from ragtrace_collector.store.sqlite import SqliteStore
from tests.rag_spans import rag_trace
from tests.unit.answers.rows import NOON_NS, a_row, hex_id

TRACES = 6
SHARDS = (0, 2, 5)
SINK = "https://back.end"
SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)
MAX_BYTES = 10 << 20
LEFT_OUT = (str(State.SAMPLED_OUT), State.INELIGIBLE.because("no_content"))
ENDS = ("judged", State.FAILED.because("judge_timeout"), State.EXPIRED.because("retention"))


class Answer(NamedTuple):
    """What becomes of one answer."""

    trace: int
    tenant: str
    span: int
    fate: str
    """How it ended, or ``open``, ``leased``, ``postponed``."""
    delivery: str
    """``waiting``, ``delivered`` or ``rejected``."""

    @property
    def trace_id(self) -> str:
        return rag_trace(self.trace)[0].trace_id

    @property
    def key(self) -> str:
        return f"{self.trace_id}@{self.tenant}" if self.tenant else self.trace_id

    @property
    def span_id(self) -> str:
        return hex_id(self.span)

    @property
    def seen_ns(self) -> int:
        return NOON_NS + self.trace


answers = st.builds(
    Answer,
    trace=st.integers(0, TRACES - 1),
    tenant=st.sampled_from(["", "acme"]),
    span=st.integers(1, 2),
    fate=st.sampled_from([*LEFT_OUT, *ENDS, "judged", "open", "leased", "postponed"]),
    delivery=st.sampled_from(["waiting", "delivered", "rejected"]),
)
several_answers = st.lists(answers, unique_by=lambda each: (each.key, each.span), max_size=10)
owners = st.lists(st.sampled_from(SHARDS), min_size=TRACES, max_size=TRACES)


async def fill(store: WorkStore, found: Sequence[Answer]) -> None:
    """Do to a store what becomes of the answers."""
    by_key: dict[str, list[Answer]] = {}
    for each in found:
        by_key.setdefault(each.key, []).append(each)
    for key, of_trace in by_key.items():
        await receive(store, key, of_trace[0])
        await decide(store, key, [each for each in of_trace if each.fate != "open"])
    plan = {(each.key, each.span_id): each for each in found}
    for job in await store.take_jobs(1_000, now_ns=NOON_NS + 100):
        await end(store, job, plan[job.trace_id, job.span_id])
    waiting = await store.outbox_items(SINK, 1_000)
    by_payload = {f"{each.key} {each.span_id}".encode(): each.delivery for each in found}
    for item in waiting:
        if by_payload[item.payload] == "delivered":
            await store.delivered([item])
        elif by_payload[item.payload] == "rejected":
            await store.reject([item], reason="no", now_ns=NOON_NS + 200)


async def receive(store: WorkStore, key: str, answer: Answer) -> None:
    ref = SpanRef(span_id=rag_trace(0)[0].span_id, parent_span_id=None)
    part = TraceSlice(trace_id=key, payload=encode(rag_trace(answer.trace)), spans=(ref,))
    await store.append([part], forward={}, now_ns=answer.seen_ns)


async def decide(store: WorkStore, key: str, decided: Sequence[Answer]) -> None:
    queued = [each for each in decided if each.fate not in LEFT_OUT]
    left_out = [each for each in decided if each.fate in LEFT_OUT]
    if not decided:
        return
    await store.decide_trace(
        key,
        jobs=[
            Job(
                trace_id=key,
                span_id=each.span_id,
                sample=SAMPLE,
                tenant=each.tenant,
                service=f"bot-{each.trace % 2}",
                record_sha256="one",
            )
            for each in queued
        ],
        outcomes=[
            Outcome(span_id=each.span_id, outcome=each.fate, sample=SAMPLE, tenant=each.tenant)
            for each in left_out
        ],
        keep_spans=True,
        now_ns=decided[0].seen_ns,
    )


async def end(store: WorkStore, job: Job, answer: Answer) -> None:
    if answer.fate == "postponed":
        await store.postpone(job, due_ns=NOON_NS + 10**12, reason="judge_refused")
    elif answer.fate in ENDS:
        is_judged = answer.fate == "judged"
        await store.finish(
            job,
            answer.fate,
            outbox_items={SINK: f"{answer.key} {answer.span_id}".encode()},
            now_ns=NOON_NS + 150,
            carrier=carrier_of(answer) if is_judged else "",
            judged=JudgedInput("one", 1) if is_judged else None,
            kept=kept(answer) if is_judged else None,
        )


def carrier_of(answer: Answer) -> str:
    return hex_id(1_000 + 10 * answer.trace + answer.span)


def kept(answer: Answer) -> KeptCarrier:
    key, carrier = AnswerKey(answer.trace_id, answer.span_id, answer.tenant), carrier_of(answer)
    row = replace(a_row(), key=key, carrier_span_id=carrier, time_ns=answer.seen_ns)
    return KeptCarrier(summary=row, payload=encode([replace(rag_trace(answer.trace)[0], span_id=carrier)]))


class Stores:
    """One store with all answers, and several that share them."""

    def __init__(self, folder: Path, owner_of: Sequence[int]) -> None:
        self.folder = folder
        self.owner_of = {rag_trace(trace)[0].trace_id: owner for trace, owner in enumerate(owner_of)}
        self.shards: dict[int, SqliteStore] = {}

    def shard_of(self, trace_id: str) -> int:
        return self.owner_of.get(trace_id, 0)

    def merged(self, *, is_routed: bool) -> MergedStores:
        return MergedStores(lambda: self.shards, shard_of=self.shard_of if is_routed else None)

    def path(self, name: object) -> Path:
        return self.folder / f"{name}.db"

    async def opened(self, found: Sequence[Answer]) -> Stores:
        self.one = await SqliteStore.open(self.path("one"), max_bytes=MAX_BYTES)
        await fill(self.one, found)
        for number in sorted(set(self.owner_of.values())):
            self.shards[number] = await SqliteStore.open(self.path(number), max_bytes=MAX_BYTES)
            own = [each for each in found if self.shard_of(each.trace_id) == number]
            await fill(self.shards[number], own)
        return self

    async def aclose(self) -> None:
        for store in (self.one, *self.shards.values()):
            await store.aclose()


def without_size(ledger: Ledger) -> Ledger:
    return replace(ledger, store_bytes=0)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(several_answers, owners, st.booleans())
def test_merged_stores_say_of_answers_and_traces_what_one_store_says(
    found: list[Answer], owner_of: list[int], is_routed: bool
) -> None:
    async def compare(folder: Path) -> None:
        stores = await Stores(folder, owner_of).opened(found)
        one, merged = stores.one, stores.merged(is_routed=is_routed)
        for tenant in (None, "acme", "other"):
            for since_ns in (None, NOON_NS + 2):
                expected = await one.ledger(tenant, since_ns=since_ns)
                ledger = await merged.ledger(tenant, since_ns=since_ns)
                assert without_size(ledger) == without_size(expected)
                assert list(ledger.accounts) == list(expected.accounts)
                assert ledger.adds_up
            for limit in (2, 100):
                assert await merged.find_traces("", limit=limit, tenant=tenant) == await one.find_traces(
                    "", limit=limit, tenant=tenant
                )
        for key in (*await one.find_traces("", limit=100), "f" * 32):
            assert await merged.trace_report(key) == await one.trace_report(key)
        assert await merged.index_size() == await one.index_size()
        files = [stores.path(number) for number in stores.shards]
        assert refused_in(files) == refused(stores.path("one"))
        await compare_content(one, merged, found)
        await stores.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder)))


async def compare_content(one: SqliteStore, merged: MergedStores, found: Sequence[Answer]) -> None:
    for each in found:
        key = AnswerKey(each.trace_id, each.span_id, each.tenant)
        assert await merged.content.carriers(key) == await one.content.carriers(key)
        assert await merged.answers.versions(key) == await one.answers.versions(key)
        for name in (f"{each.trace_id}@{each.tenant}", each.trace_id):
            assert await read(merged.content, name) == await read(one.content, name)
    traces = [trace async for trace in merged.content.traces()]
    assert len(traces) == len([trace async for trace in one.content.traces()])
    listed = await merged.answers.page(AnswerFilter(), sort=SortBy.OLDEST)
    expected = await one.answers.page(AnswerFilter(), sort=SortBy.OLDEST)
    assert [row.time_ns for row in listed.answers] == [row.time_ns for row in expected.answers]


async def read(content: StoredContent, name: str) -> object:
    try:
        return await content.get(name)
    except ReadError as exc:
        return str(exc)


def judged(trace: int, tenant: str = "", span: int = 1) -> Answer:
    return Answer(trace=trace, tenant=tenant, span=span, fate="judged", delivery="delivered")


async def test_tenants_that_use_one_trace_id_in_different_stores_are_told_apart(tmp_path: Path) -> None:
    stores = await Stores(tmp_path, [0, 2]).opened([])
    both = (judged(0), judged(0, "acme"))
    for number, answer in zip((0, 2), both, strict=True):
        await fill(stores.shards[number], [answer])
    trace_id = both[0].trace_id
    reader: StoredContent = MergedReader(
        lambda: {number: store.content for number, store in stores.shards.items()}
    )
    with pytest.raises(ReadError, match=f"name one of {trace_id}@, {trace_id}@acme"):
        await reader.get(trace_id)
    assert await reader.get(f"{trace_id}@acme") is not None
    assert await reader.get(f"{trace_id}@other") is None
    await reader.aclose()
    await stores.aclose()


async def test_merged_stores_fit_where_the_pages_read_one(tmp_path: Path) -> None:
    stores = await Stores(tmp_path, [0, 2]).opened([judged(0), judged(1)])
    merged = stores.merged(is_routed=True)
    vital: VitalStore = merged
    reports: LedgerStore = merged
    await vital.check()
    status = await look_up(reports, merged.answers, judged(1).trace_id, now_ns=NOON_NS + 900)
    assert [answer.state for answer in status.answers] == [State.JUDGED]
    assert [evaluation.carrier for evaluation in status.evaluations] == [carrier_of(judged(1))]
    stores.shards[5] = await SqliteStore.open(stores.path("full"), max_bytes=1)
    with pytest.raises(StoreUnavailable):
        await vital.check()
    await stores.aclose()


async def test_shards_may_leave_and_come_while_they_are_read(tmp_path: Path) -> None:
    stores = await Stores(tmp_path, [0, 2]).opened([judged(0), judged(1)])
    merged = stores.merged(is_routed=True)
    assert (await merged.ledger()).seen == 2
    gone = stores.shards.pop(2)
    assert (await merged.ledger()).seen == 1
    assert (await merged.trace_report(judged(1).key)).answers == ()
    assert await merged.content.get(judged(1).key) is None
    stores.shards[2] = gone
    assert len((await merged.trace_report(judged(1).key)).answers) == 1
    await stores.aclose()


async def test_the_files_of_several_stores_are_read_as_one_while_their_collectors_run(tmp_path: Path) -> None:
    stores = await Stores(tmp_path, [0, 2]).opened([judged(0), judged(1)])
    files = {number: stores.path(number) for number in stores.shards}
    door = open_shards(lambda: files, name="shards", cipher=NO_CIPHER, shard_of=stores.shard_of)
    assert (await door.reports.ledger()).by_name()["judged"] == 2
    assert (await door.reports.index_size()) == IndexSize(rows=2, oldest_ns=NOON_NS)
    assert (await door.index.sums(TrafficScope())).answers == 2
    assert await door.reader.get(judged(1).key) == await StoreReader(stores.path("one")).get(judged(1).key)
    await stores.aclose()


def test_the_ledger_of_no_store_is_empty_and_adds_up() -> None:
    ledger = merge_ledgers([])
    assert ledger.adds_up
    assert (ledger.seen, ledger.accounts, ledger.oldest_pending_ns) == (0, (), None)
