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
        breaks="a random review that is changed later leaves the sample",
        file=_FILE,
        old="    picked = ReviewPick.RANDOM if (ReviewPick.RANDOM.value,) in earlier else review.picked\n",
        new="    picked = review.picked\n",
        tests=(f"{_FILE_TESTS}::test_a_random_review_stays_random_when_it_is_changed",),
    ),
    Mutant(
        promise="reviews",
        breaks="a span is forgotten while its back end is down",
        file="ragtrace/reviews/delivery.py",
        old="                except SendRefused as exc:\n",
        new="                except SendRefused as exc:\n                    await self.reviews.delivered([span])\n",
        tests=(f"{_FILE_TESTS}::test_spans_wait_for_a_sink_that_is_down",),
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
        breaks="averages go on after an answer that nobody reviewed",
        file=_AVERAGES,
        old="        if not said:\n            break\n",
        new="        if not said:\n            continue\n",
        tests=(f"{_STATISTICS_TESTS}::test_only_a_random_prefix_counts",),
    ),
    Mutant(
        promise="reviews",
        breaks="a random answer counts with claims left out",
        file=_PAGE,
        old='    if fields.get("queue") == ReviewPick.RANDOM and len(said) < len(view.claims):\n',
        new="    if False:\n",
        tests=(f"{_PAGE_TESTS}::test_a_random_answer_is_reviewed_as_a_whole",),
    ),
    Mutant(
        promise="reviews",
        breaks="a token without the permission reviews",
        file=_PAGE,
        old="    if not viewer_of(request).may_review:\n",
        new="    if False:\n",
        tests=(f"{_PAGE_TESTS}::test_a_review_needs_its_permission_and_its_form",),
    ),
    Mutant(
        promise="reviews",
        breaks="spans of reviews have claim and note although carriers may have no texts",
        file="collector/ragtrace_collector/service/page.py",
        old="content=config.attach.content)",
        new="content=True)",
        tests=(
            "tests/integration/collector/test_ui_service.py::test_spans_of_reviews_have_texts_only_if_carriers_may",
        ),
    ),
)
