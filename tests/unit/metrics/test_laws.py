"""Laws that hold for every metric, whatever a judge says."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import (
    ChunksReply,
    ExtractReply,
    QuestionsReply,
    RelevanceReply,
    VerifyReply,
)
from ragtrace.metrics import StepLimits
from ragtrace.model import Chunk, Evaluation, RagRecord, VerdictLabel
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

CHUNKS = ("Refunds take 14 days.", "Shipping is free in Europe, in 2024.", "Refunds take 30 days in Asia.")
METRICS = (
    "faithfulness",
    "hallucination",
    "groundedness",
    "answer_relevance",
    "context_precision",
    "chunk_precision",
    "context_relevance",
    "context_recall",
    "rag_score",
)
RECORD = RagRecord(
    id="r",
    question="How long?",
    chunks=tuple(Chunk(id=f"c{n}", text=text, rank=n) for n, text in enumerate(CHUNKS)),
    answer="Refunds take 14 days. Shipping is free.\n- It was so in 2024!",
    reference="Refunds take 14 days. Ask for them early.",
)

_numbers = st.integers(1, 5)


def _entries(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.fixed_dictionaries({"id": _numbers, **fields}), max_size=6)


_relevance = st.sampled_from(["direct", "supporting", "irrelevant"])
_statements = _entries(
    sentence_ids=st.lists(_numbers, max_size=3),
    text=st.sampled_from(["Refunds take 14 days.", "Free.", " "]) | st.text(max_size=9),
    kind=st.sampled_from(["factual", "factual", "opinion", "meta", "refusal"]),
    relevance=_relevance,
)
_verdicts = _entries(
    chunks=st.lists(_numbers, max_size=3),
    quote=st.sampled_from([*CHUNKS, "14 DAYS", "4 days", "in 20", "“free  in Europe”", "invented", "…", ""]),
    label=st.sampled_from(["supported", "contradicted", "not_mentioned"]),
    reason=st.text(max_size=5),
)
_replies: dict[type[BaseModel], st.SearchStrategy[dict[str, Any]]] = {
    ExtractReply: st.fixed_dictionaries({"claims": _statements, "refusal": st.booleans()}),
    VerifyReply: st.fixed_dictionaries({"verdicts": _verdicts}),
    ChunksReply: st.fixed_dictionaries(
        {"chunks": _entries(reason=st.text(max_size=5), relevance=st.integers(0, 2))}
    ),
    RelevanceReply: st.fixed_dictionaries({"statements": _entries(relevance=_relevance)}),
    QuestionsReply: st.fixed_dictionaries(
        {"questions": st.lists(st.text(max_size=9), max_size=3), "noncommittal": st.booleans()}
    ),
}
_failures = st.sampled_from([JudgeNonsense("what?"), JudgeCutOff("cut")])


def _said(form: type[BaseModel]) -> st.SearchStrategy[list[Any]]:
    reply = _replies[form].map(form.model_validate)
    return st.lists(reply | reply | reply | _failures, min_size=1, max_size=3)


def _judge(*said: list[Any]) -> ScriptedJudge:
    waiting = {form: cycle(replies) for form, replies in zip(_replies, said, strict=True)}

    def respond(request: JudgeRequest[Any]) -> BaseModel:
        reply = next(waiting[request.reply_type])
        if isinstance(reply, Exception):
            raise reply
        return cast(BaseModel, reply)

    return ScriptedJudge(respond)


# drawn beforehand: hypothesis ends a draw by raising, which no task of ours may see
judges = st.builds(_judge, *map(_said, _replies))
limits = st.sampled_from(
    [
        StepLimits(),
        StepLimits(context_chars=40, claims_per_call=2, chunks_per_call=1),
    ]
)


@given(judges, limits)
def test_a_score_is_a_share_or_absent_with_a_reason(judge: ScriptedJudge, limits: StepLimits) -> None:
    evaluation = asyncio.run(evaluate(RECORD, metrics=METRICS, judge=judge, limits=limits))
    assert {outcome.metric for outcome in evaluation.outcomes} == {*METRICS}
    texts = {chunk.id: chunk.text or "" for chunk in RECORD.chunks}
    for failure in evaluation.failures:
        assert failure.error_type in ("judge_nonsense", "judge_cut_off")
    for result in evaluation.results:
        assert (result.score is None) == (result.skip_reason is not None)
        assert result.score is None or 0 <= result.score <= 1
        assert result.explanation
        assert all(value == value for value in result.details.values())
        assert {verdict.chunk_id for verdict in result.chunk_verdicts} <= {"c0", "c1", "c2"}
        for verdict in result.verdicts:
            assert set(verdict.chunk_ids) <= texts.keys()
            assert verdict.quote_verified == (verdict.quote is not None)
            assert verdict.quote is None or verdict.quote in texts[verdict.chunk_ids[0]]
            assert not (verdict.label is VerdictLabel.UNSUPPORTED and verdict.chunk_ids)
        if result.metric == "faithfulness" and result.score is not None:
            assert result.score == result.counts.supported / result.counts.judged
            assert all(0 <= result.details[name] <= 1 for name in ("lenient", "lower_bound", "coverage"))
    assert evaluation.usage.calls == len(judge.requests)


def scores(evaluation: Evaluation) -> dict[str, float]:
    return {result.metric: result.score for result in evaluation.results if result.score is not None}


@given(judges)
def test_readings_of_the_same_verdicts_agree(judge: ScriptedJudge) -> None:
    evaluation = asyncio.run(evaluate(RECORD, metrics=METRICS, judge=judge))
    found, results = scores(evaluation), {result.metric: result for result in evaluation.results}
    if {"faithfulness", "hallucination"} <= found.keys():
        details = results["faithfulness"].details
        assert details["lower_bound"] <= found["faithfulness"] <= details["lenient"]
        assert abs(found["hallucination"] + details["lenient"] - 1) < 1e-9
    if {"chunk_precision", "context_relevance", "context_precision"} <= found.keys():
        lenient = results["chunk_precision"].details["lenient"]
        assert found["chunk_precision"] <= found["context_relevance"] <= lenient
        assert (found["context_precision"] == 0) == (found["chunk_precision"] == 0)
    if "rag_score" in found:
        parts = ("faithfulness", "answer_relevance", "chunk_precision")
        known = results["rag_score"].details
        weighed = sum(w * known[part] for w, part in zip((0.4, 0.3, 0.3), parts, strict=True))
        assert abs(found["rag_score"] - weighed) < 1e-9
        assert all(known[part] == found[part] for part in parts if part in found)


_grades = st.lists(st.integers(0, 2), min_size=1, max_size=5)
_labels = st.lists(st.sampled_from(["supported", "contradicted", "not_mentioned"]), min_size=1, max_size=5)


def scripted(grades: list[int], labels: list[str]) -> ScriptedJudge:
    script = {
        "chunks": {f"chunk {n}x": grade for n, grade in enumerate(grades)},
        "claims": {f"Claim {n}x.": label for n, label in enumerate(labels)},
    }
    return ScriptedJudge(Script.model_validate(script))


def lettered(chunks: list[int], claims: list[int]) -> RagRecord:
    return RagRecord(
        id="r",
        question="What?",
        chunks=tuple(Chunk(id=f"c{n}", text=f"This is chunk {n}x.", rank=at) for at, n in enumerate(chunks)),
        answer=" ".join(f"Claim {n}x." for n in claims),
        reference=" ".join(f"Claim {n}x." for n in claims),
    )


@given(_grades, _labels, st.randoms(use_true_random=False))
def test_the_order_of_claims_and_chunks_changes_no_score_but_that_of_ranks(
    grades: list[int], labels: list[str], random: Any
) -> None:
    async def run(chunks: list[int], claims: list[int]) -> dict[str, float]:
        judge = scripted(grades, labels)
        return scores(await evaluate(lettered(chunks, claims), metrics=METRICS, judge=judge))

    chunks, claims = [*range(len(grades))], [*range(len(labels))]
    first = asyncio.run(run(chunks, claims))
    random.shuffle(chunks)
    random.shuffle(claims)
    second = asyncio.run(run(chunks, claims))
    assert first.keys() == second.keys()
    assert {n: s for n, s in first.items() if n != "context_precision"} == {
        n: s for n, s in second.items() if n != "context_precision"
    }
