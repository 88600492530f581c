"""RAGAS' metrics as in its collections (0.4): strict parsing, with retries.

Source: RAGAS 0.4.3, compared with this module. Surprising behavior:

- A reply must be a bare JSON object. After three retries, the metric raises. A reply that ends at the limit
  of 1024 tokens raises at once.
- Verdicts are not matched with statements: the score divides by the number of verdicts.
- Context precision and recall calculate with the integers the judge wrote, so they can leave [0, 1].
- The two judges of context relevance and groundedness have up to five tries each, after any failure.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from ragtrace.compat import _ragas_prompts as prompts
from ragtrace.compat._ragas_measures import (
    MadeQuestionReply,
    RagasRun,
    RagasUnreadable,
    Rating,
    questions_run,
    read_to_the_letter,
)
from ragtrace.compat.tool import ToolRun
from ragtrace.model import Part, RagRecord
from ragtrace.ports import SamplingParameters

FormT = TypeVar("FormT", bound=BaseModel)

_SAMPLING = SamplingParameters(temperature=0.01, top_p=0.1, json_object=True)
_MAX_TOKENS = 1024
_TRIES_A_JUDGE = 5
_RATINGS = (0, 1, 2)


class _Collections(RagasRun):
    profile = "ragas"

    async def ask(self, step: str, prompt: str, form: type[FormT]) -> FormT:
        """Ask until the reply has the form, up to the number of tries.

        Raises:
            RagasUnreadable: no reply had the form.
        """
        wish = prompt
        for _ in range(self.options.max_retries + 1):
            reply = await self.calls.text(step, wish, sampling=_SAMPLING, max_output_tokens=_MAX_TOKENS)
            if reply.cut_off:
                raise RagasUnreadable(f"the reply to `{step}` ended at {_MAX_TOKENS} tokens")
            try:
                return read_to_the_letter(reply.text, form)
            except RagasUnreadable as exc:
                fault = exc
                wish = prompts.correction(prompt, reply.text, str(exc))
        tries = self.options.max_retries + 1
        raise RagasUnreadable(f"the reply to `{step}` could not be read in {tries} tries: {fault}")

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no try gave a rating."""
        for _ in range(_TRIES_A_JUDGE):
            try:
                reply = await self.ask(step, prompts.as_json(prompt), Rating)
            except RagasUnreadable:
                continue
            if reply.rating in _RATINGS:
                return reply.rating
        return None

    async def answer_relevance(self, record: RagRecord) -> ToolRun:
        """Compare the question with questions made from the answer, blank ones left out."""
        prompt = prompts.made_question(record.answer or "")
        replies = [
            await self.ask("question", prompt, MadeQuestionReply) for _ in range(self.options.strictness)
        ]
        made = [reply for reply in replies if reply.question]
        asked = record.question or ""
        if not made:
            return questions_run(self.profile, asked, (), {})
        texts = [reply.question for reply in made]
        if not all(text.strip() for text in (asked, *texts)):
            return ToolRun.failed("ragas embeds no text that is only blanks")
        vectors = [*await self.calls.embed([asked]), *await self.calls.embed(texts)]
        return questions_run(self.profile, asked, made, dict(zip((asked, *texts), vectors, strict=True)))

    @classmethod
    def missing(cls, record: RagRecord, needs: tuple[Part, ...]) -> str:
        """Name the missing parts; empty ones are missing."""
        there = {
            Part.QUESTION: bool(record.question),
            Part.ANSWER: bool(record.answer),
            Part.REFERENCE: bool(record.reference),
            Part.CONTEXT: bool(record.chunks) and all(chunk.text is not None for chunk in record.chunks),
        }
        return " and ".join(part.value for part in needs if not there[part])


METRICS = _Collections.metrics()
