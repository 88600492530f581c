"""The page of one answer shows the right claims and evidence, nothing of others, and no recorded address."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_PAGE: Final = "collector/ragtrace_collector/ui/answer.py"
_VIEW: Final = "collector/ragtrace_collector/ui/_answer_view.py"
_MACROS: Final = "collector/ragtrace_collector/ui/templates/answer_macros.html"
_TESTS: Final = "tests/integration/collector/test_answer_page.py"

MUTANTS: Final = (
    Mutant(
        promise="answer page",
        breaks="an answer is its reader's, whoever the place says it is of",
        file="collector/ragtrace_collector/ui/security.py",
        old="if opened.key != key or owners - {own}:",
        new="if opened.key != key:",
        tests=(f"{_TESTS}::test_a_source_that_hands_out_another_tenants_answer_is_not_believed",),
    ),
    Mutant(
        promise="answer page",
        breaks="other tenants' answers of the same session are listed",
        file=_PAGE,
        old="return [summary for summary in found if summary.key.tenant == view.key.tenant], ()",
        new="return list(found), ()",
        tests=(f"{_TESTS}::test_the_other_answers_of_the_session_are_listed_in_order",),
    ),
    Mutant(
        promise="answer page",
        breaks="a configured link may be a script",
        file=_VIEW,
        old='if urlsplit(link.template).scheme in ("http", "https"):',
        new="if urlsplit(link.template).scheme:",
        tests=(f"{_TESTS}::test_links_lead_to_the_trace_and_only_to_web_addresses",),
    ),
    Mutant(
        promise="answer page",
        breaks="a recorded text is markup",
        file=_MACROS,
        old="{{ text[:most] }}",
        new="{{ text[:most]|safe }}",
        tests=(f"{_TESTS}::test_hostile_content_in_every_field_stays_text",),
    ),
    Mutant(
        promise="answer page",
        breaks="a quote that was not found is shown as found",
        file=_MACROS,
        old="{% if verdict.quote_verified %}<span",
        new="{% if verdict.quote %}<span",
        tests=(f"{_TESTS}::test_a_quote_that_was_not_found_is_not_said_to_be_verified",),
    ),
    Mutant(
        promise="answer page",
        breaks="of too many claims the first are shown, not the worst",
        file="ragtrace/answers/shown.py",
        old="by_badness = sorted(claims, key=lambda claim: WORST_FIRST.index(claim.verdict.label))",
        new="by_badness = claims",
        tests=(f"{_TESTS}::test_many_claims_are_bounded_and_the_page_says_so",),
    ),
)
