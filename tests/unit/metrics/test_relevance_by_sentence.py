"""Context relevance by sentence: the share of the sentences of the chunks that hold what the answer needs."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.errors import ConfigError, JudgeCutOff
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import ChunksInput, ChunksReply, GivenGrade
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, MetricResult, RagRecord, SkipReason
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

NEEDED = "Refunds take 14 days."
FIVE = f"Our shop opened in 1998. It is blue. {NEEDED} We sell shoes. Come by!"
JUDGE = ScriptedJudge(Script.model_validate({"chunks": {NEEDED: 2, "We sell shoes.": 1, "shop": 0}}))


async def measured(*contexts: str | Chunk, judge: Any = JUDGE, **options: Any) -> MetricResult:
    record = RagRecord.of(question="How long?", contexts=contexts, answer="14 days.")
    metric = metric_named("context_relevance", **{"unit": "sentence", **options})
    (result,) = (await evaluate(record, metrics=[metric], judge=judge)).results
    assert isinstance(result, MetricResult)
    return result


async def test_one_relevant_sentence_of_five_gives_a_fifth() -> None:
    result = await measured(FIVE)
    assert result.score == pytest.approx(0.2)
    assert result.explanation == "3 of 5 sentences irrelevant, 1 partly relevant; score 0.2, threshold 0.5"
    assert (result.details["by_chunk"], result.details["coverage"]) == (1.0, 1.0)
    assert (result.details["sentences"], result.details["relevant_sentences"]) == (5, 1)
    assert result.usage.calls == 1


@pytest.mark.parametrize("contexts", [(Chunk(id="empty", text=""), NEEDED), (" \n", NEEDED), ("***", NEEDED)])
async def test_a_chunk_without_a_sentence_does_not_count(contexts: tuple[str | Chunk, ...]) -> None:
    result = await measured(*contexts)
    assert (result.score, result.details["sentences"]) == (1.0, 1)
    assert result.chunk_verdicts[0].reason == "the chunk has no sentence"


async def test_five_thousand_sentences_are_judged_as_far_as_the_limit_says() -> None:
    result = await measured(" ".join(f"Fact number {n} is here." for n in range(5_000)))
    assert result.intermediate is not None
    assert (len(result.intermediate.sentences), result.details["sentences"]) == (300, 5_000)
    assert result.details["coverage"] == pytest.approx(300 / 5_000)
    assert result.usage.calls == 8


async def test_a_decisive_sentence_whose_reply_is_cut_off_leaves_no_score() -> None:
    def reply(request: JudgeRequest[Any]) -> Any:
        given = request.inputs
        assert isinstance(given, ChunksInput)
        if any(chunk.text == NEEDED for chunk in given.chunks):
            raise JudgeCutOff("cut off")
        return ChunksReply(
            chunks=[GivenGrade(id=chunk.number, reason="", relevance=0) for chunk in given.chunks]
        )

    undecided = await measured(f"It is blue. {NEEDED}", judge=ScriptedJudge(reply))
    assert undecided.skip_reason is SkipReason.UNDECIDED
    assert "the judge left out 1 verdict" in undecided.explanation
    decided = await measured(FIVE, judge=ScriptedJudge(reply))
    assert (decided.score, decided.details["coverage"], decided.passed) == (0.0, 0.8, False)


async def test_the_unit_is_an_evaluator_of_its_own_and_the_default_stays() -> None:
    by_sentence, by_chunk = await measured(FIVE), await measured(FIVE, unit="chunk")
    assert by_chunk.score == 1.0
    assert by_chunk.evaluator_version.startswith("1+")
    assert by_sentence.evaluator_version.startswith("1-sentence+")
    assert by_chunk.prompt_sha256 == by_sentence.prompt_sha256


def test_another_unit_is_refused() -> None:
    with pytest.raises(ConfigError, match="`unit` is chunk or sentence, not 'word'"):
        metric_named("context_relevance", unit="word")
