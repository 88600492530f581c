"""Work once taken is done once: leases, settling, the ledger, the ids of carriers."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_STORE: Final = "collector/ragtrace_collector/store/store.py"
_ATTACH: Final = "ragtrace/traces/attach.py"
_STORE_TESTS: Final = "tests/conformance/test_work_store.py"

MUTANTS: Final = (
    Mutant(
        promise="leases",
        breaks="what a killed process had leased is never leased again",
        file="collector/ragtrace_collector/store/jobs.py",
        old="crashes = crashes + ? WHERE state = 'leased'",
        new="crashes = crashes + ? WHERE state = 'lost'",
        tests=(f"{_STORE_TESTS}::test_a_lease_ends_with_the_process",),
    ),
    Mutant(
        promise="settling",
        breaks="an answer that is settled again is queued again",
        file=_STORE,
        old='" ON CONFLICT (trace_id, span_id) DO NOTHING"',
        new="\" ON CONFLICT (trace_id, span_id) DO UPDATE SET state = 'queued'\"",
        tests=(f"{_STORE_TESTS}::test_a_finished_job_is_not_queued_again",),
    ),
    Mutant(
        promise="settling",
        breaks="spans are forgotten while their answer waits",
        file="collector/ragtrace_collector/store/store.py",
        old="job.trace_id = trace.trace_id AND state != 'ended')\"",
        new="job.trace_id = trace.trace_id AND state = 'none')\"",
        tests=(f"{_STORE_TESTS}::test_a_trace_with_an_open_job_does_not_expire",),
    ),
    Mutant(
        promise="ledger",
        breaks="what was sampled out is not counted",
        file=_STORE,
        old="[self._end_unqueued(db, trace_id, outcome, now_ns=now_ns) for outcome in outcomes]",
        new="[]",
        tests=(
            "tests/integration/collector/test_sampling_rules.py::test_each_answer_is_judged_by_the_rule_that_names_it",
        ),
    ),
    Mutant(
        promise="ids",
        breaks="a carrier has another id each time",
        file=_ATTACH,
        old="return hashlib.sha256(key.encode()).digest()[:8].hex()",
        new="return __import__('secrets').token_hex(8)",
        tests=("tests/conformance/test_carrier.py::test_carrier_is_the_golden_one",),
    ),
    Mutant(
        promise="back-fill",
        breaks="two runs over one progress file both pay",
        file="ragtrace/backfill/progress.py",
        old='("locking_mode = EXCLUSIVE",)',
        new="()",
        tests=(
            "tests/integration/cli/test_backfill.py::test_a_second_run_over_one_progress_file_pays_for_nothing",
        ),
    ),
)
