"""Causes: the earliest hop that explains a wrong claim, on evidence that exists, and none where nothing failed."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BLAME: Final = "ragtrace/scoring/blame.py"
_TESTS: Final = "tests/unit/scoring/test_blame.py"

MUTANTS: Final = (
    Mutant(
        promise="blame",
        breaks="a chunk that does not exist is blamed",
        file=_BLAME,
        old="        existing = tuple(chunk_id for chunk_id in chunk_ids if chunk_id in known)\n",
        new="        existing = tuple(chunk_ids)\n        known |= {chunk_id: Chunk(id=chunk_id, text=None) for chunk_id in existing}\n",
        tests=(f"{_TESTS}::test_a_chunk_that_does_not_exist_is_never_blamed",),
    ),
)
