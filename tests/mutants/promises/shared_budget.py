"""Processes that share a budget over a log spend no more than its limits together."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FOLDER: Final = "collector/ragtrace_collector/store/budget_log"
_LAWS: Final = "tests/unit/collector/test_budget_log.py"
_PROCESSES: Final = "tests/conformance/test_budget_log.py"

MUTANTS: Final = (
    Mutant(
        promise="shared budget",
        breaks="a record that is in the log twice counts twice",
        file=f"{_FOLDER}/table.py",
        old="        return is_new\n",
        new="        return True\n",
        tests=(f"{_PROCESSES}::test_a_record_that_is_written_twice_counts_once",),
    ),
    Mutant(
        promise="shared budget",
        breaks="what is spent in windows that are forgotten is counted nowhere",
        file=f"{_FOLDER}/table.py",
        old="and window.start_ns < min(found)",
        new="and False",
        tests=(f"{_LAWS}::test_a_time_before_all_windows_that_are_kept_is_refused_and_counted_nowhere",),
    ),
    Mutant(
        promise="shared budget",
        breaks="a cost that comes late gives back what was never taken",
        file=f"{_FOLDER}/replica.py",
        old=" if spend.has(record.budget, window))",
        new=")",
        tests=(f"{_LAWS}::test_a_cost_that_comes_after_its_window_was_forgotten_gives_nothing_back",),
    ),
    Mutant(
        promise="shared budget",
        breaks="a process begins with a checkpoint behind which records are missing",
        file=f"{_FOLDER}/replica.py",
        old="if not self._complete_from <= record.as_of",
        new="if not 0 <= record.as_of",
        tests=(f"{_LAWS}::test_a_process_that_begins_behind_a_checkpoint_needs_one_as_of_what_it_has",),
    ),
    Mutant(
        promise="shared budget",
        breaks="what is behind a checkpoint is counted from one record too late",
        file=f"{_FOLDER}/replica.py",
        old="if waited.offset >= record.as_of",
        new="if waited.offset > record.as_of",
        tests=(f"{_LAWS}::test_every_process_decides_the_same_wherever_it_begins",),
        is_slow=True,
    ),
    Mutant(
        promise="shared budget",
        breaks="a request that nobody made stays counted",
        file=f"{_FOLDER}/ledger.py",
        old="            if isinstance(answer, Reservation):\n                self._settle(answer, Spend())\n",
        new="",
        tests=(f"{_PROCESSES}::test_a_request_that_its_caller_gave_up_does_not_stay_counted",),
    ),
    Mutant(
        promise="shared budget",
        breaks="an old release goes on beside a newer one whose records it cannot read",
        file=f"{_FOLDER}/records.py",
        old="        raise NewerRecord(version)\n",
        new="        return None\n",
        tests=(f"{_PROCESSES}::test_a_newer_release_stops_the_older_ones",),
    ),
    Mutant(
        promise="shared budget",
        breaks="the last checkpoint is deleted with what it replaces",
        file=f"{_FOLDER}/ledger.py",
        old="self.budget_log.delete_before(before)",
        new="self.budget_log.delete_before(checkpoint.as_of + 2)",
        tests=(f"{_PROCESSES}::test_what_is_before_the_last_checkpoint_but_one_is_deleted",),
    ),
)
