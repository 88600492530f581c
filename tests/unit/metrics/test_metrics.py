"""Every metric of our own: its number, what it skips, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ragtrace.errors import ConfigError, JudgeUnavailable
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.metrics import RagScore, metric_named
from ragtrace.metrics.answers import diagnose
from ragtrace.model import (
    Chunk,
    Diagnosis,
    Direction,
    Gap,
    JudgeIdentity,
    MetricFailure,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Usage,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import Embeddings, JudgeReply, JudgeRequest

FIVE = ("faithfulness", "hallucination", "answer_relevance", "context_precision", "context_relevance")
OWN = (*FIVE, "chunk_precision", "context_recall", "groundedness", "rag_score")
LATER = (
    *("citation_precision", "citation_recall", "factual_correctness", "noise_sensitivity"),
    *("retrieval_recall", "retrieval_mrr", "retrieval_ndcg"),
)
WORDS = {"S": "supported", "C": "contradicted", "N": "not_mentioned"}
VOCABULARY = ("alpha", "beta", "gamma", "delta")


def record(claims: int = 1, chunks: int = 1, reference: int = 0) -> RagRecord:
    """Make a record whose sentences a script can tell apart."""
    return RagRecord(
        id="r",
        question="What is what?",
        chunks=tuple(Chunk(id=f"c{n}", text=f"Chunk {VOCABULARY[n]}.", rank=n) for n in range(chunks)),
        answer=" ".join(f"Claim {VOCABULARY[n]}." for n in range(claims)),
        reference=" ".join(f"Truth {VOCABULARY[n]}." for n in range(reference)) or None,
    )


def judge(
    claims: str = "S", grades: Sequence[int] = (2,), truths: str = "", relevance: str = ""
) -> ScriptedJudge:
    """Script the verdicts on claims and truths, and the grades of chunks and statements, in their order."""
    verdicts = {f"Claim {VOCABULARY[n]}.": WORDS[v] for n, v in enumerate(claims)}
    verdicts |= {f"Truth {VOCABULARY[n]}.": WORDS[v] for n, v in enumerate(truths)}
    worth = {"d": "direct", "s": "supporting", "i": "irrelevant"}
    stated = [
        {
            "text": f"Claim {VOCABULARY[n]}.",
            "sentences": [n + 1],
            "relevance": worth[relevance[n : n + 1] or "d"],
        }
        for n in range(len(claims))
    ]
    chunks = {f"Chunk {VOCABULARY[n]}.": grade for n, grade in enumerate(grades)}
    script = {"answers": {"Claim alpha": {"claims": stated}}, "claims": verdicts, "chunks": chunks}
    return ScriptedJudge(Script.model_validate(script))


async def measured(name: str, given: RagRecord, judge: Any, **settings: Any) -> MetricResult:
    [result] = (await evaluate(given, metrics=[metric_named(name, **settings)], judge=judge)).results
    return result


@pytest.mark.parametrize(
    ("name", "verdicts", "score"),
    [
        ("faithfulness", "SCN", 1 / 3),
        ("hallucination", "SCN", 1 / 3),
        ("hallucination", "SSNN", 0.0),
        ("hallucination", "CC", 1.0),
        ("groundedness", "SCN", 1 / 3),
        ("groundedness", "SS", 1.0),
    ],
)
async def test_claims_are_counted(name: str, verdicts: str, score: float) -> None:
    result = await measured(name, record(claims=len(verdicts)), judge(verdicts))
    assert result.score == pytest.approx(score)
    assert result.counts.total == len(verdicts)


async def test_hallucination_passes_low_and_tells_conflict_from_silence() -> None:
    result = await measured("hallucination", record(claims=4), judge("SCNN"))
    assert (result.score, result.direction, result.label) == (0.25, Direction.LOWER_IS_BETTER, "fail")
    silent = await measured("hallucination", record(claims=4), judge("SSNN"))
    assert (silent.score, silent.label) == (0.0, "pass")
    assert result.details["unsupported_share"] == 0.5
    assert result.details["ungrounded_share"] == 0.75
    assert result.explanation == "1 of 4 claims contradicted"


async def test_a_sentence_is_grounded_only_if_all_its_claims_are() -> None:
    script = {
        "answers": {
            "Heading": {
                "claims": [
                    {"text": "Heading", "sentences": [1], "kind": "meta"},
                    {"text": "A", "sentences": [2]},
                    {"text": "B", "sentences": [2]},
                    {"text": "A and D", "sentences": [2, 4]},
                    {"text": "C", "sentences": [3]},
                ]
            }
        },
        "claims": {"A": "supported", "B": "contradicted", "A and D": "supported", "C": "supported"},
    }
    given = replace(record(), answer="Heading\n\nA is, and B is. C is here. D is there.")
    result = await measured("groundedness", given, ScriptedJudge(Script.model_validate(script)))
    assert result.score == pytest.approx(2 / 3)
    assert [(v.claim.text, v.label.value) for v in result.verdicts] == [
        ("A is, and B is.", "contradicted"),
        ("C is here.", "supported"),
        ("D is there.", "supported"),
    ]


@pytest.mark.parametrize(
    ("grades", "precision", "share", "relevance"),
    [
        ([2, 0, 2], (1 + 2 / 3) / 2, 2 / 3, 2 / 3),
        ([0, 2], 0.5, 0.5, 0.5),
        ([2, 2], 1.0, 1.0, 1.0),
        ([1, 1], 0.0, 0.0, 0.5),
        ([0, 0, 0], 0.0, 0.0, 0.0),
        ([1, 2, 0, 2], (1 / 2 + 2 / 4) / 2, 0.5, 5 / 8),
    ],
)
async def test_chunks_are_counted_and_ranked(
    grades: list[int], precision: float, share: float, relevance: float
) -> None:
    given, scripted = record(chunks=len(grades)), judge(grades=grades)
    assert (await measured("context_precision", given, scripted)).score == pytest.approx(precision)
    assert (await measured("chunk_precision", given, scripted)).score == pytest.approx(share)
    assert (await measured("context_relevance", given, scripted)).score == pytest.approx(relevance)


async def test_chunk_verdicts_stand_in_the_order_of_the_ranks() -> None:
    first, second, third = record(chunks=3).chunks
    given = replace(record(), chunks=(third, first, second))
    result = await measured("context_precision", given, judge(grades=[2, 0, 0]))
    assert [(v.chunk_id, v.rank, v.label.value) for v in result.chunk_verdicts] == [
        ("c0", 0, "relevant"),
        ("c1", 1, "irrelevant"),
        ("c2", 2, "irrelevant"),
    ]
    assert result.score == 1.0


async def test_a_chunk_without_text_is_unjudged_and_left_out_of_the_ranking() -> None:
    empty = Chunk(id="empty", text=None, rank=0)
    given = replace(record(), chunks=(empty, replace(record().chunks[0], rank=1)))
    result = await measured("context_precision", given, judge(grades=[2]))
    assert (result.score, result.details["coverage"]) == (1.0, 0.5)
    assert result.chunk_verdicts[0].reason == "the chunk has no text"


async def test_recall_counts_the_sentences_that_code_numbered() -> None:
    result = await measured("context_recall", record(reference=4), judge(truths="SSCN"))
    assert result.score == 0.5
    assert [v.claim.text for v in result.verdicts] == [f"Truth {word}." for word in VOCABULARY]
    assert {v.claim.kind for v in result.verdicts} == {"reference"}
    assert result.explanation == (
        "of the reference: 1 of 4 sentences contradicted, 1 unsupported; score 0.5, threshold 0.5"
    )


@pytest.mark.parametrize(
    ("relevance", "score", "direct"), [("dd", 1.0, 1.0), ("dsi", 2 / 3, 1 / 3), ("ii", 0.0, 0.0)]
)
async def test_statements_that_serve_the_question_are_counted(
    relevance: str, score: float, direct: float
) -> None:
    given, scripted = record(claims=len(relevance)), judge("S" * len(relevance), relevance=relevance)
    evaluation = await evaluate(given, metrics=["answer_relevance"], judge=scripted)
    [result] = evaluation.results
    assert (result.score, result.details["direct"]) == (pytest.approx(score), pytest.approx(direct))
    assert scripted.calls == {"extract": 1, "relevance": 1}


async def test_the_lexical_judge_invents_no_relevance() -> None:
    evaluation = await evaluate(record(), metrics=OWN, judge=LexicalJudge())
    scores = {result.metric: result.score for result in evaluation.results}
    absent = {"answer_relevance", "context_precision", "context_relevance", "chunk_precision", "rag_score"}
    assert {scores[name] for name in absent} == {None}
    assert not evaluation.failures


@dataclass
class Vectors:
    """An embedder with a vector for each text."""

    by_text: dict[str, tuple[float, ...]]
    calls: int = 0
    identity = JudgeIdentity(provider="table", model="table")

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        self.calls += 1
        usage = Usage(calls=1, input_tokens=len(texts))
        return Embeddings(vectors=tuple(self.by_text[text] for text in texts), usage=usage)

    async def aclose(self) -> None:
        pass


async def similarity(vectors: dict[str, tuple[float, ...]]) -> Any:
    questions = [text for text in vectors if text != "What is what?"]
    scripted = ScriptedJudge(Script(questions={"Claim alpha": questions}))
    embedder = Vectors({"What is what?": (1.0, 0.0), **vectors})
    evaluation = await evaluate(record(), metrics=["question_similarity"], judge=scripted, embedder=embedder)
    return evaluation.outcomes[0]


async def test_question_similarity_is_the_mean_cosine() -> None:
    result = await similarity({"Same?": (2.0, 0.0), "Other?": (0.0, 3.0)})
    assert (result.score, result.details["cosine"]) == (0.5, 0.5)
    assert result.usage == replace(result.usage, calls=2)


async def test_a_cosine_below_zero_is_no_score_and_stays_visible() -> None:
    result = await similarity({"Opposite?": (-1.0, 0.0)})
    assert (result.score, result.skip_reason) == (None, SkipReason.OUT_OF_RANGE)
    assert result.details["cosine"] == -1.0


@pytest.mark.parametrize("vector", [(0.0, 0.0), (float("nan"), 1.0), (1.0, 0.0, 0.0)])
async def test_vectors_without_an_angle_are_a_failure(vector: tuple[float, ...]) -> None:
    outcome = await similarity({"Odd?": vector})
    assert isinstance(outcome, MetricFailure)
    assert outcome.error_type == "judge_nonsense"


async def test_rounding_does_not_push_a_cosine_out_of_range() -> None:
    result = await similarity({"What is what?": (0.1, 0.7), "Same?": (0.1 * 3, 0.7 * 3)})
    assert result.score == pytest.approx(1.0)


async def test_without_an_embedder_no_judge_is_asked_for_questions() -> None:
    scripted = ScriptedJudge()
    [failure] = (await evaluate(record(), metrics=["question_similarity"], judge=scripted)).failures
    assert (failure.error_type, failure.usage.calls, scripted.requests) == ("judge_unable", 0, [])


async def test_the_rag_score_weighs_its_parts() -> None:
    given, scripted = record(claims=2, chunks=4), judge("SC", grades=[2, 0, 0, 0], relevance="di")
    result = await measured("rag_score", given, scripted)
    assert result.score == pytest.approx(0.4 * 0.5 + 0.3 * 0.5 + 0.3 * 0.25)
    assert result.details == {"faithfulness": 0.5, "answer_relevance": 0.5, "chunk_precision": 0.25}
    assert result.diagnosis is Diagnosis.RETRIEVAL_NOISE
    assert (len(result.verdicts), len(result.chunk_verdicts)) == (2, 4)


async def test_weights_are_configurable_and_make_another_version() -> None:
    metric = RagScore(weights={"faithfulness": 0.5, "chunk_precision": 0.5})
    [result] = (await evaluate(record(), metrics=[metric], judge=judge("C"))).results
    assert result.score == 0.5
    assert metric.version != RagScore().version


@pytest.mark.parametrize(
    "weights", [{"faithfulness": 0.5}, {"faithfulness": 1.5, "chunk_precision": -0.5}, {"beauty": 1.0}]
)
def test_weights_that_are_no_shares_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="rag_score"):
        RagScore(weights=weights)


async def test_a_missing_part_leaves_no_rag_score_but_says_which() -> None:
    given = replace(record(), answer="Which one do you mean?")
    result = await measured("rag_score", given, judge(grades=[0]))
    assert (result.score, result.skip_reason) == (None, SkipReason.MISSING_PART)
    assert "no faithfulness (no_claims" in result.explanation
    assert result.diagnosis is None
    assert result.details["chunk_precision"] == 0


@pytest.mark.parametrize(
    ("precision", "faithfulness", "expected"),
    [
        (0.5, 0.5, Diagnosis.HEALTHY),
        (0.9, 0.4, Diagnosis.GENERATION_PROBLEM),
        (0.4, 0.9, Diagnosis.RETRIEVAL_NOISE),
        (0.0, 0.0, Diagnosis.RETRIEVAL_FAILURE),
        (None, 1.0, None),
        (1.0, None, None),
    ],
)
def test_the_quadrant_says_where_a_call_fails(
    precision: float | None, faithfulness: float | None, expected: Diagnosis | None
) -> None:
    assert diagnose(precision, faithfulness) is expected


async def test_only_what_is_asked_about_claims_waits_for_another_step() -> None:
    waiting = asyncio.Barrier(3)  # breaks the test by its time-out unless three requests wait at once

    class Patient(ScriptedJudge):
        async def ask(self, request: JudgeRequest[Any]) -> JudgeReply[Any]:
            if request.step not in ("verify", "relevance"):
                await waiting.wait()
            return await super().ask(request)

    scripted = Patient()
    await evaluate(record(reference=1), metrics=OWN, judge=scripted)
    assert {request.step for request in scripted.requests[:3]} == {"extract", "chunks", "recall"}
    assert {request.step for request in scripted.requests[3:]} == {"verify", "relevance"}


async def test_a_metric_is_charged_for_the_steps_it_used() -> None:
    evaluation = await evaluate(record(reference=1), metrics=OWN, judge=judge(truths="S"))
    calls = {result.metric: result.usage.calls for result in evaluation.results}
    assert calls == {
        "faithfulness": 2,
        "hallucination": 2,
        "groundedness": 2,
        "answer_relevance": 2,
        "context_precision": 1,
        "context_relevance": 1,
        "chunk_precision": 1,
        "context_recall": 1,
        "rag_score": 4,
    }
    assert evaluation.usage.calls == 5


async def test_later_metrics_share_the_steps_of_the_others() -> None:
    citing = replace(record(chunks=2, reference=1), answer="Claim alpha [1].", reference_chunk_ids=("c1",))
    criteria = [metric_named(name, criterion=f"It is {name}") for name in ("short", "kind", "polite")]
    scripted = judge(truths="S", grades=(2, 0))
    evaluation = await evaluate(citing, metrics=[*OWN, *LATER, *criteria], judge=scripted)
    assert not evaluation.failures
    # of claims: by the chunks, of which the first is cited, and by the reference; and of the reference by the
    # answer
    assert scripted.calls == {
        "extract": 1,
        "relevance": 1,
        "chunks": 1,
        "recall": 1,
        "verify": 3,
        "criteria": 1,
    }


async def test_a_step_that_fails_takes_only_its_metrics_with_it() -> None:
    words = judge(truths="S")

    def without_chunks(request: JudgeRequest[Any]) -> Any:
        if request.step == "chunks":
            raise JudgeUnavailable("down")
        return words.reply_to(request)

    evaluation = await evaluate(record(reference=1), metrics=OWN, judge=ScriptedJudge(without_chunks))
    assert {failure.metric for failure in evaluation.failures} == {
        "context_precision",
        "context_relevance",
        "chunk_precision",
        "rag_score",
    }
    assert all(failure.retryable for failure in evaluation.failures)
    assert all(result.score is not None for result in evaluation.results)


@pytest.mark.parametrize(
    ("part", "changes", "reason"),
    [
        (Part.QUESTION, {"question": " "}, SkipReason.NO_CONTENT),
        (Part.ANSWER, {"answer": None}, SkipReason.NO_CONTENT),
        (Part.CONTEXT, {"chunks": ()}, SkipReason.NO_RETRIEVAL),
        (Part.REFERENCE, {"reference": None}, SkipReason.NO_REFERENCE),
    ],
)
async def test_a_metric_is_skipped_without_what_it_needs_and_only_then(
    part: Part, changes: dict[str, Any], reason: SkipReason
) -> None:
    given = replace(record(reference=1), **changes)
    evaluation = await evaluate(given, metrics=OWN, judge=judge(truths="S"))
    for result in evaluation.results:
        is_needed = part in metric_named(result.metric).needs
        assert (result.skip_reason is reason) == (result.score is None) == is_needed


async def test_noted_gaps_and_refusals_are_reasons_too() -> None:
    gap = Gap(part=Part.CONTEXT, reason=SkipReason.EMPTY_RETRIEVAL, detail="nothing was found")
    result = await measured("chunk_precision", replace(record(), gaps=(gap,), chunks=()), judge())
    assert (result.skip_reason, result.explanation) == (SkipReason.EMPTY_RETRIEVAL, "nothing was found")
    refusing = replace(record(), answer="I cannot answer that question.")
    for name in ("faithfulness", "hallucination", "groundedness", "answer_relevance"):
        assert (await measured(name, refusing, ScriptedJudge())).skip_reason is SkipReason.REFUSAL


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("answer_relevancy", "answer_relevance"),
        ("contextual_precision", "context_precision"),
        ("context_utilization", "context_precision"),
        ("contextual_recall", "context_recall"),
        ("contextual_relevancy", "context_relevance"),
        ("response_groundedness", "groundedness"),
    ],
)
def test_a_metric_is_found_by_what_other_tools_call_it(theirs: str, ours: str) -> None:
    assert metric_named(theirs).name == ours
