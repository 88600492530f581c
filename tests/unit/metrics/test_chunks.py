"""Step C: what is asked about chunks, and what of the reply is believed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import ChunkRelevance, ChunksInput, ChunksReply, GivenGrade
from ragtrace.metrics import StepLimits
from ragtrace.metrics.session import StepSession
from ragtrace.model import Chunk, ChunkVerdict, RagRecord
from ragtrace.ports import JudgeRequest


def record(*texts: str) -> RagRecord:
    chunks = tuple(Chunk(id=f"c{n}", text=text, rank=n) for n, text in enumerate(texts, start=1))
    return RagRecord(id="r", question="How long?", chunks=chunks, answer=None)


def shown(request: JudgeRequest[Any]) -> list[int]:
    return [chunk.number for chunk in cast(ChunksInput, request.inputs).chunks]


def grade(number: int, relevance: ChunkRelevance = 2) -> GivenGrade:
    return GivenGrade(id=number, reason="", relevance=relevance)


def all_relevant(request: JudgeRequest[Any]) -> ChunksReply:
    return ChunksReply(chunks=[grade(number) for number in shown(request)])


def judge(*replies: Any) -> ScriptedJudge:
    """Give the replies in turn; the last stays. Errors are raised."""
    waiting = list(replies)

    def respond(request: JudgeRequest[Any]) -> Any:
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        reply = reply(request) if callable(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        return reply

    return ScriptedJudge(respond)


def labels(verdicts: tuple[ChunkVerdict, ...]) -> str:
    return " ".join(verdict.label.value[:3] for verdict in verdicts)


TEN = tuple(f"Text number {n}." for n in range(1, 11))


async def test_chunks_are_shuffled_the_same_way_each_time_under_numbers_that_stay() -> None:
    first, second = judge(all_relevant), judge(all_relevant)
    for scripted in (first, second):
        await StepSession(record(*TEN), scripted).chunks()
    order = shown(first.requests[0])
    assert sorted(order) == list(range(1, 11)) != order
    assert shown(second.requests[0]) == order
    assert first.requests[0].user == second.requests[0].user
    texts = {chunk.number: chunk.text for chunk in first.requests[0].inputs.chunks}  # type: ignore[attr-defined]
    assert texts == dict(enumerate(TEN, start=1))


@pytest.mark.parametrize(
    ("of_pieces", "expected"), [([0, 2, 0], "rel"), ([0, 1, 0], "par"), ([0, 0, 0], "irr")]
)
async def test_a_chunk_in_pieces_is_worth_what_its_best_piece_is(of_pieces: list[Any], expected: str) -> None:
    replies = [ChunksReply(chunks=[grade(1, relevance)]) for relevance in of_pieces]
    scripted = judge(*replies)
    long = " ".join(f"word{n}" for n in range(20))
    steps = StepSession(record(long), scripted, limits=StepLimits(context_chars=64))
    assert labels((await steps.chunks()).verdicts) == expected
    assert len(scripted.requests) == 3


async def test_a_long_chunk_is_not_called_useless_before_all_of_it_was_shown() -> None:
    scripted = judge(ChunksReply(chunks=[grade(1, 0)]))
    long = " ".join(f"word{n}" for n in range(20))
    steps = StepSession(record(long), scripted, limits=StepLimits(context_chars=64, max_packs=1))
    [only] = (await steps.chunks()).verdicts
    assert only.label == "unjudged"
