"""What ragtrace.testing gives: gates for answers, and the laws of metrics, judges and embedders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ragtrace.errors import JudgeError
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.metrics import Faithfulness, metric_named
from ragtrace.metrics.registry import BUILT_IN
from ragtrace.metrics.session import StepSession
from ragtrace.model import JudgeIdentity, MetricResult, RagRecord, SkipReason, Usage
from ragtrace.ports import Embeddings
from ragtrace.testing import (
    Script,
    ScriptedJudge,
    assert_metrics,
    check_embedder,
    check_judge,
    check_metric,
)

RETURNS = RagRecord.of(
    id="returns",
    question="How long can I return an order?",
    contexts={"faq-12": "Orders can be returned within 14 days. The shop is open."},
    answer="Orders can be returned within 30 days. The shop is open.",
)
UNANSWERED = RagRecord.of(id="no", question="Why?", contexts=["Cats purr."], answer="")


def test_an_answer_that_reaches_its_scores_gives_its_evaluation() -> None:
    assert assert_metrics(RETURNS, judge=ScriptedJudge(), faithfulness=0.5).results[0].score == 0.5


def test_the_message_names_scores_claims_and_chunks() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_metrics(RETURNS, judge=ScriptedJudge(), faithfulness=1.0)
    said = str(caught.value)
    assert said.startswith("record returns fails faithfulness (judge scripted:scripted)\n")
    for part in (
        "1 of 2 claims contradicted; score 0.5, threshold 1",
        "contradicted  Orders can be returned within 30 days.",
        "faq-12: “Orders can be returned within 14 days.”",
        "the numbers differ",
    ):
        assert part in said


def test_a_metric_that_had_nothing_to_judge_fails_the_gate_unless_allowed() -> None:
    with pytest.raises(AssertionError, match=r"(?s)no_content: .*allow_skipped=True"):
        assert_metrics(UNANSWERED, judge="scripted", faithfulness=0.8)
    assert_metrics(UNANSWERED, judge="scripted", faithfulness=0.8, allow_skipped=True)


def test_a_judge_that_fails_fails_the_gate() -> None:
    broken = ScriptedJudge(Script(error="judge_timeout"))
    with pytest.raises(AssertionError, match=r"(?s)fails faithfulness.*error    judge_timeout"):
        assert_metrics(RETURNS, judge=broken, faithfulness=0.0, allow_skipped=True)


def test_text_under_judgment_cannot_steer_the_terminal() -> None:
    steering = RagRecord.of(question="?", contexts=["Cats purr."], answer="Dogs \x1b[2Jbark loudly.")
    with pytest.raises(AssertionError) as caught:
        assert_metrics(steering, judge="scripted", faithfulness=1.0)
    assert "\x1b" not in str(caught.value)


class Altered(Faithfulness):
    def __init__(self, alter: Callable[[MetricResult], MetricResult]) -> None:
        super().__init__()
        self._alter = alter

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricResult:
        return self._alter(await super().measure(record, steps))


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_metrics_of_ragtrace_conform(name: str) -> None:
    check_metric(metric_named(name), judge=ScriptedJudge(), embedder=Embedder(lambda text: (1.0, len(text))))


def test_the_judges_of_ragtrace_conform() -> None:
    check_judge(ScriptedJudge())
    check_judge(LexicalJudge())


def with_default(result: MetricResult) -> MetricResult:
    return replace(result, score=0.5, skip_reason=None) if result.score is None else result


def with_chance(runs: list[int]) -> Callable[[MetricResult], MetricResult]:
    def alter(result: MetricResult) -> MetricResult:
        runs.append(1)
        return result if result.score is None else replace(result, score=1 / len(runs))

    return alter


def test_a_metric_that_breaks_a_law_is_told() -> None:
    for alter, told in [
        (with_default, "gives fail|gives pass|nor whether it `passed`"),
        (with_chance([]), "another result if it measures the same record"),
        (lambda result: replace(result, score=2.0, skip_reason=None), "outside"),
        (lambda result: replace(result, score=None, skip_reason=None), "neither a score nor"),
    ]:
        with pytest.raises(AssertionError, match=told):
            check_metric(Altered(alter), judge=ScriptedJudge())


class Swallowing(Faithfulness):
    async def measure(self, record: RagRecord, steps: StepSession) -> MetricResult:
        try:
            return await super().measure(record, steps)
        except JudgeError:
            nothing = await super().measure(replace(record, chunks=()), steps)
            return replace(nothing, skip_reason=SkipReason.ALL_UNJUDGED, usage=Usage(calls=1))


def test_a_metric_that_hides_the_judges_failure_is_told() -> None:
    with pytest.raises(AssertionError, match="let the JudgeError through"):
        check_metric(Swallowing(), judge=ScriptedJudge())


class Embedder:
    identity = JudgeIdentity(provider="mine", model="1")

    def __init__(self, vector: Callable[[str], tuple[float, ...]]) -> None:
        self._vector = vector

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        return Embeddings(vectors=tuple(self._vector(text) for text in texts), usage=Usage())

    async def aclose(self) -> None: ...


def test_an_embedder_conforms_where_equal_texts_are_nearest() -> None:
    check_embedder(Embedder(lambda text: (float(len(text)), 1.0 if "?" in text else -1.0)))


def test_an_embedder_that_breaks_a_law_is_told() -> None:
    for vector, told in [
        (lambda text: (1.0,) * len(text), "several lengths"),
        (lambda _: (float("nan"), 1.0), "not finite"),
        (lambda _: (1.0, 1.0), "no more similar"),
    ]:
        with pytest.raises(AssertionError, match=told):
            check_embedder(Embedder(vector))
