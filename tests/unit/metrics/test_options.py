"""Options of metrics: when a result passes, missing verdicts, evidence."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragtrace.errors import ConfigError, JudgeCutOff
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import (
    GivenVerdict,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, Label, MetricFailure, MetricResult, RagRecord, SkipReason
from ragtrace.pipeline import Evaluator, evaluate
from ragtrace.ports import JudgeReply, JudgeRequest

REFUNDS = RagRecord.of(
    question="How long do refunds take?",
    contexts={"faq-12": "Refunds take 14 days."},
    answer="Refunds take 30 days. They are paid to your card.",
)


async def measured(
    record: RagRecord, judge: Any = None, metric: str = "faithfulness", **how: Any
) -> MetricResult:
    evaluation = await evaluate(record, metrics=[metric_named(metric, **how)], judge=judge or ScriptedJudge())
    (result,) = evaluation.results
    return result


def labels(result: MetricResult) -> list[str]:
    return [verdict.label.value for verdict in result.verdicts]


def test_what_an_option_cannot_be_is_told() -> None:
    for metric, options, told in [
        (
            "faithfulness",
            {"threshold": 0.5, "pass_when": "contradicted == 0"},
            "both `threshold` and `pass_when`: leave out one",
        ),
        (
            "faithfulness",
            {"profile": "ragas", "pass_when": "contradicted == 0"},
            "under 'ragas', faithfulness passes by that tool's rule",
        ),
        (
            "chunk_precision",
            {"pass_when": "contradicted == 0"},
            "no 'contradicted' to compare: choose from score",
        ),
        ("faithfulness", {"evidence": False}, "has no option `evidence`.*`require_evidence`"),
        ("context_precision", {"against": "question"}, "`against` is reference or answer"),
        ("retrieval_recall", {"k": 0}, "`k` is a whole number from 1 on, not 0"),
    ]:
        with pytest.raises(ConfigError, match=told):
            metric_named(metric, **options)


def test_another_rule_is_another_evaluator_and_a_threshold_is_a_rule() -> None:
    default, at_half, said_so, other = (
        Evaluator(metrics=[metric_named("faithfulness", **how)], judge=ScriptedJudge()).version
        for how in ({}, {"threshold": 0.5}, {"pass_when": "score >= 0.5"}, {"pass_when": "contradicted == 0"})
    )
    assert at_half == said_so
    assert len({default, at_half, other}) == 3


class Omitting:
    """A judge whose replies about some texts are always cut off."""

    identity = ScriptedJudge().identity

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


async def test_an_answer_of_which_less_than_half_was_decided_does_not_pass() -> None:
    for how in [
        {},
        {"threshold": 0.5},
        {"pass_when": "contradicted == 0"},
        {"profile": "ragas"},
        {"profile": "deepeval-4", "threshold": 0.9},
    ]:
        half = "Refunds take 14 days. They are paid by card."
        for answer, expected in [(half, Label.PASS), (f"{half} It is free.", Label.SKIPPED)]:
            result = await measured(replace(REFUNDS, answer=answer), Abstaining(), **how)
            assert result.label == expected
            assert (result.skip_reason is SkipReason.UNDECIDED) == (expected is Label.SKIPPED)


ITEMS: Final = ("alpha", "beta", "gamma", "delta")
METRICS: Final = (
    *("faithfulness", "groundedness", "hallucination", "context_recall", "answer_relevance"),
    *("chunk_precision", "context_precision", "context_relevance", "rag_score"),
)
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
    whole = asyncio.run(measured(record, ScriptedJudge(script), metric))
    judge = Omitting(script, left_out)
    (partial,) = asyncio.run(evaluate(record, metrics=[metric], judge=judge)).outcomes
    if isinstance(partial, MetricFailure):  # nothing was left
        assert partial.error_type == "judge_cut_off"
        return
    assert whole.label in (Label.PASS, Label.FAIL)
    assert partial.label in (whole.label, Label.SKIPPED)
    if partial.label is Label.SKIPPED:
        unknown = (SkipReason.UNDECIDED, SkipReason.ALL_UNJUDGED, SkipReason.MISSING_PART)
        assert partial.skip_reason in unknown
        assert left_out


CLEAR, BARE, LOST = "It takes 14 days.", "It is green.", "It is round."
SAID: Final = {CLEAR: ("supported", [1], CLEAR), BARE: ("supported", [], "")}


def careless(request: JudgeRequest[Any]) -> Any:
    """Support two claims, one without evidence; give no whole verdict on the third."""
    if not isinstance(request.inputs, VerifyInput):
        return ScriptedJudge().reply_to(request)
    if any(claim.text == LOST for claim in request.inputs.claims):
        raise JudgeCutOff("cut off")
    verdicts = [
        GivenVerdict(id=claim.number, label=cast(Any, label), chunks=chunks, quote=quote, reason="")
        for claim in request.inputs.claims
        for label, chunks, quote in [SAID[claim.text]]
    ]
    return VerifyReply(verdicts=verdicts)


async def test_a_claim_without_evidence_counts_as_the_option_says() -> None:
    record = RagRecord.of(question="How?", contexts=[CLEAR], answer=f"{CLEAR} {BARE} {LOST}")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "supported unjudged unjudged"),
        ({"require_evidence": False}, "supported supported unjudged"),
    ]
    versions = set()
    for options, expected in cases:
        result = await measured(record, ScriptedJudge(careless), **options)
        assert labels(result) == expected.split(), options
        versions.add(result.evaluator_version.partition("+")[0])
    assert len(versions) == 2
