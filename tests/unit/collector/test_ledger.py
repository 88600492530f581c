"""The ledger's law: seen is pending and ended, at every reading, whatever is done to the store."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import ragtrace_collector
from ragtrace import errors
from ragtrace.errors import JudgeError, JudgeOverBudget, NotInTranscript
from ragtrace.model import Sample, SkipReason
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace_collector.ledger.outcomes import PENDING, TERMINAL, FinalOutcome, State, meaning_of, vocabulary
from ragtrace_collector.store._accounts import OTHERS
from ragtrace_collector.store.maintenance import send_again
from ragtrace_collector.store.records import Job, Outcome
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store

TRACES = st.sampled_from(["t1", "t2", "t3"])
SPANS = st.lists(st.sampled_from(["s1", "s2", "s3"]), unique=True, max_size=3)
TENANTS = st.sampled_from(["", "acme"])
ENDS = st.sampled_from(
    [str(state) for state in (*TERMINAL, State.SUPERSEDED)]
    + [State.FAILED.because("judge_timeout"), State.INELIGIBLE.because("no_content")]
)
REASONS = st.sampled_from(["judge_timeout", "judge_refused"])


def sample_of(name: str) -> Sample:
    return Sample(rule=name, rate=0.5, probability=0.5)


class TheLedger(RuleBasedStateMachine):
    """Does to a real store what the stages do, and what they must not: compares rows, and rows that went."""

    @initialize()
    def open_store(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store.db"
        self.runner = asyncio.Runner()
        self.store = self.runner.run(Store.open(SqliteFile(self.path), max_bytes=10 << 20))
        self.now_ns = 1
        self.rows: dict[tuple[str, str], tuple[str, str]] = {}
        self.gone: Counter[tuple[str, str]] = Counter()
        self.came = 0

    @rule(trace=TRACES, spans=SPANS, left_out=SPANS, end=ENDS, tenant=TENANTS)
    def settle(self, trace: str, spans: list[str], left_out: list[str], end: str, tenant: str) -> None:
        part = TraceSlice(
            trace_id=trace, payload=b"spans", spans=(SpanRef(span_id="s1", parent_span_id=None),)
        )
        jobs = [Job(trace_id=trace, span_id=each, sample=sample_of("ratio"), tenant=tenant) for each in spans]
        outcomes = [
            Outcome(span_id=each, outcome=end, sample=sample_of("never"), tenant=tenant) for each in left_out
        ]
        self.do(self.store.append([part], forward={"sink": b"original"}, now_ns=self.tick()))
        self.do(
            self.store.decide_trace(trace, jobs=jobs, outcomes=outcomes, keep_spans=True, now_ns=self.tick())
        )

    @rule(end=ENDS, number=st.integers(1, 3))
    def finish(self, end: str, number: int) -> None:
        for job in self.do(self.store.take_jobs(number, now_ns=self.tick())):
            self.do(self.store.finish(job, end, outbox_items={"sink": b"carrier"}, now_ns=self.now_ns))

    @rule(reason=REASONS, delay=st.integers(0, 5))
    def postpone(self, reason: str, delay: int) -> None:
        for job in self.do(self.store.take_jobs(1, now_ns=self.tick())):
            self.do(self.store.postpone(job, due_ns=self.now_ns + delay, reason=reason))

    @rule()
    def lease_and_restart(self) -> None:
        self.do(self.store.take_jobs(2, now_ns=self.tick()))
        self.do(self.store.aclose())
        self.store = self.runner.run(Store.open(SqliteFile(self.path), max_bytes=10 << 20))

    @rule(reject=st.booleans())
    def deliver(self, reject: bool) -> None:
        waiting = self.do(self.store.outbox_items("sink", 2))
        if reject:
            self.do(self.store.reject(waiting, reason="no", now_ns=self.tick()))
        else:
            self.do(self.store.delivered(waiting))

    @rule()
    def send_refused_parcels_again(self) -> None:
        self.runner.run(send_again(SqliteFile(self.path)))

    @rule(trace=TRACES, span=st.sampled_from(["s1", "s2", "s3"]))
    def move_to_another_span(self, trace: str, span: str) -> None:
        moved = {span: None}
        self.do(
            self.store.decide_trace(
                trace, jobs=[], outcomes=[], keep_spans=True, now_ns=self.tick(), moved=moved
            )
        )

    @rule()
    def expire(self) -> None:
        self.do(self.store.expire(decided_before_ns=self.tick(), ended_before_ns=self.now_ns))

    @rule(trace=TRACES)
    def forget_with_what_is_pending(self, trace: str) -> None:
        self.execute("DELETE FROM job WHERE trace_id = ?", trace)

    @rule(trace=TRACES)
    def judge_again(self, trace: str) -> None:
        again = "UPDATE job SET state = 'queued', outcome = '' WHERE state = 'ended' AND trace_id = ?"
        self.execute(again, trace)

    @invariant()
    def adds_up(self) -> None:
        rows = self.read_rows()
        self.came += len(rows.keys() - self.rows.keys())
        for key in self.rows.keys() - rows.keys():
            state, reason = self.rows[key]
            self.gone[(state, reason) if state not in PENDING else ("expired", "retention")] += 1
        self.rows = rows
        expected = Counter(rows.values()) + self.gone
        superseded = expected.pop((State.SUPERSEDED, ""), 0)
        ledger = self.do(self.store.ledger())
        assert ledger.adds_up
        assert (ledger.seen, ledger.superseded) == (self.came - superseded, superseded)
        assert ledger.by(lambda each: f"{each.state}/{each.reason}") == {
            f"{state}/{reason}": number for (state, reason), number in expected.items()
        }

    def read_rows(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Where each answer stands by the rows themselves, which the ledger never reads."""
        with closing(sqlite3.connect(self.path)) as db:
            rows = db.execute("SELECT trace_id, span_id, state, outcome, reason FROM job").fetchall()
        return {(trace, span): stands(*row) for trace, span, *row in rows}

    def do(self, work):  # type: ignore[no-untyped-def]
        return self.runner.run(work)

    def execute(self, statement: str, trace: str) -> None:
        self.do(self.store._commits.submit(lambda db: db.execute(statement, (trace,)).rowcount))

    def tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def teardown(self) -> None:
        self.do(self.store.aclose())
        self.runner.close()
        self.folder.cleanup()


