"""What a person says of a verdict is kept, is counted once, and enters averages only if it was asked at random."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FILE: Final = "ragtrace/reviews/file.py"
_AVERAGES: Final = "ragtrace/reviews/averages.py"
_PAGE: Final = "collector/ragtrace_collector/ui/review.py"
_FILE_TESTS: Final = "tests/unit/reviews/test_review_file.py"
_STATISTICS_TESTS: Final = "tests/unit/reviews/test_review_statistics.py"
_PAGE_TESTS: Final = "tests/integration/collector/test_ui_review.py"

MUTANTS: Final = (
    Mutant(
        promise="reviews",
        breaks="one person's review replaces another's",
        file=_FILE,
        old="SET is_current = 0 WHERE {_OF_KEY} AND reviewer = ? AND claim = ?",
        new="SET is_current = 0 WHERE {_OF_KEY} AND ? <> '' AND claim = ?",
        tests=(f"{_FILE_TESTS}::test_a_later_review_of_the_same_person_replaces_the_earlier_one",),
    ),
    Mutant(
        promise="reviews",
        breaks="averages take answers that a person chose",
        file=_AVERAGES,
        old="for review in reviewed.get(answer.key, ()) if review.picked is ReviewPick.RANDOM]",
        new="for review in reviewed.get(answer.key, ())]",
        tests=(f"{_STATISTICS_TESTS}::test_only_a_random_prefix_counts",),
    ),
    Mutant(
        promise="reviews",
        breaks="a token without the permission reviews",
        file=_PAGE,
        old="    if not viewer_of(request).may_review:\n",
        new="    if False:\n",
        tests=(f"{_PAGE_TESTS}::test_a_review_needs_its_permission_and_its_form",),
    ),
)
