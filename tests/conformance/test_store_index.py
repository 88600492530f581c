"""What every work store promises about the index of judged answers, run on each adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace.answers.port import AnswerFilter
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Label, Sample, VerdictCounts
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.store.records import (
    IndexSize,
    Job,
    JudgedInput,
    KeptCarrier,
    StoreUnavailable,
)
from ragtrace_collector.store.store import Store
from tests.rag_spans import rag_trace
from tests.stores.place import Place

TRACE, SPAN = f"{0xA1:032x}", f"{0xB1:016x}"
FIRST, SECOND = f"{0xC1:016x}", f"{0xC2:016x}"
JOB = Job(
    trace_id=TRACE,
    span_id=SPAN,
    sample=Sample(rule="ratio", rate=1.0, probability=1.0),
    record_sha256="one",
    revisions_left=1,
)
HOUR_NS = 3_600_000_000_000


def kept(
    carrier: str = FIRST, *, span: str = SPAN, supersedes: str = "", time_ns: int = HOUR_NS
) -> KeptCarrier:
    summary = AnswerSummary(
        key=AnswerKey(TRACE, span),
        carrier_span_id=carrier,
        supersedes=supersedes,
        time_ns=time_ns,
        judged_ns=time_ns + 5,
        service="bot",
        label=Label.FAIL,
        metrics=(MetricSummary(name="faithfulness", label=Label.FAIL, score=0.5),),
        claims=VerdictCounts(supported=1, contradicted=1),
        probability=1.0,
        cost_usd=0.002,
    )
    return KeptCarrier(summary=summary, payload=encode([carrier_span(carrier)]))


def carrier_span(span_id: str) -> Span:
    return replace(rag_trace(0)[0], trace_id=TRACE, span_id=span_id, parent_span_id=SPAN)


async def carriers(store: Store, tenant: str = "") -> list[str]:
    return [span.span_id for span in (await store.content.kept(AnswerKey(TRACE, SPAN, tenant))).carriers]


async def valid(store: Store) -> list[str]:
    return [row.carrier_span_id async for row in store.answers.every(AnswerFilter())]


async def append(store: Store, trace_id: str = TRACE, payload: bytes = b"spans") -> None:
    ref = SpanRef(span_id=SPAN, parent_span_id=None)
    await store.append([TraceSlice(trace_id=trace_id, payload=payload, spans=(ref,))], forward={}, now_ns=1)


async def settle(store: Store, *jobs: Job, slices: int = 1, **options: object) -> None:
    trace_id = jobs[0].trace_id if jobs else TRACE
    await store.decide_trace(
        trace_id,
        jobs=jobs,
        outcomes=[],
        keep_spans=True,
        now_ns=2,
        slices=slices,
        **options,  # type: ignore[arg-type]
    )


async def judge(store: Store, found: KeptCarrier, *, slices: int = 1, addition: bytes = b"") -> None:
    (job,) = await store.take_jobs(1, now_ns=3)
    await store.finish(
        job,
        "judged",
        outbox_items={},
        now_ns=3,
        carrier=found.summary.carrier_span_id,
        judged=JudgedInput(record_sha256="one", slices=slices),
        kept=found,
        addition=addition,
    )


async def judge_one(store: Store, found: KeptCarrier | None = None) -> None:
    await append(store)
    await settle(store, JOB)
    await judge(store, found or kept())


async def test_rows_and_carriers_outlive_the_process(store: Store, place: Place) -> None:
    await judge_one(store)
    await store.aclose()
    reopened = await place.open()
    found = await reopened.index_size(), await carriers(reopened), await valid(reopened)
    await reopened.aclose()
    assert found == (IndexSize(rows=1, oldest_ns=HOUR_NS), [FIRST], [FIRST])


@pytest.mark.parametrize(
    "bounds", [{"began_before_ns": HOUR_NS + 1}, {"most_rows": 0}], ids=["by age", "by number"]
)
async def test_rows_go_by_age_and_by_number(store: Store, bounds: dict[str, int]) -> None:
    await judge_one(store)
    await store.expire(decided_before_ns=0, ended_before_ns=0, began_before_ns=HOUR_NS, most_rows=1)
    assert (await store.index_size()).rows == 1
    await store.expire(decided_before_ns=0, ended_before_ns=0, **bounds)
    assert await store.index_size() == IndexSize(rows=0, oldest_ns=None)


async def test_rows_go_before_a_sender_is_refused(place: Place) -> None:
    store = await place.open(max_bytes=2_000_000)
    await judge_one(store)
    await append(store, f"{0xA2:032x}", bytes(3_000_000))
    with pytest.raises(StoreUnavailable):
        await append(store, f"{0xA3:032x}")
    assert (await store.index_size()).rows == 0
    await store.aclose()


async def test_a_revised_answer_has_one_valid_row_and_both_carriers(store: Store) -> None:
    await judge_one(store)
    await settle(store, replace(JOB, record_sha256="other"), slices=2)
    await judge(store, kept(SECOND, supersedes=FIRST), slices=2)
    assert (await valid(store), await carriers(store)) == ([SECOND], [FIRST, SECOND])
