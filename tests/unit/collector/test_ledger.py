"""The ledger's law: seen is pending and ended, at every reading, whatever is done to the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragtrace import errors
from ragtrace.errors import JudgeError, JudgeOverBudget, NotInTranscript
from ragtrace.model import Sample, SkipReason
from ragtrace_collector.ledger import State, meaning_of, vocabulary
from ragtrace_collector.store.ledger import OTHERS
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store

NO_FAILURES_HERE = {JudgeOverBudget.error_type, NotInTranscript.error_type}
"""The one has a state of its own; only what was kept is ever judged from a transcript."""


def error_types(of: type[JudgeError] = JudgeError) -> set[str]:
    return {of.error_type}.union(
        *(error_types(each) for each in of.__subclasses__() if each.__module__ == errors.__name__)
    )


def test_every_state_failure_and_reason_has_a_meaning_of_its_own() -> None:
    outcomes = {
        *State,
        *map(State.FAILED.because, error_types() - NO_FAILURES_HERE),
        *map(State.INELIGIBLE.because, SkipReason),
    }
    assert len(outcomes) > 30
    assert outcomes - vocabulary().keys() == set()
    assert meaning_of("judged", "of a plug-in's own") == vocabulary()["judged"]


@pytest.mark.slow
async def test_tenants_beyond_a_thousand_have_one_account_and_it_adds_up(tmp_path: Path) -> None:
    store = await Store.open(SqliteFile(tmp_path / "store.db"), max_bytes=10 << 20)
    sample = Sample(rule="ratio", rate=0.5, probability=0.5)
    jobs = [
        Job(trace_id="t1", span_id=f"s{number}", sample=sample, tenant=f"user {number}")
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
