"""RAGAS' legacy metrics (`ragas.metrics`, still shipped with 0.4): lenient parsing, one repair.

Source: RAGAS 0.4.3, compared with this module. Surprising behavior:

- The first JSON in a reply counts, even if it was truncated; values are converted. If that fails, the reply
  is sent back once for repair; then the metric raises, which RAGAS' `evaluate()` turns into NaN.
- Only a missing field is refused: an empty answer or context is judged like any other.
- Any digit in the text of a rating counts, 2 before 1 before 0: "1 out of 2" is 2.
- Groundedness is 1 without a call if the context contains the answer verbatim. If the first of two judges
  fails, the score is NaN; if the second fails, it is the first's rating.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from ragtrace.compat import _ragas_prompts as prompts
from ragtrace.compat._ragas_measures import (
    FixedText,
    MadeQuestionReply,
    RagasRun,
    RagasUnreadable,
    questions_run,
    read_leniently,
    read_repaired,
)
from ragtrace.compat.tool import ToolRun, missing_parts
from ragtrace.model import Part, RagRecord
from ragtrace.ports import FreeText, SamplingParameters

FormT = TypeVar("FormT", bound=BaseModel)

_ONE = SamplingParameters(temperature=0.01)
_SEVERAL = SamplingParameters(temperature=0.3)
_RATING = SamplingParameters(temperature=0.1)
_TRIES_A_JUDGE = 5


class _Legacy(RagasRun):
    profile = "ragas-legacy"
    judges_verbatim = False

    async def ask(self, step: str, prompt: str, form: type[FormT]) -> FormT:
        """Ask, and repair the reply once if needed.

        Raises:
            RagasUnreadable: the repaired reply does not have the form either.
        """
        return await self.read(step, prompt, form, await self._finished(step, prompt, _ONE))

    async def read(self, step: str, prompt: str, form: type[FormT], reply: str) -> FormT:
        try:
            return read_leniently(reply, form)
        except RagasUnreadable:
            fixed = await self._finished("fix", prompts.repair(prompt, reply), _ONE)
        try:
            return read_repaired(_fixed(fixed), form)
        except RagasUnreadable as exc:
            raise RagasUnreadable(
                f"the reply to `{step}` could not be read, nor be repaired: {exc}"
            ) from None

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no reply contains a rating."""
        for _ in range(_TRIES_A_JUDGE):
            reply = await self._text(step, prompts.as_digit(prompt), _RATING)
            found = next((digit for digit in (2, 1, 0) if str(digit) in reply.text), None)
            if found is not None:
                return found
        return None

    async def _finished(self, step: str, prompt: str, sampling: SamplingParameters) -> str:
        reply = await self._text(step, prompt, sampling)
        if reply.cut_off:
            raise RagasUnreadable(f"the reply to `{step}` ended at the token limit")
        return reply.text

    async def _text(self, step: str, prompt: str, sampling: SamplingParameters) -> FreeText:
        return await self.calls.text(step, prompt, sampling=sampling)

    async def answer_relevance(self, record: RagRecord) -> ToolRun:
        """Compare the question with questions made from the answer; all are asked for before one is read."""
        prompt, times = prompts.made_question(record.answer or ""), self.options.strictness
        sampling = _SEVERAL if times > 1 else _ONE
        replies = [await self._finished("question", prompt, sampling) for _ in range(times)]
        made = [await self.read("question", prompt, MadeQuestionReply, reply) for reply in replies]
        asked, texts = record.question or "", [reply.question for reply in made]
        if not any(texts):
            return questions_run(self.profile, asked, (), {})
        vectors = [*await self.calls.embed([asked]), *await self.calls.embed(texts)]
        return questions_run(self.profile, asked, made, dict(zip((asked, *texts), vectors, strict=True)))

    @classmethod
    def missing(cls, record: RagRecord, needs: tuple[Part, ...]) -> str:
        """Name the missing parts; empty ones are there."""
        return missing_parts(record, needs)


def _fixed(reply: str) -> str:
    """Return the repaired reply; models also send it bare instead of in an object."""
    try:
        return read_leniently(reply, FixedText).text
    except RagasUnreadable:
        return reply


METRICS = _Legacy.metrics()
