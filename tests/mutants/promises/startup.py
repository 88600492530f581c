"""What the program imports before a command runs."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ERRORS: Final = "ragtrace/errors.py"
_TESTS: Final = "tests/integration/cli/test_startup.py"
_LIBRARY: Final = "test_a_command_of_the_library_imports_nothing_that_only_a_run_needs"

MUTANTS: Final = (
    Mutant(
        promise="start-up",
        breaks="errors bring the value types",
        file=_ERRORS,
        old="from ragtrace.durations import bounded_wait_s",
        new="import ragtrace.model\nfrom ragtrace.durations import bounded_wait_s",
        tests=(f"{_TESTS}::{_LIBRARY}[evaluate-wrong option]",),
    ),
)
