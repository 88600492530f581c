"""RAGAS' metrics as in its collections (0.4): strict parsing, with retries.

Source: RAGAS 0.4.3, compared with this module. Surprising behavior:

- A reply must be a bare JSON object. After three retries, the metric raises. A reply that ends at the limit
  of 1024 tokens raises at once.
- Verdicts are not matched with statements: the score divides by the number of verdicts.
- Context precision and recall calculate with the integers the judge wrote, so they can leave [0, 1].
- The two judges of context relevance and groundedness have up to five tries each, after any failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from ragtrace.compat import _ragas_prompts as prompts
from ragtrace.compat._ragas_measures import (
    MadeQuestionReply,
    RagasRules,
    RagasUnreadable,
    Rating,
    context_of,
    immediate_score,
    questions_run,
    ragas_metrics,
    ratings_run,
    read_to_the_letter,
)
from ragtrace.compat.tool import ToolCalls, ToolOptions, ToolRun
from ragtrace.model import Part, RagRecord
from ragtrace.ports import SamplingParameters

FormT = TypeVar("FormT", bound=BaseModel)

_PROFILE = "ragas"
_SAMPLING = SamplingParameters(temperature=0.01, top_p=0.1, json_object=True)
_MAX_TOKENS = 1024
_TRIES_A_JUDGE = 5
_RATINGS = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A run of a metric: its calls and options."""

    calls: ToolCalls
    options: ToolOptions
    profile: str = _PROFILE

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


async def _answer_relevance(record: RagRecord, asking: _Asking) -> ToolRun:
    prompt = prompts.made_question(record.answer or "")
    replies = [
        await asking.ask("question", prompt, MadeQuestionReply) for _ in range(asking.options.strictness)
    ]
    made = [reply for reply in replies if reply.question]
    asked = record.question or ""
    if not made:
        return questions_run(_PROFILE, asked, (), {})
    texts = [reply.question for reply in made]
    if not all(text.strip() for text in (asked, *texts)):
        return ToolRun.failed("ragas embeds no text that is only blanks")
    vectors = [*await asking.calls.embed([asked]), *await asking.calls.embed(texts)]
    return questions_run(_PROFILE, asked, made, dict(zip((asked, *texts), vectors, strict=True)))


async def _groundedness(record: RagRecord, asking: _Asking) -> ToolRun:
    answer, context = record.answer or "", context_of(record)
    if not answer.strip() or not context.strip():
        return immediate_score(0.0, "the answer or the context is blank")
    first = await asking.rating("groundedness1", prompts.supports(context, answer))
    second = await asking.rating("groundedness2", prompts.supports_again(context, answer))
    return ratings_run(_PROFILE, "groundedness", (first, second))


def _missing(record: RagRecord, needs: tuple[Part, ...]) -> str:
    return " and ".join(part.value for part in needs if not _has(record, part))


def _has(record: RagRecord, part: Part) -> bool:
    match part:
        case Part.QUESTION:
            return bool(record.question)
        case Part.ANSWER:
            return bool(record.answer)
        case Part.REFERENCE:
            return bool(record.reference)
        case Part.CONTEXT:
            return bool(record.chunks) and all(chunk.text is not None for chunk in record.chunks)


METRICS = ragas_metrics(
    RagasRules(
        profile=_PROFILE,
        asking=lambda calls, options: _Asking(calls=calls, options=options),
        missing=_missing,
        answer_relevance=_answer_relevance,
        groundedness=_groundedness,
    )
)
