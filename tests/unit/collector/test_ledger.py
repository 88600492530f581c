"""The ledger's law: seen is pending and ended, at every reading, whatever is done to the store."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import ragtrace_collector
from ragtrace import errors
from ragtrace.errors import JudgeError, JudgeOverBudget, NotInTranscript
from ragtrace.model import Sample, SkipReason
from ragtrace_collector.ledger import FinalOutcome, State, meaning_of, vocabulary
from ragtrace_collector.store.ledger import OTHERS
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store


def sample_of(name: str) -> Sample:
    return Sample(rule=name, rate=0.5, probability=0.5)


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


@pytest.mark.slow
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
