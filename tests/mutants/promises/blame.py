"""Causes: the earliest hop that explains a wrong claim, on evidence that exists, and none where nothing failed."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BLAME: Final = "ragtrace/scoring/blame.py"
_HOPS: Final = "ragtrace/traces/extract/_hops.py"
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
    Mutant(
        promise="blame",
        breaks="a cause is guessed without the grades that could tell it",
        file=_BLAME,
        old="        if self.gold or not (self.is_graded or self.missing_references):\n",
        new="        if self.gold:\n",
        tests=(f"{_TESTS}::test_without_a_reranker_or_grades_nothing_is_guessed",),
    ),
    Mutant(
        promise="blame",
        breaks="a prompt in another form counts as one that has no chunk",
        file=_HOPS,
        old="    if not any(part for part, _ in shown.values()):\n        return {}\n",
        new="",
        tests=(f"{_TESTS}::test_a_prompt_in_another_form_tells_nothing_of_what_was_cut",),
    ),
)
