"""Step Q: ask for questions that the answer would answer, and measure their similarity to the real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ragtrace.errors import JudgeNonsense
from ragtrace.judge_forms import QuestionsInput, QuestionsReply
from ragtrace.judge_steps import Regeneration
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.steps.step import Material, Step

_OUTPUT_TOKENS = 512
_ROUNDING = 1e-9


async def regenerate_questions(material: Material) -> Regeneration:
    """Ask for questions that the answer would answer; the judge does not see the real one."""
    shown = material.sentences
    given = QuestionsInput(answer=(material.record.answer or "")[: shown[-1].end] if shown else "")
    reply = await material.judge.ask(QUESTIONS.request(given, material))
    worded = (" ".join(question.split()) for question in reply.value.questions)
    questions = dict.fromkeys(question for question in worded if question)
    return Regeneration(questions=tuple(questions), noncommittal=reply.value.noncommittal)


def _render(given: QuestionsInput, code: str) -> str:
    return fenced(code, [("answer", [given.answer])])


QUESTIONS: Final = Step(
    name="questions",
    prompts=("questions",),
    reply=QuestionsReply,
    render=_render,
    output_tokens=lambda given: _OUTPUT_TOKENS,
    run=regenerate_questions,
)


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
