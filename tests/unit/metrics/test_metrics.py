"""Every metric of our own: its number, what it skips, and what it costs. Worked by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ragtrace.errors import ConfigError, JudgeCutOff, JudgeUnavailable
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.judge_forms import VerifyInput
from ragtrace.metrics import Faithfulness, RagScore, StepLimits, metric_named
from ragtrace.metrics.answers import diagnose
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    Chunk,
    Diagnosis,
    Direction,
    Gap,
    JudgeIdentity,
    Label,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Usage,
)
from ragtrace.pipeline import Evaluator, evaluate
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
        {"text": f"Claim {word}.", "sentences": [n + 1], "relevance": worth[relevance[n : n + 1] or "d"]}
        for n, word in enumerate(VOCABULARY[: len(claims)])
    ]
    chunks = {f"Chunk {VOCABULARY[n]}.": grade for n, grade in enumerate(grades)}
    script = {"answers": {"Claim alpha": {"claims": stated}}, "claims": verdicts, "chunks": chunks}
    return ScriptedJudge(Script.model_validate(script))


async def measured(name: str, given: RagRecord, judge: Any, **settings: Any) -> MetricResult:
    [result] = (await evaluate(given, metrics=[metric_named(name, **settings)], judge=judge)).results
    return result


async def test_faithfulness_is_the_share_of_supported_claims() -> None:
    for verdicts, score, lenient, label, explanation in [
        ("SS", 1.0, 1.0, "pass", "all 2 claims supported"),
        ("SC", 0.5, 0.5, "fail", "1 of 2 claims contradicted"),
        ("SN", 0.5, 1.0, "fail", "1 of 2 claims unsupported"),
        ("SCNN", 0.25, 0.75, "fail", "1 of 4 claims contradicted, 2 unsupported"),
        ("S", 1.0, 1.0, "pass", "1 claim supported"),
    ]:
        result = await measured("faithfulness", record(claims=len(verdicts)), judge(verdicts))
        assert (result.score, result.details["lenient"]) == (score, lenient), verdicts
        assert (result.label, result.explanation) == (label, explanation), verdicts


async def test_a_score_about_little_of_the_answer_says_so() -> None:
    script = {"answers": {"A one": {"claims": ["A one."]}}, "claims": {"A one.": "supported"}}
    given = replace(record(), answer="A one. B two. C three.")
    result = await measured("faithfulness", given, ScriptedJudge(Script.model_validate(script)))
    assert result.explanation == "1 claim supported, drawn from only 33% of the sentences"


async def test_fewer_verdicts_than_claims_never_raise_the_score() -> None:
    words = judge("SNN")

    def never_ends_the_third(request: JudgeRequest[Any]) -> Any:
        if isinstance(request.inputs, VerifyInput) and any(c.number == 3 for c in request.inputs.claims):
            raise JudgeCutOff("cut off")
        return words.reply_to(request)

    result = await measured("faithfulness", record(claims=3), ScriptedJudge(never_ends_the_third))
    assert (result.score, result.details["lower_bound"]) == (0.5, pytest.approx(1 / 3))
    assert result.details["coverage"] == pytest.approx(2 / 3)
    assert result.explanation == "1 of 3 claims unsupported, 1 unjudged"


async def test_nothing_to_judge_is_a_reason_and_no_score() -> None:
    for changes, reason in [
        ({"answer": None}, SkipReason.NO_CONTENT),
        ({"answer": " \n"}, SkipReason.NO_CONTENT),
        ({"chunks": ()}, SkipReason.NO_RETRIEVAL),
        ({"chunks": (Chunk(id="a", text=None),)}, SkipReason.NO_CONTENT),
        ({"chunks": (Chunk(id="a", text="cut of", truncated=True),)}, SkipReason.TRUNCATED),
        ({"gaps": (Gap(part=Part.CONTEXT, reason=SkipReason.REDACTED, detail="d"),)}, SkipReason.REDACTED),
        ({"answer": "I cannot answer that question."}, SkipReason.REFUSAL),
        ({"answer": "Here are the dates:"}, SkipReason.NO_CLAIMS),
        ({"answer": "..."}, SkipReason.NO_CLAIMS),
    ]:
        result = await measured("faithfulness", replace(record(), **changes), ScriptedJudge())
        assert (result.score, result.skip_reason, result.label) == (None, reason, Label.SKIPPED), changes
        assert result.explanation, changes


async def test_truncated_text_is_judged_only_on_request_and_marked() -> None:
    gap = Gap(part=Part.ANSWER, reason=SkipReason.TRUNCATED, detail="cut at 2,048 bytes")
    given = replace(record(), gaps=(gap,))
    skipped = await evaluate(given, judge=ScriptedJudge())
    judged = await evaluate(given, metrics=[Faithfulness(judge_truncated=True)], judge=ScriptedJudge())
    assert (skipped.results[0].skip_reason, skipped.input_truncated) == (SkipReason.TRUNCATED, False)
    assert (judged.results[0].skip_reason, judged.input_truncated) == (None, True)
    assert judged.evaluator_version != skipped.evaluator_version


async def test_an_answer_beyond_the_limits_is_judged_in_part_and_marked() -> None:
    evaluation = await evaluate(record(claims=4), judge=ScriptedJudge(), limits=StepLimits(max_sentences=2))
    assert evaluation.results[0].counts.total == 2
    assert evaluation.input_truncated


class Broken(Faithfulness):
    """Fails in a way nobody foresaw."""

    name = "broken"

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricResult:
        raise KeyError(record.answer)


async def test_a_broken_metric_fails_alone_and_tells_no_content(caplog: pytest.LogCaptureFixture) -> None:
    evaluation = await evaluate(record(), metrics=[Broken(), "faithfulness"], judge=ScriptedJudge())
    [failure] = evaluation.failures
    assert failure.error_type == "KeyError"
    assert "alpha" not in failure.message + caplog.text
    assert "broken" in caplog.text
    assert len(evaluation.results) == 1


async def test_the_input_digest_follows_what_the_judge_sees() -> None:
    given = record(chunks=2)
    others = (replace(given, chunks=given.chunks[::-1]), replace(given, id="other", session_id="s"))
    digests = [(await evaluate(each, judge="scripted")).input_sha256 for each in (given, *others)]
    assert digests[0] == digests[2] != digests[1]


def test_the_version_changes_with_whatever_gives_the_result() -> None:
    base = Evaluator(metrics=[Faithfulness()], judge=ScriptedJudge())
    both = replace(base, metrics=[Faithfulness(), Broken()])
    others = [
        replace(base, metrics=[Faithfulness(threshold=0.7)]),
        replace(base, judge=LexicalJudge()),
        replace(base, limits=StepLimits(claims_per_call=5)),
        both,
    ]
    assert len({each.version for each in (base, *others)}) == 5
    assert base.version == replace(base, judge=ScriptedJudge()).version
    assert both.version == replace(base, metrics=[Broken(), Faithfulness()]).version


def test_an_unknown_metric_is_answered_with_those_there_are() -> None:
    for name, profile in [("faithfullness", "ragtrace"), ("faithfulness", "nobody")]:
        with pytest.raises(ConfigError, match=r"choose from.*faithfulness"):
            metric_named(name, profile=profile)


async def test_hallucination_passes_low_and_tells_conflict_from_silence() -> None:
    result = await measured("hallucination", record(claims=4), judge("SCNN"))
    assert (result.score, result.direction, result.label) == (0.25, Direction.LOWER_IS_BETTER, "fail")
    assert (result.details["unsupported_share"], result.details["ungrounded_share"]) == (0.5, 0.75)
    assert result.explanation == "1 of 4 claims contradicted"
    silent = await measured("hallucination", record(claims=4), judge("SSNN"))
    assert (silent.score, silent.label) == (0.0, "pass")


async def test_a_sentence_is_grounded_only_if_all_its_claims_are() -> None:
    claims = [
        {"text": "Heading", "sentences": [1], "kind": "meta"},
        {"text": "A", "sentences": [2]},
        {"text": "B", "sentences": [2]},
        {"text": "A and D", "sentences": [2, 4]},
        {"text": "C", "sentences": [3]},
    ]
    verdicts = {"A": "supported", "B": "contradicted", "A and D": "supported", "C": "supported"}
    script = Script.model_validate({"answers": {"Heading": {"claims": claims}}, "claims": verdicts})
    given = replace(record(), answer="Heading\n\nA is, and B is. C is here. D is there.")
    result = await measured("groundedness", given, ScriptedJudge(script))
    assert result.score == pytest.approx(2 / 3)
    assert [(v.claim.text, v.label.value) for v in result.verdicts] == [
        ("A is, and B is.", "contradicted"),
        ("C is here.", "supported"),
        ("D is there.", "supported"),
    ]


async def test_chunks_are_counted_and_ranked() -> None:
    for grades, precision, share, relevance in [
        ([2, 0, 2], (1 + 2 / 3) / 2, 2 / 3, 2 / 3),
        ([0, 2], 0.5, 0.5, 0.5),
        ([1, 1], 0.0, 0.0, 0.5),
        ([0, 0, 0], 0.0, 0.0, 0.0),
        ([1, 2, 0, 2], (1 / 2 + 2 / 4) / 2, 0.5, 5 / 8),
    ]:
        given, scripted = record(chunks=len(grades)), judge(grades=grades)
        assert (await measured("context_precision", given, scripted)).score == pytest.approx(precision)
        assert (await measured("chunk_precision", given, scripted)).score == pytest.approx(share), grades
        assert (await measured("context_relevance", given, scripted)).score == pytest.approx(relevance)


async def test_a_chunk_without_text_is_unjudged_and_left_out_of_the_ranking() -> None:
    empty = Chunk(id="empty", text=None, rank=0)
    given = replace(record(), chunks=(replace(record().chunks[0], rank=1), empty))
    result = await measured("context_precision", given, judge(grades=[2]))
    assert (result.score, result.details["coverage"]) == (1.0, 0.5)
    assert [verdict.chunk_id for verdict in result.chunk_verdicts] == ["empty", "c0"]
    assert result.chunk_verdicts[0].reason == "the chunk has no text"


async def test_recall_counts_the_sentences_that_code_numbered() -> None:
    result = await measured("context_recall", record(reference=4), judge(truths="SSCN"))
    assert result.score == 0.5
    assert [v.claim.text for v in result.verdicts] == [f"Truth {word}." for word in VOCABULARY]
    told = "of the reference: 1 of 4 sentences contradicted, 1 unsupported; score 0.5, threshold 0.5"
    assert result.explanation == told


async def test_statements_that_serve_the_question_are_counted() -> None:
    for relevance, score, direct in [("dd", 1.0, 1.0), ("dsi", 2 / 3, 1 / 3), ("ii", 0.0, 0.0)]:
        given, scripted = record(claims=len(relevance)), judge("S" * len(relevance), relevance=relevance)
        result = await measured("answer_relevance", given, scripted)
        assert (result.score, result.details["direct"]) == (pytest.approx(score), pytest.approx(direct))
        assert scripted.calls == {"extract": 1, "relevance": 1}, relevance


async def test_the_lexical_judge_invents_no_relevance_and_no_contradiction() -> None:
    evaluation = await evaluate(record(), metrics=OWN, judge=LexicalJudge())
    absent = {result.metric for result in evaluation.results if result.score is None}
    assert absent >= {"answer_relevance", *FIVE[3:], "chunk_precision", "rag_score", "hallucination"}
    assert not evaluation.failures


@dataclass
class Vectors:
    """An embedder with a vector for each text."""

    by_text: dict[str, tuple[float, ...]]
    identity = JudgeIdentity(provider="table", model="table")

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        usage = Usage(calls=1, input_tokens=len(texts))
        return Embeddings(vectors=tuple(self.by_text[text] for text in texts), usage=usage)

    async def aclose(self) -> None:
        pass


async def similarity(vectors: dict[str, tuple[float, ...]]) -> Any:
    scripted = ScriptedJudge(Script(questions={"Claim alpha": list(vectors)}))
    embedder = Vectors({"What is what?": (1.0, 0.0), **vectors})
    evaluation = await evaluate(record(), metrics=["question_similarity"], judge=scripted, embedder=embedder)
    return evaluation.outcomes[0]


async def test_question_similarity_is_the_mean_cosine_or_no_score() -> None:
    result = await similarity({"Same?": (2.0, 0.0), "Other?": (0.0, 3.0)})
    assert (result.score, result.details["cosine"], result.usage.calls) == (0.5, 0.5, 2)
    result = await similarity({"Opposite?": (-1.0, 0.0)})
    assert (result.score, result.skip_reason) == (None, SkipReason.OUT_OF_RANGE)
    assert result.details["cosine"] == -1.0
    for vector in ((0.0, 0.0), (float("nan"), 1.0), (1.0, 0.0, 0.0)):
        outcome = await similarity({"Odd?": vector})
        assert outcome.error_type == "judge_nonsense"


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
    weighed = RagScore(weights={"faithfulness": 0.5, "chunk_precision": 0.5})
    [result] = (await evaluate(record(), metrics=[weighed], judge=judge("C"))).results
    assert result.score == 0.5
    assert weighed.version != RagScore().version


def test_weights_that_are_no_shares_are_refused() -> None:
    for weights in [{"faithfulness": 0.5}, {"faithfulness": 1.5, "chunk_precision": -0.5}, {"beauty": 1.0}]:
        with pytest.raises(ConfigError, match="rag_score"):
            RagScore(weights=weights)


async def test_a_missing_part_leaves_no_rag_score_but_says_which() -> None:
    given = replace(record(), answer="Which one do you mean?")
    result = await measured("rag_score", given, judge(grades=[0]))
    assert (result.score, result.skip_reason) == (None, SkipReason.MISSING_PART)
    assert "no faithfulness (no_claims" in result.explanation
    assert (result.diagnosis, result.details["chunk_precision"]) == (None, 0)


def test_the_quadrant_says_where_a_call_fails() -> None:
    assert diagnose(0.5, 0.5) is Diagnosis.HEALTHY
    assert diagnose(0.9, 0.4) is Diagnosis.GENERATION_PROBLEM
    assert diagnose(0.4, 0.9) is Diagnosis.RETRIEVAL_NOISE
    assert diagnose(0.0, 0.0) is Diagnosis.RETRIEVAL_FAILURE
    assert diagnose(None, 1.0) is diagnose(1.0, None) is None


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


async def test_metrics_share_steps_and_each_is_charged_for_those_it_used() -> None:
    evaluation = await evaluate(record(reference=1), metrics=OWN, judge=judge(truths="S"))
    calls = {result.metric: result.usage.calls for result in evaluation.results}
    claims = dict.fromkeys(("faithfulness", "hallucination", "groundedness", "answer_relevance"), 2)
    assert calls == {**dict.fromkeys(OWN, 1), **claims, "rag_score": 4}
    assert evaluation.usage.calls == 5
    citing = replace(record(chunks=2, reference=1), answer="Claim alpha [1].", reference_chunk_ids=("c1",))
    criteria = [metric_named(name, criterion=f"It is {name}") for name in ("short", "kind", "polite")]
    scripted = judge(truths="S", grades=(2, 0))
    assert not (await evaluate(citing, metrics=[*OWN, *LATER, *criteria], judge=scripted)).failures
    # claims by the chunks, of which the first is cited, and by the reference; the reference by the answer
    once = dict.fromkeys(("extract", "relevance", "chunks", "recall", "criteria"), 1)
    assert scripted.calls == {**once, "verify": 3}


async def test_a_step_that_fails_takes_only_its_metrics_with_it() -> None:
    words = judge(truths="S")

    def without_chunks(request: JudgeRequest[Any]) -> Any:
        if request.step == "chunks":
            raise JudgeUnavailable("down")
        return words.reply_to(request)

    evaluation = await evaluate(record(reference=1), metrics=OWN, judge=ScriptedJudge(without_chunks))
    failed = {failure.metric for failure in evaluation.failures}
    assert failed == {"context_precision", "context_relevance", "chunk_precision", "rag_score"}
    assert all(failure.retryable for failure in evaluation.failures)
    assert all(result.score is not None for result in evaluation.results)


async def test_a_metric_is_skipped_without_what_it_needs_and_only_then() -> None:
    for part, changes, reason in [
        (Part.QUESTION, {"question": " "}, SkipReason.NO_CONTENT),
        (Part.ANSWER, {"answer": None}, SkipReason.NO_CONTENT),
        (Part.CONTEXT, {"chunks": ()}, SkipReason.NO_RETRIEVAL),
        (Part.REFERENCE, {"reference": None}, SkipReason.NO_REFERENCE),
    ]:
        given = replace(record(reference=1), **changes)
        evaluation = await evaluate(given, metrics=OWN, judge=judge(truths="S"))
        for result in evaluation.results:
            is_needed = part in metric_named(result.metric).needs
            assert (result.skip_reason is reason) == (result.score is None) == is_needed


def test_a_metric_is_found_by_what_other_tools_call_it() -> None:
    assert metric_named("answer_relevancy").name == "answer_relevance"
    assert metric_named("contextual_precision").name == "context_precision"
    assert metric_named("context_utilization").name == "context_precision"
    assert metric_named("contextual_recall").name == "context_recall"
    assert metric_named("contextual_relevancy").name == "context_relevance"
    assert metric_named("response_groundedness").name == "groundedness"
