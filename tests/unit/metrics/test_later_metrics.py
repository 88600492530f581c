"""Citations, references, noise, retrieval by ids and criteria of one's own: cases worked by hand."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

import pytest

from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import CriteriaReply
from ragtrace.metrics import metric_named
from ragtrace.metrics.answers import criterion_named
from ragtrace.model import (
    Chunk,
    Gap,
    Label,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
)
from ragtrace.pipeline import Evaluator, evaluate
from ragtrace.ports import JudgeRequest

RECORD = RagRecord.of(
    question="How long do refunds take?",
    contexts={
        "faq": "Refunds take 14 days. They need a receipt.",
        "old": "Our shop opened in 1989.",
        "new": "Our shop opened in 1998. Gifts are wrapped.",
    },
    answer="Refunds take 14 days. Our shop opened in 1989. Pets may come in.",
    reference="Refunds take 14 days. Our shop opened in 1998. They need a receipt. Ask for Anna.",
)
GRADES = {"faq": 2, "old": 0, "new": 1}
JUDGE = Script.model_validate(
    {"chunks": {chunk.text: GRADES[chunk.id] for chunk in RECORD.chunks if chunk.text}}
)


async def measured(name: str, record: RagRecord = RECORD, judge: Any = None, **options: Any) -> MetricResult:
    metric = metric_named(name, **options)
    [result] = (await evaluate(record, metrics=[metric], judge=judge or ScriptedJudge(JUDGE))).results
    return result


async def test_one_of_three_claims_and_one_of_four_sentences_give_f1_of_two_sevenths() -> None:
    # P: 14 days is in the reference, 1989 contradicts it, pets are not in it: 1/3.
    # R: 14 days is in the answer, 1998 contradicts it, the receipt and Anna are not in it: 1/4.
    # F1 = 2 * 1/3 * 1/4 / (1/3 + 1/4) = (1/6) / (7/12) = 2/7
    result = await measured("factual_correctness")
    assert result.score == pytest.approx(2 / 7)
    assert (result.details["precision"], result.details["recall"]) == (pytest.approx(1 / 3), 1 / 4)
    told = "precision 0.33, recall 0.25; score 0.2857, threshold 0.5"
    assert (result.label, result.explanation) == (Label.FAIL, told)
    labels = "supported contradicted unsupported supported contradicted unsupported unsupported"
    assert [verdict.label.value for verdict in result.verdicts] == labels.split()
    assert result.verdicts[1].reason == "by the reference: the numbers differ"
    assert result.verdicts[5].reason == "the answer does not mention it"
    assert result.usage.calls == 3
    # and the same text is all correct, another is not at all; of P = 1, R = 1/4 it is 2/5
    for answer, score in [(RECORD.reference, 1), ("Pets may come in.", 0), ("Refunds take 14 days.", 0.4)]:
        result = await measured("factual_correctness", replace(RECORD, answer=answer))
        assert result.score == pytest.approx(score)


async def test_without_a_reference_there_is_nothing_to_compare_with() -> None:
    for name in ["factual_correctness", "noise_sensitivity"]:
        judge = ScriptedJudge()
        result = await measured(name, replace(RECORD, reference=None), judge)
        assert (result.skip_reason, judge.requests) == (SkipReason.NO_REFERENCE, []), name


async def test_one_of_three_claims_is_wrong_by_an_irrelevant_chunk() -> None:
    # right: 14 days. Wrong and supported by `old`, whose grade is 0: 1989. Wrong and in no chunk: pets.
    result = await measured("noise_sensitivity")
    assert result.score == pytest.approx(1 / 3)
    assert (result.details["relevant"], result.details["invented"]) == (0, pytest.approx(1 / 3))
    told = "1 of 3 claims wrong by an irrelevant chunk; score 0.3333, threshold 0.5 at most"
    assert (result.label, result.explanation) == (Label.PASS, told)
    [noise] = result.verdicts
    assert (noise.claim.text, noise.label.value) == ("Our shop opened in 1989.", "contradicted")
    assert (noise.chunk_ids, noise.quote) == (("old",), "Our shop opened in 1989")
    assert result.usage.calls == 4
    # a wrong claim of a relevant chunk is no noise
    trusted = JUDGE.model_copy(update={"chunks": {"opened in 1989": 2, "Refunds": 2, "wrapped": 0}})
    result = await measured("noise_sensitivity", judge=ScriptedJudge(trusted))
    assert (result.score, result.details["relevant"]) == (0, pytest.approx(1 / 3))


def of_ids(ranked: str, wanted: str) -> RagRecord:
    """Make a record of chunks whose ids are letters."""
    chunks = tuple(Chunk(id=letter, text=None, rank=rank) for rank, letter in enumerate(ranked))
    return RagRecord(id="r", question="?", chunks=chunks, answer="!", reference_chunk_ids=tuple(wanted))


async def test_ids_are_looked_up_in_the_ranking() -> None:
    for ranked, wanted, k, recall, reciprocal, ndcg in [
        ("ab", "ab", None, 1, 1, 1),
        ("xb", "ab", None, 1 / 2, 1 / 2, (1 / log2(3)) / (1 + 1 / log2(3))),
        ("xyabz", "abc", None, 2 / 3, 1 / 3, (1 / log2(4) + 1 / log2(5)) / (1 + 1 / log2(3) + 1 / log2(4))),
        ("xyabz", "abc", 3, 1 / 3, 1 / 3, (1 / log2(4)) / (1 + 1 / log2(3) + 1 / log2(4))),
        ("aab", "ab", None, 1, 1, (1 + 1 / log2(4)) / (1 + 1 / log2(3))),  # twice the same counts once
        ("abc", "abcdef", 2, 2 / 6, 1, 1),  # no list of two could be better
        ("", "a", None, 0, 0, 0),
    ]:
        judge, given = ScriptedJudge(), of_ids(ranked, wanted)
        expected = {"retrieval_recall": recall, "retrieval_mrr": reciprocal, "retrieval_ndcg": ndcg}
        for name, score in expected.items():
            assert (await measured(name, given, judge, k=k)).score == pytest.approx(score)
        assert judge.requests == [], ranked


async def test_ids_that_are_missing_are_named_and_without_any_there_is_no_score() -> None:
    result = await measured("retrieval_recall", of_ids("ax", "abc"))
    assert result.explanation == "2 of 3 reference ids not retrieved: b, c; score 0.3333, threshold 0.5"
    assert result.details["precision"] == 0.5
    assert (await measured("retrieval_recall", of_ids("a", ""))).skip_reason is SkipReason.NO_REFERENCE
    gap = Gap(part=Part.CONTEXT, reason=SkipReason.NO_RETRIEVAL, detail="no contexts")
    given = replace(of_ids("", "a"), gaps=(gap,))
    assert (await measured("retrieval_recall", given)).skip_reason is SkipReason.NO_RETRIEVAL


async def cited(answer: str, name: str = "citation_precision", judge: Any = None) -> MetricResult:
    chunks = {
        "faq": "Refunds take 14 days.",
        "shop": "The shop is blue.",
        "pets": "Pets may come in. Refunds take 14 days.",
    }
    record = RagRecord.of(question="How long?", contexts=chunks, answer=answer)
    return await measured(name, record, judge or ScriptedJudge())


async def test_of_four_claims_three_are_cited_and_two_of_them_by_what_says_so() -> None:
    # [1] says 14 days, [3] says pets, [1] says nothing of blue; Anna is not cited: 2/3, and 3/4 cited
    answer = "Refunds take 14 days [1]. Pets may come in [3]. The shop is blue [1]. Ask for Anna."
    result = await cited(answer)
    assert (result.score, result.details["cited_share"]) == (pytest.approx(2 / 3), 3 / 4)
    told = "1 of 3 cited claims not supported by what they cite; score 0.6667, threshold 0.5"
    assert result.explanation == told
    [wrong] = [verdict for verdict in result.verdicts if verdict.label.value == "unsupported"]
    assert (wrong.claim.text, wrong.chunk_ids) == ("The shop is blue [1].", ("faq",))
    assert wrong.reason == "it cites [1], which does not support it"
    recall = await cited(answer, "citation_recall")  # of all four: 2/4
    assert (recall.score, recall.verdicts[-1].reason) == (1 / 2, "it cites nothing")


async def test_a_claim_that_the_judge_finds_elsewhere_is_asked_about_the_cited_chunk_alone() -> None:
    judge = ScriptedJudge()  # it names the first chunk that says it, faq; the third says it too
    result = await cited("Refunds take 14 days [3].", judge=judge)
    assert (result.score, judge.calls["verify"]) == (1.0, 2)
    assert result.verdicts[0].chunk_ids == ("pets",)
    assert "The shop is blue" not in judge.requests[-1].user


async def test_marks_lead_to_chunks() -> None:
    for answer, score, marks, unknown in [
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
    ]:
        result = await cited(answer)
        found = result.details["marks"], result.details["marks_unknown"]
        assert (result.score, *found) == (score, marks, unknown), answer
    unknown_mark = await cited("The shop is blue [9].")
    assert unknown_mark.verdicts[0].reason == "it cites [9], and there is no such chunk"
    for answer in ("The shop is blue.", "The shop is [very] blue.", "The shop is blue [shop](http://a.b)."):
        assert (await cited(answer)).skip_reason is SkipReason.NO_CLAIMS
        assert (await cited(answer, "citation_recall")).score == 0


def test_citations_of_another_form_are_refused() -> None:
    for given in ["faq", [{"start": "0", "end": 3}], [{"end": 3}], [7]]:
        with pytest.raises(TypeError, match="`provider_citations` must be a list"):
            RagRecord.of(question="How long?", contexts={}, answer="14 days.", provider_citations=given)


STEPS = RagRecord.of(
    question="How long do refunds take?",
    contexts={"faq": "Refunds take 14 days."},
    answer="Refunds take 14 days. Then call the shop.",
)
TEXTS = {"next_step": "The answer names the next step", "short": "The answer is short", "kind": "It is kind"}
CRITERIA = [metric_named(name, criterion=text) for name, text in TEXTS.items()]


async def test_several_criteria_take_one_call() -> None:
    judge = ScriptedJudge(Script(criteria={TEXTS["next_step"]: True, TEXTS["short"]: True}))
    evaluation = await evaluate(STEPS, metrics=CRITERIA, judge=judge)
    scores = {result.metric: result.score for result in evaluation.results}
    assert scores == {"next_step": 1.0, "short": 1.0, "kind": 0.0}
    assert judge.calls == {"criteria": 1}
    # the operator's words are no material of others, and stand before it
    assert judge.requests[0].user.startswith(
        "criteria:\n[1] The answer names the next step\n[2] The answer is short\n[3] It is kind\n<<question "
    )
    assert "chunk" not in judge.requests[0].user


async def test_a_criterion_that_the_judge_leaves_out_is_asked_for_again_then_an_error() -> None:
    def forgetful(request: JudgeRequest[Any]) -> CriteriaReply:
        reply = ScriptedJudge().reply_to(request)
        assert isinstance(reply, CriteriaReply)
        return CriteriaReply(criteria=reply.criteria[:1])

    judge = ScriptedJudge(forgetful)
    evaluation = await evaluate(STEPS, metrics=CRITERIA, judge=judge)
    assert judge.calls == {"criteria": 2}
    assert {failure.error_type for failure in evaluation.failures} == {"judge_nonsense"}


def test_the_version_of_a_criterion_changes_with_the_text_alone() -> None:
    def version(text: str) -> str:
        return Evaluator(metrics=[metric_named("next_step", criterion=text)], judge=ScriptedJudge()).version

    assert version("Names the next step") == version(" Names  the\nnext step ")
    assert version("Names the next step") != version("Names a next step")


def test_a_name_of_a_criterion_is_given_or_made_of_the_words() -> None:
    whole = "The answer tells the customer what happens next"
    assert criterion_named("polite=It is polite") == ("polite", "It is polite")
    assert criterion_named("Nennt eine Öffnungszeit")[0] == "nennt_eine_offnungszeit"
    assert criterion_named("3 steps") == ("criterion_3_steps", "3 steps")
    assert criterion_named("x" * 50) == ("x" * 40, "x" * 50)
    assert criterion_named(whole) == ("the_answer_tells_the_customer_what", whole)
