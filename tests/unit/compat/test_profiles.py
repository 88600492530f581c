"""Our own verdicts under other tools' rules, and what users of those tools expect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ragtrace.compat.tool import ProfileMetric
from ragtrace.errors import ConfigError
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import ChunksInput
from ragtrace.metrics import metric_named
from ragtrace.model import (
    CompatStatus,
    MetricFailure,
    MetricResult,
    RagRecord,
    SkipReason,
    Usage,
)
from ragtrace.pipeline import MetricSpec, evaluate
from ragtrace.ports import Embedder, Embeddings, FreeText
from ragtrace.scoring import PROFILES, scored_metrics
from tests.unit.traces.builders import a_target

RECORD = RagRecord.of(
    question="How long?",
    contexts={"faq": "Refunds take 14 days.", "about": "We sell shoes."},
    answer="Refunds take 30 days. We sell shoes. Parcels are blue.",
    reference="Refunds take 14 days. Parcels are blue.",
)
SCORINGS = [
    (metric, profile)
    for profile in PROFILES
    for metric in scored_metrics(profile)
    if (metric, profile) != ("answer_relevance", "rag_evals")
]


class Alike:
    """Finds all texts alike."""

    identity = ScriptedJudge().identity

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        return Embeddings(vectors=((1.0, 0.0),) * len(texts), usage=Usage(calls=1))

    async def aclose(self) -> None:
        pass


async def measured(
    metric: str,
    profile: str,
    *,
    record: RagRecord = RECORD,
    judge: ScriptedJudge | None = None,
    **options: bool,
) -> MetricResult:
    profiled = metric_named(metric, profile=profile, **options)
    embedder: Embedder = Alike()
    evaluation = await evaluate(record, metrics=[profiled], judge=judge or ScriptedJudge(), embedder=embedder)
    [outcome] = evaluation.outcomes
    assert not isinstance(outcome, MetricFailure), outcome
    return outcome


async def test_every_rule_can_be_had_over_our_own_verdicts() -> None:
    for metric, profile in SCORINGS:
        result = await measured(metric, profile)
        assert (result.metric, result.profile) == (metric, profile), metric
        assert result.compat.status is CompatStatus.OK, metric
        assert result.score == result.compat.score, metric


async def test_what_cannot_be_judged_costs_nothing() -> None:
    for metric, profile in SCORINGS:
        empty = RagRecord.of(question="", answer="")
        result = await measured(metric, profile, record=empty)
        assert result.usage.calls == 0, metric
        assert result.compat is not None, metric


async def test_one_run_of_the_judge_scores_by_every_rule() -> None:
    for profile, score in [
        ("ragas", 1 / 3),
        ("deepeval-3", 2 / 3),
        ("deepeval-4", 2 / 3),
        ("promptfoo", 1 / 3),
    ]:
        assert (await measured("faithfulness", profile)).score == pytest.approx(score), profile


def test_a_number_that_only_the_judge_of_the_tool_gives_is_refused() -> None:
    with pytest.raises(ConfigError, match="--peer-prompts"):
        ProfileMetric(metric="answer_relevance", profile="rag_evals")


SHOES = ("We sell shoes.", "Refunds take 14 days.")


async def outcome_of(record: RagRecord, judge: ScriptedJudge, metric: Any) -> Any:
    (outcome,) = (await evaluate(record, metrics=[metric], judge=judge)).outcomes
    return outcome


def asked(judge: ScriptedJudge) -> list[str | None]:
    return [request.inputs.reference for request in judge.requests if isinstance(request.inputs, ChunksInput)]


async def test_context_precision_without_a_reference_is_judged_by_the_answer_under_ragas() -> None:
    record = RagRecord.of(question="How long?", contexts=SHOES, answer="14 days.")
    for profile in ("ragas", "ragas-legacy"):
        judge = ScriptedJudge(Script(chunks={"Refunds": 2, "shoes": 0}))
        metric = metric_named("context_precision", profile=profile)
        assert (await outcome_of(record, judge, metric)).score == pytest.approx(0.5)
        await outcome_of(replace(record, reference="Two weeks."), judge, metric)
        assert asked(judge) == ["14 days.", "Two weeks."]


async def test_ragtraces_own_context_precision_takes_the_answer_on_request() -> None:
    judge = ScriptedJudge()
    record = RagRecord.of(question="How?", contexts=SHOES, answer="14 days.", reference="Two weeks.")
    metrics = [
        metric_named("context_precision"),
        metric_named("chunk_precision"),
        metric_named("context_precision", against="answer"),
    ]
    evaluation = await evaluate(record, metrics=metrics, judge=judge)
    assert sorted(map(str, asked(judge))) == ["14 days.", "Two weeks."]
    versions = {result.evaluator_version.partition("+")[0] for result in evaluation.results}
    assert versions == {"1", "1-answer"}
    without = await outcome_of(RagRecord.of(question="How?", contexts=SHOES, answer=None), judge, metrics[2])
    assert without.skip_reason is SkipReason.NO_CONTENT


async def test_deepevals_rules_give_no_number_without_contexts() -> None:
    for name in ("faithfulness", "hallucination"):
        metric = metric_named(name, profile="deepeval-4")
        record = RagRecord.of(question="How long?", contexts=(), answer="It takes 14 days.")
        rules = await outcome_of(record, ScriptedJudge(), metric)
        assert (rules.score, rules.skip_reason) == (None, SkipReason.NO_RETRIEVAL)
        assert rules.compat.status is CompatStatus.ERROR
        assert "deepeval-4 refuses such a test case (missing_params)" in rules.explanation
        told = await outcome_of(replace(record, target=a_target(), id="t"), ScriptedJudge(), metric)
        assert "refuses" not in told.explanation


STATED = [
    {"statement": "It takes 14 days.", "is_supported": True, "supporting_chunk_ids": [1], "reasoning": ""},
    {"statement": "It is free.", "is_supported": False, "supporting_chunk_ids": []},
]
RELEVANCE = {"overall_score": 0.8, "topical_match": 1.0, "completeness": 0.6, "conciseness": 0.9}
REPLIES = {
    "statements": {"statements": STATED},
    "graded_chunks": {"graded_chunks": [{"id_chunk": 0, "score": False}, {"id_chunk": 1, "score": True}]},
    "relevance": {**RELEVANCE, "reasoning": ""},
}


def rag_evals_judge() -> ScriptedJudge:
    return ScriptedJudge(lambda request: FreeText(text=json.dumps(REPLIES[request.step])))


async def test_the_composite_under_rag_evals_weighs_its_own_three_numbers() -> None:
    record = RagRecord.of(question="How long?", contexts=SHOES, answer="14 days, and free.")
    spec = MetricSpec(name="rag_score", profile="rag_evals", uses_tool_prompts=True)
    judge = rag_evals_judge()
    result = await outcome_of(record, judge, spec.open())
    assert result.score == pytest.approx(0.4 * 0.5 + 0.3 * 0.8 + 0.3 * 0.5)
    assert (result.details["faithfulness"], result.details["completeness"]) == (0.5, 0.6)
    assert judge.calls == {"statements": 1, "graded_chunks": 1, "relevance": 1}
    weights = {"faithfulness": 0.25, "answer_relevance": 0.75}
    other = await outcome_of(record, judge, replace(spec, options={"weights": weights}).open())
    assert other.score == pytest.approx(0.25 * 0.5 + 0.75 * 0.8)
    assert other.evaluator_version != result.evaluator_version
