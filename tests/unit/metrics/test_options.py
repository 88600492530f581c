"""Options of metrics: when a result passes, truths, missing verdicts, evidence, sentences of chunks."""

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
    ChunksInput,
    ChunksReply,
    GivenGrade,
    GivenTruths,
    GivenVerdict,
    TruthsInput,
    TruthsReply,
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
        (
            "faithfulness",
            {"truths": True, "truths_limit": 0},
            "`truths_limit` is a whole number from 1 to 200",
        ),
        ("faithfulness", {"truths": True, "truths_limit": 2.5}, "`truths_limit` is a whole number"),
        ("faithfulness", {"truths_limit": 5}, "needs `truths: true`"),
        ("faithfulness", {"on_missing": "skip"}, "`on_missing` is unjudged or unsupported, not 'skip'"),
        ("faithfulness", {"on_mising": "unsupported"}, "unexpected keyword argument 'on_mising'"),
        ("context_relevance", {"unit": "word"}, "`unit` is chunk or sentence, not 'word'"),
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


SHOP = "Refunds take 14 days. Our shop opened in 1998. We sell shoes."
CARDS = "Gift cards expire after 3 years."
ANSWER = "Refunds take 14 days. Our shop opened in 1998. Gift cards expire after 9 years."


def of_shop(*contexts: str, answer: str = ANSWER) -> RagRecord:
    return RagRecord.of(question="What about refunds?", contexts=contexts or (SHOP, CARDS), answer=answer)


async def test_claims_are_judged_against_the_truths_with_one_call_more() -> None:
    judge = ScriptedJudge(Script(truths={"Refunds": ["Refunds take 14 days."]}))
    result = await measured(of_shop(), judge, truths=True)
    assert labels(result) == ["supported", "unsupported", "contradicted"]  # no truth says 1998
    assert judge.calls == {"extract": 1, "truths": 1, "verify": 1}
    assert result.intermediate.truths == ("Refunds take 14 days.", CARDS)
    assert (result.intermediate.truths_limit, result.details["truths"]) == (None, 2)
    assert [run.step for run in result.steps] == ["extract", "truths", "verify"]
    judge = ScriptedJudge()
    plain = await measured(of_shop(), judge)
    assert judge.calls == {"extract": 1, "verify": 1}
    limited = await measured(of_shop(), truths=True, truths_limit=9)
    assert limited.evaluator_version.startswith(f"{plain.evaluator_version[:1]}-truths-9+")


async def test_a_quote_is_looked_up_in_the_chunk_and_not_in_its_truths() -> None:
    judge = ScriptedJudge(Script(truths={"Refunds": ["Refunds take 14 days", "The shop sells shoes."]}))
    result = await measured(of_shop(answer="Refunds take 14 days. The shop sells shoes."), judge, truths=True)
    assert [(v.label.value, v.quote, v.quote_verified) for v in result.verdicts] == [
        ("supported", "Refunds take 14 days", True),
        ("supported", None, False),
    ]


async def test_the_same_chunk_is_never_read_twice() -> None:
    judge, metric = ScriptedJudge(), metric_named("faithfulness", truths=True)
    for contexts in ((SHOP, CARDS), (CARDS, SHOP), (SHOP, "Shoes cost 50 euros.")):
        (result,) = (await evaluate(of_shop(*contexts), metrics=[metric], judge=judge)).results
        assert result.score == pytest.approx(2 / 3)
    read = [
        [chunk.text for chunk in request.inputs.chunks]
        for request in judge.requests
        if isinstance(request.inputs, TruthsInput)
    ]
    assert read == [[SHOP, CARDS], ["Shoes cost 50 euros."]]


async def test_the_limit_of_truths_is_told_and_enforced_on_the_reply() -> None:
    judge = ScriptedJudge()  # it lists every sentence, whatever the limit
    result = await measured(of_shop(), judge, truths=True, truths_limit=1)
    assert result.intermediate.truths == ("Refunds take 14 days.", CARDS)
    assert (result.intermediate.truths_limit, result.details["truths_cut"]) == (1, 2)
    (asked,) = (request for request in judge.requests if isinstance(request.inputs, TruthsInput))
    assert "1" in asked.user.split("limit", 1)[1].split("chunk", 1)[0]
    shown = [request.inputs for request in judge.requests if isinstance(request.inputs, VerifyInput)]
    assert [chunk.text for chunk in shown[0].chunks] == ["Refunds take 14 days.", CARDS]


