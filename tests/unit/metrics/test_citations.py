"""Citations: which marks are read, what they lead to, and whether it supports the claim. Worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import MetricResult, RagRecord, SkipReason
from ragtrace.pipeline import evaluate

CHUNKS = {
    "faq": "Refunds take 14 days.",
    "shop": "The shop is blue.",
    "pets": "Pets may come in. Refunds take 14 days.",
}


async def measured(
    answer: str, name: str = "citation_precision", judge: Any = None, **options: Any
) -> MetricResult:
    record = RagRecord.of(question="How long?", contexts=CHUNKS, answer=answer)
    metric = metric_named(name, **options)
    [result] = (await evaluate(record, metrics=[metric], judge=judge or ScriptedJudge())).results
    return result


async def test_of_four_claims_three_are_cited_and_two_of_them_by_what_says_so() -> None:
    # [1] says 14 days, [3] says pets, [1] says nothing of blue; Anna is not cited: 2/3, and 3/4 cited
    answer = "Refunds take 14 days [1]. Pets may come in [3]. The shop is blue [1]. Ask for Anna."
    result = await measured(answer)
    assert (result.score, result.details["cited_share"]) == (pytest.approx(2 / 3), 3 / 4)
    assert (result.details["marks"], result.details["marks_unknown"]) == (3, 0)
    told = "1 of 3 cited claims not supported by what they cite; score 0.6667, threshold 0.5"
    assert result.explanation == told
    [wrong] = [verdict for verdict in result.verdicts if verdict.label.value == "unsupported"]
    assert (wrong.claim.text, wrong.chunk_ids) == ("The shop is blue [1].", ("faq",))
    assert wrong.reason == "it cites [1], which does not support it"
    # of all four: 2/4
    recall = await measured(answer, "citation_recall")
    assert recall.score == 1 / 2
    assert recall.verdicts[-1].reason == "it cites nothing"


async def test_a_claim_that_the_judge_finds_elsewhere_is_asked_about_the_cited_chunk_alone() -> None:
    # the scripted judge names the first chunk that says it, faq; the third says it too
    judge = ScriptedJudge()
    result = await measured("Refunds take 14 days [3].", judge=judge)
    assert (result.score, judge.calls["verify"]) == (1.0, 2)
    assert result.verdicts[0].chunk_ids == ("pets",)
    assert "The shop is blue" not in judge.requests[-1].user


@pytest.mark.parametrize(
    ("answer", "score", "marks", "unknown"),
    [
        ("Refunds take 14 days [faq].", 1, 1, 0),
        ("Refunds take 14 days [1, 2].", 1, 2, 0),
        ("The shop is blue [1-3].", 1, 3, 0),
        ("The shop is blue [doc-2].", 1, 1, 0),
        ("The shop is blue [Source 2].", 1, 1, 0),
        ("The shop is blue [^2].", 1, 1, 0),
        ("The shop is blue【2】.", 1, 1, 0),
        ("The shop is blue [1]. Refunds take 14 days [0].", 1, 2, 0),  # from 0
        ("The shop is blue. [2] Refunds take 14 days. [1]", 1, 2, 0),
        ("The shop is blue [^a].\n\n[^a]: shop, page 3", 1, 1, 0),
        ("The shop is blue [9].", 0, 1, 1),
        ("The shop is blue [9][2].", 1, 2, 1),
    ],
)
async def test_marks_lead_to_chunks(answer: str, score: float, marks: int, unknown: int) -> None:
    result = await measured(answer)
    found = result.details["marks"], result.details["marks_unknown"]
    assert (result.score, *found) == (score, marks, unknown)


@pytest.mark.parametrize(
    "answer", ["The shop is blue.", "The shop is [very] blue.", "The shop is blue [shop](http://a.b)."]
)
async def test_an_answer_that_cites_nothing_has_no_precision_and_no_recall_of_citations(answer: str) -> None:
    assert (await measured(answer)).skip_reason is SkipReason.NO_CLAIMS
    assert (await measured(answer, "citation_recall")).score == 0


@pytest.mark.parametrize(
    "given", ["faq", [{"start": "0", "end": 3}], [{"end": 3}], [7], [{"start": True, "end": 3}]]
)
def test_citations_of_another_form_are_refused(given: object) -> None:
    with pytest.raises(TypeError, match="`provider_citations` must be a list"):
        RagRecord.of(question="How long?", contexts=CHUNKS, answer="14 days.", provider_citations=given)