def stands(state: str, outcome: str, reason: str) -> tuple[str, str]:
    if state == "ended":
        ended = FinalOutcome.of(outcome)
        return ended.state, ended.reason
    if state == "queued" and reason:
        return State.POSTPONED, reason
    return state, ""


TestTheLedger = TheLedger.TestCase
TestTheLedger.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("outcome", ["", "queued", "done", "Judged"])
def test_no_answer_ends_in_a_state_without_a_name(outcome: str) -> None:
    with pytest.raises(ValueError, match="is not a final state"):
        FinalOutcome.of(outcome)


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_a_meaning(state: State) -> None:
    assert meaning_of(state, "of a plug-in's own") == vocabulary()[state]


NO_FAILURES_HERE = {JudgeOverBudget.error_type, NotInTranscript.error_type}
"""The one has a state of its own; only what was kept is ever judged from a transcript."""


def error_types(of: type[JudgeError] = JudgeError) -> set[str]:
    return {of.error_type}.union(
        *(error_types(each) for each in of.__subclasses__() if each.__module__ == errors.__name__)
    )


@pytest.mark.parametrize("error_type", sorted(error_types() - NO_FAILURES_HERE))
def test_every_failure_of_a_judge_has_a_meaning_of_its_own(error_type: str) -> None:
    assert State.FAILED.because(error_type) in vocabulary()


@pytest.mark.parametrize("reason", list(SkipReason))
def test_every_reason_to_skip_has_a_meaning_of_its_own(reason: SkipReason) -> None:
    assert State.INELIGIBLE.because(reason) in vocabulary()


SOURCE = "\n".join(path.read_text() for path in Path(ragtrace_collector.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("state", sorted(set(re.findall(r"outcome = '([^'{]+)'", SOURCE))))
def test_every_outcome_that_a_statement_writes_is_a_state(state: str) -> None:
    assert FinalOutcome.of(state)


@pytest.mark.parametrize(
    ("state", "reason"), sorted(set(re.findall(r"State\.([A-Z_]+)\.because\(\"([^\"]+)\"\)", SOURCE)))
)
def test_every_reason_that_the_collector_gives_has_a_meaning_of_its_own(state: str, reason: str) -> None:
    assert State[state].because(reason) in vocabulary()


async def test_tenants_beyond_a_thousand_have_one_account_and_it_adds_up(tmp_path: Path) -> None:
    store = await Store.open(SqliteFile(tmp_path / "store.db"), max_bytes=10 << 20)
    jobs = [
        Job(trace_id="t1", span_id=f"s{number}", sample=sample_of("ratio"), tenant=f"user {number}")
        for number in range(1_005)
    ]
    await store.decide_trace("t1", jobs=jobs, outcomes=[], keep_spans=True, now_ns=1)
    for job in jobs[:2] + jobs[-2:]:
        await store.finish(job, State.JUDGED, outbox_items={}, now_ns=2)
    ledger = await store.ledger()
    await store.aclose()
    by_tenant = ledger.by(lambda account: account.tenant)
    assert (len(by_tenant), by_tenant[OTHERS], by_tenant["user 0"]) == (1_001, 5, 1)
    assert ledger.adds_up
    assert (ledger.seen, ledger.pending, min(each.number for each in ledger.accounts)) == (1_005, 1_001, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET number = number + 1 WHERE state = 'seen'",
        "UPDATE ledger SET number = number - 1 WHERE state = 'queued'",
        "UPDATE outbox SET number = number + 1 WHERE state = 'put'",
        "DELETE FROM outbox WHERE state = 'waiting'",
    ],
)
async def test_an_account_that_was_tampered_with_does_not_add_up(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteFile(path), max_bytes=10 << 20)
    job = Job(trace_id="t1", span_id="s1", sample=sample_of("ratio"))
    await store.decide_trace("t1", jobs=[job], outcomes=[], keep_spans=True, now_ns=1)
    await store.append([], forward={"sink": b"x"}, now_ns=1)
    assert (await store.ledger()).adds_up
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    ledger = await store.ledger()
    await store.aclose()
    assert not ledger.adds_up