async def test_a_chunk_whose_truths_cannot_be_read_is_shown_as_it_is() -> None:
    def reply(request: JudgeRequest[Any]) -> Any:
        if not isinstance(request.inputs, TruthsInput):
            return ScriptedJudge().reply_to(request)
        if any(chunk.text == CARDS for chunk in request.inputs.chunks):
            raise JudgeCutOff("cut off")
        nothing = [GivenTruths(id=chunk.number, truths=[]) for chunk in request.inputs.chunks]
        return TruthsReply(chunks=nothing)

    result = await measured(of_shop(), ScriptedJudge(reply), truths=True)
    assert labels(result) == ["unsupported", "unsupported", "contradicted"]
    assert result.details["chunks_unread"] == 1


CLEAR, BARE, LOST, WRONG = "It takes 14 days.", "It is green.", "It is round.", "It takes 30 days."
SAID: Final = {
    CLEAR: ("supported", [1], CLEAR),
    BARE: ("supported", [], ""),
    WRONG: ("contradicted", [1], CLEAR),
}


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


async def test_claims_without_a_verdict_or_evidence_count_as_the_options_say() -> None:
    record = RagRecord.of(question="How?", contexts=[CLEAR], answer=f"{CLEAR} {BARE} {LOST}")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "supported unjudged unjudged"),
        ({"on_missing": "unsupported"}, "supported unsupported unsupported"),
        ({"require_evidence": False}, "supported supported unjudged"),
        ({"require_evidence": False, "on_missing": "unsupported"}, "supported supported unsupported"),
    ]
    versions = set()
    for options, expected in cases:
        result = await measured(record, ScriptedJudge(careless), **options)
        assert labels(result) == expected.split(), options
        versions.add(result.evaluator_version.partition("+")[0])
    assert len(versions) == 4


async def test_hallucination_counts_unsupported_claims_if_asked() -> None:
    record = RagRecord.of(question="How?", contexts=[CLEAR], answer=f"{WRONG} {CLEAR} {LOST}")
    judge, asked = ScriptedJudge(careless), {"metric": "hallucination", "on_missing": "unsupported"}
    usual = await measured(record, judge, **asked)
    both = await measured(record, judge, **asked, count_unsupported=True)
    assert (usual.score, both.score) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert (usual.details["ungrounded_share"], both.label) == (both.score, Label.FAIL)


NEEDED = "Refunds take 14 days."
FIVE = f"Our shop opened in 1998. It is blue. {NEEDED} We sell shoes. Come by!"
GRADES = Script.model_validate({"chunks": {NEEDED: 2, "We sell shoes.": 1, "shop": 0}})


async def by_sentence(
    *contexts: str | Chunk, judge: ScriptedJudge | None = None, unit: str = "sentence"
) -> MetricResult:
    record = RagRecord.of(question="How long?", contexts=contexts, answer="14 days.")
    return await measured(record, judge or ScriptedJudge(GRADES), "context_relevance", unit=unit)


async def test_one_relevant_sentence_of_five_gives_a_fifth() -> None:
    result = await by_sentence(FIVE)
    assert result.score == pytest.approx(0.2)
    assert result.explanation == "3 of 5 sentences irrelevant, 1 partly relevant; score 0.2, threshold 0.5"
    assert (result.details["by_chunk"], result.details["coverage"]) == (1.0, 1.0)
    kept = [(FIVE[each.start : each.end], each.label.value) for each in result.intermediate.sentences]
    assert [text for text, label in kept if label == "relevant"] == [NEEDED]
    assert result.usage.calls == 1
    by_chunk = await by_sentence(FIVE, unit="chunk")
    assert by_chunk.score == 1.0
    assert by_chunk.evaluator_version.startswith("1+")
    assert result.evaluator_version.startswith("1-sentence+")


async def test_five_thousand_sentences_are_judged_as_far_as_the_limit_says() -> None:
    result = await by_sentence(" ".join(f"Fact number {n} is here." for n in range(5_000)))
    assert (len(result.intermediate.sentences), result.details["sentences"]) == (300, 5_000)
    assert (result.details["coverage"], result.usage.calls) == (pytest.approx(300 / 5_000), 8)


async def test_a_decisive_sentence_whose_reply_is_cut_off_leaves_no_score() -> None:
    def reply(request: JudgeRequest[Any]) -> Any:
        chunks = cast(ChunksInput, request.inputs).chunks
        if any(chunk.text == NEEDED for chunk in chunks):
            raise JudgeCutOff("cut off")
        return ChunksReply(chunks=[GivenGrade(id=chunk.number, reason="", relevance=0) for chunk in chunks])

    undecided = await by_sentence(f"It is blue. {NEEDED}", judge=ScriptedJudge(reply))
    assert undecided.skip_reason is SkipReason.UNDECIDED
    assert "the judge left out 1 verdict" in undecided.explanation
    decided = await by_sentence(FIVE, judge=ScriptedJudge(reply))
    assert (decided.score, decided.details["coverage"], decided.passed) == (0.0, 0.8, False)
