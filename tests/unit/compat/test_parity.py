"""What users of other tools expect: utilization, refused test cases, and rag_evals' composite."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import ChunksInput
from ragtrace.metrics import metric_named
from ragtrace.model import CompatStatus, MetricOutcome, MetricResult, RagRecord, SkipReason
from ragtrace.pipeline import MetricSpec, evaluate
from ragtrace.ports import FreeText, JudgeRequest
from tests.unit.traces.builders import a_target

CHUNKS = ("We sell shoes.", "Refunds take 14 days.")


async def measured(record: RagRecord, judge: ScriptedJudge, metric: Any) -> MetricOutcome:
    (outcome,) = (await evaluate(record, metrics=[metric], judge=judge)).outcomes
    return outcome


def asked(judge: ScriptedJudge) -> list[str | None]:
    return [request.inputs.reference for request in judge.requests if isinstance(request.inputs, ChunksInput)]


@pytest.mark.parametrize("profile", ["ragas", "ragas-legacy"])
async def test_context_precision_without_a_reference_is_judged_by_the_answer_under_ragas(
    profile: str,
) -> None:
    judge = ScriptedJudge(Script(chunks={"Refunds": 2, "shoes": 0}))
    record = RagRecord.of(question="How long?", contexts=CHUNKS, answer="14 days.")
    metric = metric_named("context_precision", profile=profile)
    result = await measured(record, judge, metric)
    assert isinstance(result, MetricResult)
    assert result.score == pytest.approx(0.5)
    assert asked(judge) == ["14 days."]
    judge = ScriptedJudge(Script(chunks={"Refunds": 2, "shoes": 0}))
    with_reference = RagRecord.of(
        question="How long?", contexts=CHUNKS, answer="14 days.", reference="Two weeks."
    )
    await measured(with_reference, judge, metric)
    assert asked(judge) == ["Two weeks."]


async def test_ragtraces_own_context_precision_takes_the_answer_on_request() -> None:
    judge = ScriptedJudge()
    record = RagRecord.of(question="How?", contexts=CHUNKS, answer="14 days.", reference="Two weeks.")
    metrics = [
        metric_named("context_precision"),
        metric_named("chunk_precision"),
        metric_named("context_precision", against="answer"),
    ]
    evaluation = await evaluate(record, metrics=metrics, judge=judge)
    assert sorted(map(str, asked(judge))) == ["14 days.", "Two weeks."]
    versions = {result.evaluator_version.partition("+")[0] for result in evaluation.results}
    assert versions == {"1", "1-answer"}
    without = await measured(RagRecord.of(question="How?", contexts=CHUNKS, answer=None), judge, metrics[2])
    assert isinstance(without, MetricResult)
    assert without.skip_reason is SkipReason.NO_CONTENT
    with pytest.raises(ConfigError, match="`against` is reference or answer"):
        metric_named("context_precision", against="question")


@pytest.mark.parametrize("metric", ["faithfulness", "hallucination"])
@pytest.mark.parametrize("answer", ["It takes 14 days.", "Hello!"])
async def test_deepevals_rules_give_no_number_without_contexts(metric: str, answer: str) -> None:
    record = RagRecord.of(question="How long?", contexts=(), answer=answer)
    rules = await measured(record, ScriptedJudge(), metric_named(metric, profile="deepeval-4"))
    assert isinstance(rules, MetricResult)
    assert (rules.score, rules.skip_reason) == (None, SkipReason.NO_RETRIEVAL)
    assert rules.compat is not None
    assert rules.compat.status is CompatStatus.ERROR
    assert "deepeval-4 refuses such a test case (missing_params)" in rules.explanation
    from_trace = RagRecord(
        id="t", question="How long?", chunks=(), answer="It takes 14 days.", target=a_target()
    )
    told = await measured(from_trace, ScriptedJudge(), metric_named(metric, profile="deepeval-4"))
    assert isinstance(told, MetricResult)
    assert "refuses" not in told.explanation


REPLIES = {
    "statements": {
        "statements": [
            {
                "statement": "It takes 14 days.",
                "is_supported": True,
                "supporting_chunk_ids": [1],
                "reasoning": "",
            },
            {"statement": "It is free.", "is_supported": False, "supporting_chunk_ids": []},
        ]
    },
    "graded_chunks": {
        "graded_chunks": [{"id_chunk": 0, "score": False}, {"id_chunk": 1, "score": True}],
    },
    "relevance": {
        "overall_score": 0.8,
        "topical_match": 1.0,
        "completeness": 0.6,
        "conciseness": 0.9,
        "reasoning": "",
    },
}


def rag_evals_judge(**replies: Any) -> ScriptedJudge:
    def reply(request: JudgeRequest[Any]) -> FreeText:
        return FreeText(text=json.dumps((REPLIES | replies)[request.step]))

    return ScriptedJudge(reply)


async def test_the_composite_under_rag_evals_weighs_its_own_three_numbers() -> None:
    record = RagRecord.of(question="How long?", contexts=CHUNKS, answer="14 days, and free.")
    metric = MetricSpec(name="rag_score", profile="rag_evals", uses_tool_prompts=True).open()
    judge = rag_evals_judge()
    result = await measured(record, judge, metric)
    assert isinstance(result, MetricResult)
    assert result.score == pytest.approx(0.4 * 0.5 + 0.3 * 0.8 + 0.3 * 0.5)
    assert (result.details["faithfulness"], result.details["completeness"]) == (0.5, 0.6)
    assert judge.calls == {"statements": 1, "graded_chunks": 1, "relevance": 1}
    weighed = MetricSpec(
        name="rag_score",
        profile="rag_evals",
        uses_tool_prompts=True,
        options={"weights": {"faithfulness": 0.25, "answer_relevance": 0.75}},
    ).open()
    other = await measured(record, rag_evals_judge(), weighed)
    assert isinstance(other, MetricResult)
    assert other.score == pytest.approx(0.25 * 0.5 + 0.75 * 0.8)
    assert other.evaluator_version != result.evaluator_version
