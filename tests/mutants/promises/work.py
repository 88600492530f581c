"""Work once taken is done once: leases, settling, the ledger, the ids of carriers."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_STORE: Final = "collector/ragtrace_collector/store/store.py"
_ATTACH: Final = "ragtrace/traces/attach.py"
_STORE_TESTS: Final = "tests/conformance/test_work_store.py"
_WRITERS_TESTS: Final = "tests/conformance/test_several_writers.py"
_ATTACH_TESTS: Final = "tests/unit/traces/test_attach.py"

MUTANTS: Final = (
    Mutant(
        promise="leases",
        breaks="what a killed process had leased is never leased again",
        file="collector/ragtrace_collector/store/writers.py",
        old="crashes = crashes + ? WHERE state = 'leased'",
        new="crashes = crashes + ? WHERE state = 'lost'",
        tests=(f"{_STORE_TESTS}::test_a_lease_ends_with_the_process",),
    ),
    Mutant(
        promise="leases",
        breaks="a process that was missed ends an answer that another one has",
        file=_STORE,
        old="            if is_lost:\n",
        new="            if False:\n",
        tests=(f"{_WRITERS_TESTS}::test_a_verdict_whose_lease_another_process_has_is_dropped",),
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
        file="collector/ragtrace_collector/store/retention.py",
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
        promise="ids",
        breaks="a carrier stands beside its answer and not under it",
        file=_ATTACH,
        old="        parent_span_id=target.span_id,\n",
        new="        parent_span_id=None,\n",
        tests=("tests/conformance/test_carrier.py::test_carrier_is_the_golden_one",),
    ),
    Mutant(
        promise="clock",
        breaks="the index goes by a clock that never goes back",
        file="collector/ragtrace_collector/service/pipeline.py",
        old="began_before_ns=self.calendar.now_ns()",
        new="began_before_ns=now_ns",
        tests=("tests/attack/test_clock_ahead.py::test_answers_from_before_and_after_stay_on_the_page",),
    ),
    Mutant(
        promise="clock",
        breaks="the steady clock forgets the time of the store at a restart",
        file="collector/ragtrace_collector/service/wiring.py",
        old="SteadyClock(clock, not_before_ns=await store.latest_ns())",
        new="SteadyClock(clock)",
        tests=(
            "tests/attack/test_clock_ahead.py::test_a_clock_that_was_set_back_over_a_restart_holds_up_no_retry",
        ),
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
