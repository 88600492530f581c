"""Factual correctness, noise sensitivity and retrieval by ids: cases worked by hand."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, Gap, Label, MetricResult, Part, RagRecord, SkipReason
from ragtrace.pipeline import evaluate

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
    assert (result.label, result.explanation) == (
        Label.FAIL,
        "precision 0.33, recall 0.25; score 0.2857, threshold 0.5",
    )
    assert [(v.claim.text, v.label.value) for v in result.verdicts] == [
        ("Refunds take 14 days.", "supported"),
        ("Our shop opened in 1989.", "contradicted"),
        ("Pets may come in.", "unsupported"),
        ("Refunds take 14 days.", "supported"),
        ("Our shop opened in 1998.", "contradicted"),
        ("They need a receipt.", "unsupported"),
        ("Ask for Anna.", "unsupported"),
    ]
    assert result.verdicts[1].reason == "by the reference: the numbers differ"
    assert result.verdicts[5].reason == "the answer does not mention it"
    assert result.usage.calls == 3


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (RECORD.reference, 1.0),
        ("Pets may come in.", 0.0),
        # P = 1, R = 1/4: F1 = 2/5
        ("Refunds take 14 days.", 0.4),
    ],
)
async def test_the_same_text_is_all_correct_and_another_nothing(answer: str, score: float) -> None:
    result = await measured("factual_correctness", replace(RECORD, answer=answer))
    assert result.score == pytest.approx(score)


@pytest.mark.parametrize("name", ["factual_correctness", "noise_sensitivity"])
async def test_without_a_reference_there_is_nothing_to_compare_with(name: str) -> None:
    judge = ScriptedJudge()
    result = await measured(name, replace(RECORD, reference=None), judge)
    assert (result.skip_reason, judge.requests) == (SkipReason.NO_REFERENCE, [])


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


async def test_a_wrong_claim_of_a_relevant_chunk_is_no_noise() -> None:
    trusted = JUDGE.model_copy(update={"chunks": {"opened in 1989": 2, "Refunds": 2, "wrapped": 0}})
    result = await measured("noise_sensitivity", judge=ScriptedJudge(trusted))
    assert (result.score, result.details["relevant"]) == (0, pytest.approx(1 / 3))


def of_ids(ranked: str, wanted: str) -> RagRecord:
    """Make a record of chunks whose ids are letters."""
    chunks = tuple(Chunk(id=letter, text=None, rank=rank) for rank, letter in enumerate(ranked))
    return RagRecord(id="r", question="?", chunks=chunks, answer="!", reference_chunk_ids=tuple(wanted))


@pytest.mark.parametrize(
    ("ranked", "wanted", "k", "recall", "reciprocal", "ndcg"),
    [
        ("ab", "ab", None, 1, 1, 1),
        ("xb", "ab", None, 1 / 2, 1 / 2, (1 / log2(3)) / (1 + 1 / log2(3))),
        ("xyabz", "abc", None, 2 / 3, 1 / 3, (1 / log2(4) + 1 / log2(5)) / (1 + 1 / log2(3) + 1 / log2(4))),
        ("xyabz", "abc", 3, 1 / 3, 1 / 3, (1 / log2(4)) / (1 + 1 / log2(3) + 1 / log2(4))),
        ("aab", "ab", None, 1, 1, (1 + 1 / log2(4)) / (1 + 1 / log2(3))),  # twice the same counts once
        ("abc", "abcdef", 2, 2 / 6, 1, 1),  # no list of two could be better
        ("xyz", "a", None, 0, 0, 0),
        ("", "a", None, 0, 0, 0),
    ],
)
async def test_ids_are_looked_up_in_the_ranking(
    ranked: str, wanted: str, k: int | None, recall: float, reciprocal: float, ndcg: float
) -> None:
    judge, given = ScriptedJudge(), of_ids(ranked, wanted)
    assert (await measured("retrieval_recall", given, judge, k=k)).score == pytest.approx(recall)
    assert (await measured("retrieval_mrr", given, judge, k=k)).score == pytest.approx(reciprocal)
    result = await measured("retrieval_ndcg", given, judge, k=k)
    assert (result.score, result.usage.calls) == (pytest.approx(ndcg), 0)
    assert judge.requests == []


async def test_what_is_missing_is_named() -> None:
    result = await measured("retrieval_recall", of_ids("ax", "abc"))
    assert result.explanation == "2 of 3 reference ids not retrieved: b, c; score 0.3333, threshold 0.5"
    assert result.details["precision"] == 0.5


async def test_without_ids_or_a_known_retrieval_there_is_no_score() -> None:
    assert (await measured("retrieval_recall", of_ids("a", ""))).skip_reason is SkipReason.NO_REFERENCE
    gap = Gap(part=Part.CONTEXT, reason=SkipReason.NO_RETRIEVAL, detail="no contexts")
    given = replace(of_ids("", "a"), gaps=(gap,))
    assert (await measured("retrieval_recall", given)).skip_reason is SkipReason.NO_RETRIEVAL
    with pytest.raises(ConfigError, match="`k` is a whole number from 1 on, not 0"):
        metric_named("retrieval_recall", k=0)
