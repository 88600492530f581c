"""An opened answer shows what was written, and what is its reader's."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CARRIER_TESTS: Final = "tests/unit/answers/test_carrier.py"
_SOURCE_TESTS: Final = "tests/unit/answers/test_sources.py"

MUTANTS: Final = (
    Mutant(
        promise="opened answers",
        breaks="a number that is no score is taken for one",
        file="ragtrace/answers/carrier.py",
        old="(score is None or not 0 <= score <= 1)",
        new="score is None",
        tests=(f"{_CARRIER_TESTS}::test_unreadable_score_is_a_failure_and_never_a_number",),
    ),
    Mutant(
        promise="opened answers",
        breaks="a place that is down counts as one that has it no more",
        file="ragtrace/answer_sources/sources.py",
        old="        if down:\n",
        new="        if down and not gone:\n",
        tests=(f"{_SOURCE_TESTS}::test_where_it_looked_is_told",),
    ),
)
