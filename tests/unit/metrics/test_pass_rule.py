"""When a metric's result passes, and what a verdict that the judge left out changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragtrace.errors import ConfigError, JudgeCutOff
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import VerifyReply
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, Label, MetricFailure, MetricResult, RagRecord, SkipReason
from ragtrace.pipeline import evaluate, evaluator_version
from ragtrace.ports import JudgeReply, JudgeRequest

CHUNK = RagRecord.of(
    question="How long do refunds take?",
    contexts={"faq-12": "Refunds take 14 days."},
    answer="Refunds take 30 days. They are paid to your card.",
)
JUDGE = ScriptedJudge(
    Script.model_validate(
        {"claims": {"Refunds take 30 days.": "contradicted", "They are paid to your card.": "supported"}}
    )
)
ITEMS: Final = ("alpha", "beta", "gamma", "delta")
METRICS: Final = (
    "faithfulness",
    "groundedness",
    "hallucination",
    "context_recall",
    "answer_relevance",
    "chunk_precision",
    "context_precision",
    "context_relevance",
    "rag_score",
)


def label(given: RagRecord = CHUNK, judge: Any = JUDGE, metric: str = "faithfulness", **how: Any) -> str:
    return result_of(given, judge, metric, **how).label.value


def result_of(given: RagRecord, judge: Any, metric: str, **how: Any) -> MetricResult:
    (result,) = asyncio.run(evaluate(given, metrics=[metric_named(metric, **how)], judge=judge)).results
    return result


def test_a_threshold_and_a_rule_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="both `threshold` and `pass_when`: leave out one"):
        metric_named("faithfulness", threshold=0.5, pass_when="contradicted == 0")


def test_another_tool_has_a_rule_of_its_own() -> None:
    with pytest.raises(ConfigError, match="under 'ragas', faithfulness passes by that tool's rule"):
        metric_named("faithfulness", profile="ragas", pass_when="contradicted == 0")
    assert [label(profile=tool) for tool in ("ragas", "deepeval-4", "promptfoo")] == ["pass"] * 3


def test_metrics_without_claims_know_only_their_score() -> None:
    with pytest.raises(ConfigError, match="no 'contradicted' to compare: choose from score"):
        metric_named("chunk_precision", pass_when="contradicted == 0")
    assert metric_named("chunk_precision", pass_when="score >= 0.9").threshold == 0.9


def test_another_rule_is_another_evaluator_and_a_threshold_is_a_rule() -> None:
    named: list[dict[str, Any]] = [
        {},
        {"threshold": 0.5},
        {"pass_when": "score >= 0.5"},
        {"pass_when": "contradicted == 0"},
    ]
    default, at_half, said_so, other = (
        evaluator_version([metric_named("faithfulness", **how)], JUDGE) for how in named
    )
    assert at_half == said_so
    assert len({default, at_half, other}) == 3


class Omitting:
    """A judge whose replies about some texts are always cut off."""

    identity = JUDGE.identity

    def __init__(self, script: Script, left_out: frozenset[str]) -> None:
        self._whole = ScriptedJudge(script)
        self._left_out = left_out

    async def ask(self, request: JudgeRequest[Any]) -> JudgeReply[Any]:
        """Answer as the script says, but for what is left out."""
        given = request.inputs
        items = getattr(given, "claims", getattr(given, "statements", getattr(given, "chunks", ())))
        if any(each in item.text for each in self._left_out for item in items):
            raise JudgeCutOff("cut off")
        return await self._whole.ask(request)

    async def aclose(self) -> None:
        """Do nothing."""


_CASES: Final = st.lists(
    st.tuples(
        st.sampled_from(["supported", "supported", "contradicted", "not_mentioned"]),
        st.sampled_from(["direct", "supporting", "irrelevant"]),
        st.sampled_from([0, 1, 2]),
        st.booleans(),
    ),
    min_size=1,
    max_size=len(ITEMS),
)


class Abstaining(ScriptedJudge):
    """A judge that says of all claims but the first that it cannot tell."""

    async def ask(self, request: JudgeRequest[Any]) -> JudgeReply[Any]:
        """Answer as the script says, but for what it cannot tell."""
        reply = await super().ask(request)
        if not isinstance(reply.value, VerifyReply):
            return reply
        first, *others = sorted(request.items)
        told = VerifyReply(verdicts=[each for each in reply.value.verdicts if each.id == first])
        return JudgeReply(value=told, usage=reply.usage, abstained=frozenset(others))


@pytest.mark.parametrize(("sentences", "expected"), [(2, Label.PASS), (3, Label.SKIPPED)])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"threshold": 0.5},
        {"pass_when": "contradicted == 0"},
        {"profile": "ragas"},
        {"profile": "deepeval-4", "threshold": 0.9},
    ],
    ids=str,
)
def test_an_answer_of_which_less_than_half_was_decided_does_not_pass(
    sentences: int, expected: Label, how: Mapping[str, Any]
) -> None:
    answer = " ".join(("Refunds take 14 days.", "They are paid by card.", "It is free.")[:sentences])
    result = result_of(replace(CHUNK, answer=answer), Abstaining(), "faithfulness", **how)
    assert result.label == expected
    assert (result.skip_reason is SkipReason.UNDECIDED) == (expected is Label.SKIPPED)


@given(st.sampled_from(METRICS), _CASES)
@example("rag_score", [("supported", "direct", 0, True), ("supported", "irrelevant", 0, False)])
def test_a_verdict_that_is_left_out_turns_no_fail_into_a_pass_and_no_pass_into_a_fail(
    metric: str, cases: list[tuple[str, str, int, bool]]
) -> None:
    items = list(zip(ITEMS, cases, strict=False))
    record = RagRecord(
        id="r",
        question="What is what?",
        chunks=tuple(Chunk(id=n, text=f"Chunk {n}.", rank=rank) for rank, (n, _) in enumerate(items)),
        answer=" ".join(f"Claim {name}." for name, _ in items),
        reference=" ".join(f"Truth {name}." for name, _ in items),
    )
    claims = [
        {"text": f"Claim {name}.", "sentences": [n], "relevance": case[1]}
        for n, (name, case) in enumerate(items, start=1)
    ]
    script = Script.model_validate(
        {
            "answers": {"Claim alpha": {"claims": claims}},
            "claims": {f"{kind} {name}.": case[0] for name, case in items for kind in ("Claim", "Truth")},
            "chunks": {f"Chunk {name}.": case[2] for name, case in items},
        }
    )
    left_out = frozenset(name for name, case in items if case[3])
    whole = result_of(record, ScriptedJudge(script), metric)
    judge = Omitting(script, left_out)
    (partial,) = asyncio.run(evaluate(record, metrics=[metric], judge=judge)).outcomes
    if isinstance(partial, MetricFailure):  # nothing was left
        assert partial.error_type == "judge_cut_off"
        return
    assert whole.label in (Label.PASS, Label.FAIL)
    assert partial.label in (whole.label, Label.SKIPPED)
    if partial.label is Label.SKIPPED:
        assert partial.skip_reason in (
            SkipReason.UNDECIDED,
            SkipReason.ALL_UNJUDGED,
            SkipReason.MISSING_PART,
        )
        assert left_out
