"""Step Q: ask for questions that the answer would answer, and measure their similarity to the real one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragtrace.errors import JudgeNonsense
from ragtrace.judge_forms import QuestionsInput, QuestionsReply
from ragtrace.judge_steps import Prompt, Regeneration
from ragtrace.metrics.prompt import render_questions
from ragtrace.ports import Judge, JudgeRequest

_OUTPUT_TOKENS = 512
_ROUNDING = 1e-9


async def regenerate_questions(answer: str, *, judge: Judge, prompt: Prompt, fence_code: str) -> Regeneration:
    """Ask for questions that the answer would answer; the judge does not see the real one.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    given = QuestionsInput(answer=answer)
    reply = await judge.ask(
        JudgeRequest(
            step="questions",
            system=prompt.text,
            user=render_questions(given, fence_code),
            reply_type=QuestionsReply,
            inputs=given,
            max_output_tokens=_OUTPUT_TOKENS,
        )
    )
    worded = (" ".join(question.split()) for question in reply.value.questions)
    questions = dict.fromkeys(question for question in worded if question)
    return Regeneration(questions=tuple(questions), noncommittal=reply.value.noncommittal)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors, in [-1, 1].

    Raises:
        JudgeNonsense: a length is 0 or not finite, or the dimensions differ.
    """
    if len(one) != len(other):
        raise JudgeNonsense(f"the embedder gave vectors of {len(one)} and {len(other)} dimensions")
    lengths = math.hypot(*one) * math.hypot(*other)
    if not lengths or not math.isfinite(lengths):
        raise JudgeNonsense("the embedder gave a vector whose length is 0 or not finite")
    value = math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths
    return math.copysign(1.0, value) if 1 < abs(value) < 1 + _ROUNDING else value  # a rounding error
