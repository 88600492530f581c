"""Claims judged against truths: the facts that the judge first lists for each chunk."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.errors import ConfigError, JudgeCutOff
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import GivenTruths, TruthsInput, TruthsReply, VerifyInput
from ragtrace.metrics import metric_named
from ragtrace.model import Evaluation, MetricResult, RagRecord, VerdictLabel
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

SHOP = "Refunds take 14 days. Our shop opened in 1998. We sell shoes."
CARDS = "Gift cards expire after 3 years."
ANSWER = "Refunds take 14 days. Our shop opened in 1998. Gift cards expire after 9 years."


def a_record(*contexts: str, answer: str = ANSWER) -> RagRecord:
    return RagRecord.of(question="What about refunds?", contexts=contexts or (SHOP, CARDS), answer=answer)


async def judged(judge: Any, *records: RagRecord, **options: Any) -> list[Evaluation]:
    metric = metric_named("faithfulness", truths=True, **options)
    return [await evaluate(record, metrics=[metric], judge=judge) for record in records]


def result_of(evaluation: Evaluation) -> MetricResult:
    (result,) = evaluation.results
    return result


async def test_claims_are_judged_against_the_truths_with_one_call_more() -> None:
    judge = ScriptedJudge(Script(truths={"Refunds": ["Refunds take 14 days."]}))
    (evaluation,) = await judged(judge, a_record())
    result = result_of(evaluation)
    assert [verdict.label.value for verdict in result.verdicts] == [
        "supported",
        "unsupported",  # the chunk says it, but no truth does
        "contradicted",
    ]
    assert judge.calls == {"extract": 1, "truths": 1, "verify": 1}
    assert result.intermediate is not None
    assert result.intermediate.truths == ("Refunds take 14 days.", CARDS)
    assert (result.intermediate.truths_limit, result.details["truths"]) == (None, 2)
    assert [run.step for run in result.steps] == ["extract", "truths", "verify"]


async def test_a_quote_is_looked_up_in_the_chunk_and_not_in_its_truths() -> None:
    judge = ScriptedJudge(Script(truths={"Refunds": ["Refunds take 14 days", "The shop sells shoes."]}))
    (evaluation,) = await judged(judge, a_record(answer="Refunds take 14 days. The shop sells shoes."))
    first, second = result_of(evaluation).verdicts
    assert (first.label, first.quote, first.quote_verified) == (
        VerdictLabel.SUPPORTED,
        "Refunds take 14 days",
        True,
    )
    assert (second.label, second.quote, second.quote_verified) == (VerdictLabel.SUPPORTED, None, False)
    assert second.chunk_ids == first.chunk_ids


async def test_truths_in_another_language_decide_with_evidence_that_is_told_to_be_unverified() -> None:
    german = "Erstattungen dauern 14 Tage."
    judge = ScriptedJudge(Script(truths={german: ["Refunds take 14 days."]}))
    answer = "Refunds take 14 days. Gift cards never expire at all."
    (evaluation,) = await judged(judge, a_record(german, answer=answer))
    result = result_of(evaluation)
    translated, other = result.verdicts
    assert (translated.label, translated.quote, translated.quote_verified) == (
        VerdictLabel.SUPPORTED,
        None,
        False,
    )
    assert other.label is VerdictLabel.UNSUPPORTED
    (strict,) = await judged(judge, a_record(german, answer=answer), require_evidence=True)
    assert [verdict.label.value for verdict in result_of(strict).verdicts] == ["unjudged", "unsupported"]
    # and the other way round: the facts are the chunk's own sentences, which the answer translates
    (kept,) = await judged(ScriptedJudge(), a_record(german, answer=answer))
    assert result_of(kept).score == 0


async def test_the_same_chunk_is_never_read_twice() -> None:
    judge = ScriptedJudge()
    first, second, third = await judged(
        judge, a_record(SHOP, CARDS), a_record(CARDS, SHOP), a_record(SHOP, "Shoes cost 50 euros.")
    )
    read = [
        [chunk.text for chunk in request.inputs.chunks]
        for request in judge.requests
        if isinstance(request.inputs, TruthsInput)
    ]
    assert read == [[SHOP, CARDS], ["Shoes cost 50 euros."]]
    assert [result_of(e).score for e in (first, second, third)] == pytest.approx([2 / 3, 2 / 3, 2 / 3])


async def test_the_limit_is_told_and_enforced_on_the_reply() -> None:
    judge = ScriptedJudge()  # it lists every sentence, whatever the limit
    (evaluation,) = await judged(judge, a_record(), truths_limit=1)
    result = result_of(evaluation)
    assert result.intermediate is not None
    assert result.intermediate.truths == ("Refunds take 14 days.", CARDS)
    assert (result.intermediate.truths_limit, result.details["truths_cut"]) == (1, 2)
    (asked,) = (request for request in judge.requests if isinstance(request.inputs, TruthsInput))
    assert asked.inputs.limit == 1
    assert "1" in asked.user.split("limit", 1)[1].split("chunk", 1)[0]
    shown = [request.inputs for request in judge.requests if isinstance(request.inputs, VerifyInput)]
    assert [chunk.text for chunk in shown[0].chunks] == ["Refunds take 14 days.", CARDS]


async def test_a_chunk_without_a_usable_reply_is_shown_as_it_is() -> None:
    script = ScriptedJudge()

    def reply(request: JudgeRequest[Any]) -> Any:
        if isinstance(request.inputs, TruthsInput):
            if any(chunk.text == CARDS for chunk in request.inputs.chunks):
                raise JudgeCutOff("cut off")
            return TruthsReply(
                chunks=[GivenTruths(id=chunk.number, truths=[]) for chunk in request.inputs.chunks]
            )
        return script.reply_to(request)

    (evaluation,) = await judged(ScriptedJudge(reply), a_record())
    result = result_of(evaluation)
    assert [verdict.label.value for verdict in result.verdicts] == [
        "unsupported",
        "unsupported",
        "contradicted",
    ]
    assert result.details["chunks_unread"] == 1


async def test_faithfulness_and_hallucination_share_the_truths() -> None:
    judge = ScriptedJudge()
    metrics = [metric_named(name, truths=True, truths_limit=9) for name in ("faithfulness", "hallucination")]
    evaluation = await evaluate(a_record(), metrics=metrics, judge=judge)
    assert {result.metric: result.score for result in evaluation.results} == {
        "faithfulness": pytest.approx(2 / 3),
        "hallucination": pytest.approx(1 / 3),
    }
    assert judge.calls == {"extract": 1, "truths": 1, "verify": 1}


async def test_the_default_asks_no_call_more_and_is_another_evaluator() -> None:
    judge = ScriptedJudge()
    plain = (await evaluate(a_record(), metrics=["faithfulness"], judge=judge)).results[0]
    assert judge.calls == {"extract": 1, "verify": 1}
    (evaluation,) = await judged(ScriptedJudge(), a_record(), truths_limit=9)
    assert result_of(evaluation).evaluator_version.startswith(f"{plain.evaluator_version[:1]}-truths-9+")
    assert result_of(evaluation).evaluator_version != plain.evaluator_version


@pytest.mark.parametrize("limit", [0, -1, 201, True, 2.5])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="`truths_limit` is a whole number from 1 to 200"):
        metric_named("faithfulness", truths=True, truths_limit=limit)
