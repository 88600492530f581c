"""Replies as models really write them: each ends as verdicts or as a typed failure, never as a number."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.errors import JudgeNonsense
from ragtrace.judge import ScriptedJudge
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply
from ragtrace.metrics import StepLimits
from ragtrace.model import Chunk, MetricFailure, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

RECORD = RagRecord(
    id="r",
    question="How long do refunds take?",
    chunks=(Chunk(id="a", text="Refunds take 14 days.", rank=0), Chunk(id="b", text="We ship.", rank=1)),
    answer="Refunds take 14 days. Ask early.",
    reference="Refunds take 14 days. Ask early.",
)
GRADES = '{"chunks": [{"id": 1, "reason": "", "relevance": 2}, {"id": 2, "reason": "", "relevance": 0}]}'
VERDICTS = (
    '{"verdicts": [{"id": 1, "chunks": [1], "quote": "14 days", "label": "supported", "reason": ""},'
    ' {"id": 2, "chunks": [], "quote": "", "label": "not_mentioned", "reason": ""}]}'
)
METRIC_OF = {"chunks": "chunk_precision", "recall": "context_recall", "relevance": "answer_relevance"}


def one_grade(**fields: Any) -> str:
    entry = {"id": "1", "reason": '""', "relevance": "2", **fields}
    first = ", ".join(f'"{name}": {value}' for name, value in entry.items())
    return f'{{"chunks": [{{{first}}}, {{"id": 2, "reason": "", "relevance": 0}}]}}'


async def ended(step: str, *texts: str) -> str:
    """Return how a metric ends when the judge writes these texts in turn; the last stays."""
    words, waiting = ScriptedJudge(), list(texts)

    def respond(request: JudgeRequest[Any]) -> Any:
        if request.step != step:
            return words.reply_to(request)
        try:
            return parse_reply(waiting.pop(0) if len(waiting) > 1 else waiting[0], request.reply_type)
        except (InvalidReply, NotJson) as exc:
            raise JudgeNonsense("no reply of this form") from exc

    judge, limits = ScriptedJudge(respond), StepLimits()
    [outcome] = (await evaluate(RECORD, metrics=[METRIC_OF[step]], judge=judge, limits=limits)).outcomes
    if isinstance(outcome, MetricFailure):
        return outcome.error_type
    verdicts = [verdict.label.value for verdict in (*outcome.verdicts, *outcome.chunk_verdicts)]
    return f"{outcome.score} {' '.join(verdicts)}"


@pytest.mark.parametrize(
    ("relevance", "expected"),
    [
        ("3", "judge_nonsense"),
        ("-1", "judge_nonsense"),
        ("1.5", "judge_nonsense"),
        ("NaN", "judge_nonsense"),
        ("null", "judge_nonsense"),
        ("true", "judge_nonsense"),
        ('"two"', "judge_nonsense"),
        ('"relevant"', "judge_nonsense"),
        ('"sehr relevant"', "judge_nonsense"),
    ],
)
async def test_a_grade_in_foreign_words_or_numbers_is_a_failure(relevance: str, expected: str) -> None:
    assert await ended("chunks", one_grade(relevance=relevance)) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"chunks": []}',
        '{"chunks": [{"id": 1, "reason": "", "relevance": 2}]}',
        one_grade(id="7"),
        one_grade(id="-1"),
        one_grade(id="2"),
        GRADES.replace("]}", ', {"id": 3, "reason": "", "relevance": 2}]}'),
    ],
)
async def test_numbers_of_chunks_are_checked(text: str) -> None:
    assert await ended("chunks", text) == "judge_nonsense"
    assert await ended("chunks", text, GRADES) == "0.5 relevant irrelevant"


@pytest.mark.parametrize("label", ["SUPPORTED", "Supported", "entailment"])
@pytest.mark.parametrize("number", ['"1"', '"claim 1"', "1.0"])
async def test_labels_and_numbers_are_read_as_models_write_them(label: str, number: str) -> None:
    text = VERDICTS.replace("supported", label, 1).replace('"id": 1', f'"id": {number}')
    assert await ended("recall", text) == "0.5 supported unsupported"
