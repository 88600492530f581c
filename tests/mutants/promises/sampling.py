"""Which answers are judged, with which probability on record, and within which budget."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_POSITION: Final = "ragtrace/sampling.py"
_SAMPLER: Final = "collector/ragtrace_collector/sampling.py"
_SAMPLING_TESTS: Final = "tests/unit/collector/test_sampling.py"
_BUDGET_TESTS: Final = "tests/unit/collector/test_budget.py"
_EXECUTION_TESTS: Final = "tests/integration/collector/test_execution.py"

MUTANTS: Final = (
    Mutant(
        promise="sampling",
        breaks="each process draws its own answers",
        file=_POSITION,
        old='    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()\n',
        new='    digest = hashlib.sha256(f"{hash(trace_id)}".encode()).digest()\n',
        tests=(f"{_SAMPLING_TESTS}::test_every_process_and_version_draws_the_same_answers",),
    ),
    Mutant(
        promise="sampling",
        breaks="the probability on record leaves out what the budget lowered",
        file=_SAMPLER,
        old="return self.throttle * max(self.choice.rate * self.factor, self.floor)\n\n    @property\n"
        "    def keeps(self) -> bool:\n"
        '        """Whether this very answer is kept."""\n'
        "        return self.position < self.probability\n",
        new="return max(self.choice.rate * self.factor, self.floor)\n\n    @property\n"
        "    def keeps(self) -> bool:\n"
        '        """Whether this very answer is kept."""\n'
        "        return self.position < self.throttle * self.probability\n",
        tests=(f"{_SAMPLING_TESTS}::test_a_throttle_lowers_every_rate_and_its_probability",),
    ),
    Mutant(
        promise="sampling",
        breaks="each process judges as many answers a minute as the limit says",
        file="collector/ragtrace_collector/store/sampling.py",
        old="            yield place\n",
        new="            yield from ()\n",
        tests=(
            "tests/conformance/test_several_writers.py::test_a_limit_of_answers_is_one_for_all_processes",
        ),
    ),
    Mutant(
        promise="budget",
        breaks="a request is let through that would exceed a limit",
        file="ragtrace/budget/reserve.py",
        old="exceeded_by(before + estimate))",
        new="exceeded_by(before))",
        tests=(f"{_BUDGET_TESTS}::test_what_exceeds_a_limit_is_refused_until_its_window_ends",),
    ),
    Mutant(
        promise="budget",
        breaks="a restart opens the purse",
        file="collector/ragtrace_collector/store/jobs.py",
        old="    crashed = int(has_crashed)\n",
        new='    crashed = int(has_crashed)\n    db.execute("DELETE FROM spent")\n',
        tests=(f"{_EXECUTION_TESTS}::test_a_restart_does_not_open_the_purse",),
    ),
)
