"""A law of the work store: whatever is done to it, nothing is leased twice, and its account adds up."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ragtrace.answers.summary import AnswerKey
from ragtrace.budget import Budget, Limit, Period, Reservation, Spend
from ragtrace.model import Sample
from ragtrace.traces.attach import encode_addition
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace_collector.ledger import TERMINAL, State
from ragtrace_collector.sampling import Decision, SamplingChanges, WindowRow
from ragtrace_collector.store.records import (
    HoldMode,
    Job,
    JudgedInput,
    KeptCarrier,
    QuarantineReason,
    tenant_of,
)
from ragtrace_collector.store.store import Store
from tests.rag_spans import rag_trace
from tests.stores.place import Place
from tests.unit.answers.rows import a_row

T = TypeVar("T")

SINK: Final = "back end"
OTHER: Final = "other"
ROOT: Final = rag_trace(0)[0]
SPANS: Final = tuple(span.span_id for span in rag_trace(0))
TRACES: Final = {
    f"{rag_trace(0)[0].trace_id}": encode(rag_trace(0)),
    f"{rag_trace(1)[0].trace_id}@acme": encode(rag_trace(1)),
    f"{rag_trace(1)[0].trace_id}": encode(rag_trace(1)),
}
ADDITION: Final = encode_addition({"ragtrace.pass": True})
BUDGET: Final = Budget(name="live", limits={Period.MINUTE: Limit(calls=3), Period.DAY: Limit(tokens=100)})
SECOND: Final = 1_000_000_000

traces = st.sampled_from(list(TRACES))
spans = st.sampled_from(SPANS)
ends = st.sampled_from(
    [*map(str, TERMINAL), State.FAILED.because("judge_timeout"), State.INELIGIBLE.because("no_content")]
)
digests = st.sampled_from(["", "one", "other"])
feedback = st.dictionaries(spans | st.just(""), st.sampled_from(["up", "down"]), max_size=1)


def part(trace_id: str) -> TraceSlice:
    ref = SpanRef(span_id=SPANS[0], parent_span_id=None)
    return TraceSlice(trace_id=trace_id, payload=TRACES[trace_id], spans=(ref,))


def kept(job: Job, carrier: str, now_ns: int) -> KeptCarrier:
    summary = replace(
        a_row(),
        key=AnswerKey(job.in_trace, job.span_id, tenant_of(job.trace_id) or job.tenant),
        carrier_span_id=carrier,
        supersedes=job.replaces,
        time_ns=now_ns,
        judged_ns=now_ns,
    )
    return KeptCarrier(summary=summary, payload=encode([replace(ROOT, span_id=carrier)]))


class StagesInAnyOrder(RuleBasedStateMachine):
    """Does to a store what the stages do, in any order, with crashes between."""

    @initialize()
    def open_store(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.folders = 0
        self.place = Place(Path(self.folder.name) / "store.db")
        self.store = self.run(self.place.open(forward_to=[SINK]))
        self.now_ns = 1_000 * SECOND
        self.leased: list[Job] = []
        self.reserved: list[Reservation] = []

    # what the stages do

    @rule(trace=traces, holding=st.sampled_from(HoldMode), is_cut=st.booleans())
    def append(self, trace: str, holding: HoldMode, is_cut: bool) -> None:
        now_ns, cut = self.tick(), (trace,) if is_cut else ()
        forward = {OTHER: b"original"} if holding is HoldMode.OFF else {}
        self.run(self.store.append([part(trace)], forward=forward, now_ns=now_ns, holding=holding, cut=cut))

    @rule(
        trace=traces,
        job=st.none() | spans,
        left_out=st.none() | spans,
        end=ends,
        digest=digests,
        slices=st.none() | st.integers(0, 3),
        moved=st.dictionaries(spans, st.none() | spans, max_size=1),
        keep_spans=st.booleans(),
        goes_on=st.booleans(),
        feedback=feedback,
    )
    def decide(
        self,
        trace: str,
        job: str | None,
        left_out: str | None,
        end: str,
        digest: str,
        slices: int | None,
        moved: dict[str, str | None],
        keep_spans: bool,
        goes_on: bool,
        feedback: dict[str, str],
    ) -> None:
        tenant = trace.partition("@")[2]
        sample = Sample(rule="ratio", rate=0.5, probability=0.5)
        of = {"sample": sample, "tenant": tenant}
        queued = Job(trace_id=trace, span_id=job or "", record_sha256=digest, revisions_left=1, **of)
        outcomes = [Decision(span_id=left_out, left_out=end, **of)] if left_out else []
        now_ns = self.tick()
        self.run(
            self.store.decide_trace(
                trace,
                jobs=[queued] if job else [],
                outcomes=outcomes,
                keep_spans=keep_spans,
                now_ns=now_ns,
                slices=slices,
                moved={span: to for span, to in moved.items() if span != to},
                goes_on=goes_on,
                feedback=feedback,
            )
        )

    @rule(is_late=st.booleans())
    def take(self, is_late: bool) -> None:
        now_ns = self.tick()
        before_ns = now_ns - 5 if is_late else None
        taken = self.run(self.store.take_jobs(100, now_ns=now_ns, seen_before_ns=before_ns))
        keys = [(job.trace_id, job.span_id) for job in (*self.leased, *taken)]
        assert len(keys) == len(set(keys)), "a job is leased twice"
        self.leased += taken

    @precondition(lambda self: self.leased)
    @rule(end=ends, digest=digests, slices=st.integers(0, 3), is_added=st.booleans(), is_kept=st.booleans())
    def finish(self, end: str, digest: str, slices: int, is_added: bool, is_kept: bool) -> None:
        job, now_ns = self.leased.pop(), self.tick()
        carrier = f"{now_ns:016x}"
        judged = JudgedInput(record_sha256=digest, slices=slices) if digest else None
        self.run(
            self.store.finish(
                job,
                end,
                outbox_items={SINK: b"carrier", OTHER: b"carrier"},
                now_ns=now_ns,
                carrier=carrier,
                evaluator="e1",
                addition=ADDITION if is_added else b"",
                judged=judged,
                kept=kept(job, carrier, now_ns) if is_kept else None,
            )
        )

    @precondition(lambda self: self.leased)
    @rule(wait=st.integers(0, 9), failed=st.booleans(), reason=st.sampled_from(["", "judge_timeout"]))
    def postpone(self, wait: int, failed: bool, reason: str) -> None:
        job, due_ns = self.leased.pop(), self.tick() + wait
        if reason:
            self.run(self.store.postpone(job, due_ns=due_ns, reason=reason, failed=failed))
        else:
            self.run(self.store.give_back(job))

    @rule(sink=st.sampled_from([SINK, OTHER]), how=st.sampled_from(["", "unreadable", "refused"]))
    def deliver(self, sink: str, how: str) -> None:
        now_ns = self.tick()

        async def work(store: Store) -> list[bytes]:
            items = await store.outbox_items(sink, 2)
            if how == "refused":
                await store.reject(items, reason="400", now_ns=now_ns)
            else:
                await store.delivered(items, unconfirmed=how)
            return [item.payload for item in items]

        self.run(work(self.store))

    @rule(age=st.integers(0, 20), most_bytes=st.sampled_from([0, 600, 1 << 40]))
    def release(self, age: int, most_bytes: int) -> None:
        now_ns = self.tick()
        self.run(self.store.release(before_ns=now_ns - age, now_ns=now_ns, most_bytes=most_bytes))

    @rule(trace=traces, how=st.sampled_from(["look", "alone", "end", "aside"]))
    def read_trace(self, trace: str, how: str) -> None:
        now_ns = self.tick()
        reading: dict[str, Callable[[Store], Awaitable[Any]]] = {
            "look": lambda store: store.look((trace,)),
            "alone": lambda store: store.look_alone(trace),
            "end": lambda store: store.end_look((trace,)),
            "aside": lambda store: store.set_aside(trace, poison=QuarantineReason.CPU, now_ns=now_ns),
        }
        self.run(reading[how](self.store))

    @rule(age=st.integers(0, 20), older=st.integers(0, 20), most_rows=st.none() | st.integers(0, 3))
    def expire(self, age: int, older: int, most_rows: int | None) -> None:
        now_ns = self.tick()
        self.run(
            self.store.expire(
                decided_before_ns=now_ns - age,
                ended_before_ns=now_ns - age - older,
                began_before_ns=now_ns - 2 * age,
                most_rows=most_rows,
            )
        )

    @rule(calls=st.integers(0, 1), tokens=st.integers(0, 120))
    def reserve(self, calls: int, tokens: int) -> None:
        now_ns, estimate = self.tick(), Spend(calls=calls, tokens=tokens)
        found = self.run(self.store.budget.reserve(BUDGET, estimate, now_ns=now_ns))
        if isinstance(found, Reservation):
            self.reserved.append(found)

    @precondition(lambda self: self.reserved)
    @rule(tokens=st.integers(0, 120))
    def settle(self, tokens: int) -> None:
        self.run(self.store.budget.settle(self.reserved.pop(), Spend(calls=1, tokens=tokens)))

    @rule(seen=st.integers(1, 9))
    def save_sampling(self, seen: int) -> None:
        start_ns = self.tick() // 10 * 10
        changes = SamplingChanges(windows=(WindowRow("minute", start_ns, "acme", seen, 0.5, 0.0, 1),))
        self.run(self.store.sampling.save(changes))
        self.run(self.store.sampling.sums(now_ns=self.now_ns))

    @rule()
    def restart(self) -> None:
        self.run(self.store.aclose())
        self.reopen()

    @rule()
    def crash(self) -> None:
        self.folders += 1
        image = self.place.as_of_now(Path(self.folder.name) / f"image {self.folders}")
        self.run(self.store.aclose())
        self.place = image
        self.reopen()

    def reopen(self) -> None:
        self.store = self.run(self.place.open(forward_to=[SINK]))
        self.leased = []

    # what they must say

    @invariant()
    def the_account_adds_up_and_no_limit_is_exceeded(self) -> None:
        for tenant in (None, "acme"):
            for since_ns in (None, self.now_ns - 10):
                assert self.run(self.store.ledger(tenant, since_ns=since_ns)).adds_up
        for usage in self.run(self.store.budget.status(BUDGET, now_ns=self.now_ns)).left():
            assert usage.limit != "minute_calls" or usage.spent <= usage.most

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def teardown(self) -> None:
        self.run(self.store.aclose())
        self.runner.close()
        self.folder.cleanup()


TestStagesInAnyOrder = pytest.mark.slow(StagesInAnyOrder.TestCase)
TestStagesInAnyOrder.settings = settings(
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
