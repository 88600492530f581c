"""What the lexical and the scripted judge say to the steps beyond claims, and what they leave alone."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.errors import JudgeUnable
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.judge_forms import ExtractInput, NumberedText
from ragtrace.metrics.session import StepSession
from ragtrace.model import Chunk, RagRecord, VerdictLabel
from ragtrace.ports import FreeText, Judge, JudgeRequest, YesProbability

RECORD = RagRecord(
    id="r",
    question="When was the large museum founded?",
    chunks=(
        Chunk(id="a", text="The large museum was founded in 1887.", rank=0),
        Chunk(id="b", text="Every museum sells tickets.", rank=1),
        Chunk(id="c", text="Water boils at 100 degrees.", rank=2),
    ),
    answer="The large museum was founded in 1887. Tickets are cheap.",
    reference="The large museum was founded in 1887. It burned down in 1930.",
)


async def test_the_lexical_judge_abstains_from_the_worth_of_statements_and_chunks() -> None:
    steps = StepSession(RECORD, LexicalJudge())
    assert {each.label for each in (await steps.chunks()).verdicts} == {VerdictLabel.UNJUDGED}
    assert steps.usage.calls == 1
    statements = await steps.relevance()
    assert {each.label for each in statements} == {VerdictLabel.UNJUDGED}
    assert all("comparing words" in (each.reason or "") for each in statements)
    assert len((await steps.extract()).claims) == 2


@pytest.mark.parametrize("judge", [LexicalJudge(), ScriptedJudge()])
@pytest.mark.parametrize("form", [FreeText, YesProbability])
async def test_a_judge_that_computes_writes_no_prose_and_has_no_probabilities(
    judge: Judge, form: Any
) -> None:
    inputs = ExtractInput(question=None, sentences=(NumberedText(number=1, text="A."),))
    request: JudgeRequest[Any] = JudgeRequest(
        step="extract", system="", user="", reply_type=form, inputs=inputs, max_output_tokens=9
    )
    with pytest.raises(JudgeUnable, match="extract"):
        await judge.ask(request)


async def test_without_a_script_chunks_are_graded_by_the_words_of_the_question() -> None:
    found = await StepSession(RECORD, ScriptedJudge()).chunks()
    assert [each.label.value for each in found.verdicts] == ["relevant", "partly_relevant", "irrelevant"]


async def test_a_script_says_what_chunks_and_statements_are_worth() -> None:
    script = {
        "chunks": {"boils": {"relevance": 2, "reason": "hot"}, "tickets": 0},
        "answers": {
            "large museum": {
                "claims": [{"text": "Founded in 1887.", "relevance": "supporting"}, "Tickets are cheap."]
            }
        },
        "questions": {"tickets": ["What does it cost?", " ", "What does it cost?"]},
    }
    steps = StepSession(RECORD, ScriptedJudge(Script.model_validate(script)))
    graded = (await steps.chunks()).verdicts
    assert [(each.label.value, each.reason) for each in graded][1:] == [
        ("irrelevant", None),
        ("relevant", "hot"),
    ]
    assert [each.label.value for each in await steps.relevance()] == ["partly_relevant", "relevant"]
    assert (await steps.questions()).questions == ("What does it cost?",)
