"""Our own verdicts under other tools' rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ragtrace.compat.tool import ProfileMetric
from ragtrace.errors import ConfigError
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import (
    CompatStatus,
    Direction,
    Label,
    MetricFailure,
    MetricResult,
    RagRecord,
    SkipReason,
    Usage,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import Embedder, Embeddings
from ragtrace.scoring import PROFILES, scored_metrics

RECORD = RagRecord.of(
    question="How long?",
    contexts={"faq": "Refunds take 14 days.", "about": "We sell shoes."},
    answer="Refunds take 30 days. We sell shoes. Parcels are blue.",
    reference="Refunds take 14 days. Parcels are blue.",
)
NO_CLAIMS = ScriptedJudge(Script.model_validate({"answers": {"30 days": {"claims": []}}}))
SCORINGS = [
    (metric, profile)
    for profile in PROFILES
    if profile != "ragtrace"
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


@pytest.mark.parametrize(("metric", "profile"), SCORINGS)
async def test_every_rule_can_be_had_over_our_own_verdicts(metric: str, profile: str) -> None:
    result = await measured(metric, profile)
    assert (result.metric, result.profile) == (metric, profile)
    assert result.compat is not None
    assert result.compat.status is CompatStatus.OK
    assert result.score == result.compat.score


@pytest.mark.parametrize(("metric", "profile"), SCORINGS)
async def test_what_cannot_be_judged_costs_nothing(metric: str, profile: str) -> None:
    empty = RagRecord.of(question="", answer="")
    result = await measured(metric, profile, record=empty)
    assert result.usage.calls == 0
    assert result.compat is not None


@pytest.mark.parametrize(
    ("profile", "score"),
    [("ragas", 1 / 3), ("deepeval-3", 2 / 3), ("deepeval-4", 2 / 3), ("promptfoo", 1 / 3)],
)
async def test_one_run_of_the_judge_scores_by_every_rule(profile: str, score: float) -> None:
    assert (await measured("faithfulness", profile)).score == pytest.approx(score)


async def test_deepeval_3_counts_the_chunks_that_are_contradicted() -> None:
    result = await measured("hallucination", "deepeval-3")
    assert (result.score, result.direction) == (0.5, Direction.LOWER_IS_BETTER)
    assert result.label is Label.PASS
    assert (await measured("hallucination", "deepeval-3", strict_mode=True)).label is Label.FAIL


async def test_no_claims_are_what_the_tool_makes_of_them() -> None:
    deepeval = await measured("faithfulness", "deepeval-4", judge=NO_CLAIMS)
    assert (deepeval.score, deepeval.skip_reason) == (1.0, None)
    ragas = await measured("faithfulness", "ragas", judge=NO_CLAIMS)
    assert (ragas.score, ragas.skip_reason) == (None, SkipReason.NO_CLAIMS)


def test_a_number_that_only_the_judge_of_the_tool_gives_is_refused() -> None:
    with pytest.raises(ConfigError, match="--peer-prompts"):
        ProfileMetric(metric="answer_relevance", profile="rag_evals")
