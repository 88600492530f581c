"""Work once taken is done once: leases, settling, the ledger, the ids of carriers."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_STORE: Final = "collector/ragtrace_collector/store/store.py"
_LEASES: Final = "collector/ragtrace_collector/store/leases.py"
_LEDGER: Final = "collector/ragtrace_collector/store/tables.py"
_ATTACH: Final = "ragtrace/traces/attach.py"
_STORE_TESTS: Final = "tests/conformance/test_work_store.py"
_WRITERS_TESTS: Final = "tests/conformance/test_several_writers.py"
_ATTACH_TESTS: Final = "tests/unit/traces/test_attach.py"
_LEDGER_TESTS: Final = "tests/unit/collector/test_ledger.py"

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
        breaks="an answer is leased to several at once",
        file=_LEASES,
        old="UPDATE job SET state = 'leased', owner = ?",
        new="UPDATE job SET state = 'queued', owner = ?",
        tests=(f"{_STORE_TESTS}::test_a_leased_job_is_not_leased_twice",),
    ),
    Mutant(
        promise="leases",
        breaks="an answer that ended a process is leased beside others",
        file=_LEASES,
        old="    if is_due.fetchone():\n",
        new="    if False:\n",
        tests=(f"{_STORE_TESTS}::test_a_job_that_was_leased_when_a_process_ended_is_leased_alone",),
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
        promise="leases",
        breaks="processes wait for one another in a circle",
        file="collector/ragtrace_collector/store/postgres.py",
        old="                if traces:\n",
        new="                if False:\n",
        tests=(f"{_WRITERS_TESTS}::test_processes_never_wait_for_one_another_in_a_circle",),
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
        breaks="a verdict is finished without its carrier in the outbox",
        file=_STORE,
        old="            _outbox.put(db, self._cipher, items, job=job)\n",
        new="",
        tests=(f"{_STORE_TESTS}::test_finishing_a_job_hands_its_carrier_over_in_the_same_step",),
    ),
    Mutant(
        promise="settling",
        breaks="spans that come late to a settled trace are not looked at",
        file="collector/ragtrace_collector/store/revisions.py",
        old='UNDECIDED: Final = "slices > settled_slices"',
        new='UNDECIDED: Final = "settled_slices = 0 AND slices > settled_slices"',
        tests=(f"{_STORE_TESTS}::test_spans_that_join_a_settled_trace_reopen_it",),
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
        promise="ledger",
        breaks="answers that end stay under where they stood",
        file=_LEDGER,
        old='        _stand("OLD", "-1")\n        + _stand("NEW")\n',
        new='        _stand("NEW")\n',
        tests=(
            "tests/integration/collector/test_numbers_add_up.py::test_spans_and_answers_add_up_at_every_scrape",
        ),
    ),
    Mutant(
        promise="ledger",
        breaks="an account says that it adds up whatever stands in it",
        file="collector/ragtrace_collector/ledger/account.py",
        old="return outbox_items and self.seen == self.pending + self.ended",
        new="return True",
        tests=(f"{_LEDGER_TESTS}::test_an_account_that_was_tampered_with_does_not_add_up",),
    ),
    Mutant(
        promise="ids",
        breaks="a carrier has another id each time",
        file=_ATTACH,
        old="return hashlib.sha256(key.encode()).digest()[:8].hex()",
        new="return __import__('secrets').token_hex(8)",
        tests=(f"{_ATTACH_TESTS}::test_same_evaluation_gives_the_same_bytes",),
    ),
    Mutant(
        promise="ids",
        breaks="another evaluator's carrier takes the place of the first one's",
        file=_ATTACH,
        old='key = "|".join((trace_id, span_id, evaluator_set, evaluator_version, *owner, *revised))',
        new='key = "|".join((trace_id, span_id, evaluator_set, *owner, *revised))',
        tests=(f"{_ATTACH_TESTS}::test_span_id_is_the_hash_of_target_and_evaluator",),
    ),
    Mutant(
        promise="ids",
        breaks="a revision takes the place of the verdict that it supersedes",
        file=_ATTACH,
        old="revised = (revised_sha256,) if revised_sha256 else ()",
        new="revised = ()",
        tests=(
            "tests/integration/collector/test_revisions.py::test_a_revision_has_an_id_of_its_own_and_the_first_carrier_the_one_of_old",
        ),
    ),
    Mutant(
        promise="ids",
        breaks="a carrier stands beside its answer and not under it",
        file=_ATTACH,
        old="        parent_span_id=target.span_id,\n",
        new="        parent_span_id=None,\n",
        tests=(f"{_ATTACH_TESTS}::test_carrier_hangs_under_its_target_and_points_at_it",),
    ),
    Mutant(
        promise="ids",
        breaks="carriers that come back without their scope are judged",
        file="collector/ragtrace_collector/receive/intake.py",
        old="if any(map(may_hold_carriers, self._kept(split, body))):",
        new="if False:",
        tests=(
            "tests/integration/collector/test_loop_guard.py::test_carriers_do_not_multiply_however_often_they_come_back",
        ),
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
        breaks="a clock that is set ahead empties the index",
        file="collector/ragtrace_collector/telemetry/clock.py",
        old="        return min(self._clock.now_ns(), self._began_ns + self._monotonic_ns())\n",
        new="        return self._clock.now_ns()\n",
        tests=("tests/attack/test_clock_ahead.py::test_answers_from_before_and_after_stay_on_the_page",),
    ),
    Mutant(
        promise="clock",
        breaks="a clock that is ahead at the start empties the index",
        file="collector/ragtrace_collector/telemetry/clock.py",
        old="now_ns - newest_ns > _FAR_AHEAD_NS",
        new="False",
        tests=(
            "tests/attack/test_clock_ahead.py::test_a_clock_that_is_far_ahead_at_the_start_deletes_nothing",
        ),
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
