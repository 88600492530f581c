"""RAGAS' metrics, as in its collections (0.4): strict replies, and what is unreadable is asked for again.

Source: RAGAS 0.4.3, run side by side with this module. What may surprise:

- A reply must be the JSON object and nothing else; it is asked for again three times, then the metric raises.
  A reply that ends at the limit of 1024 tokens raises at once.
- Verdicts are not matched with statements: the score divides by the verdicts that came.
- Context precision and recall calculate with the integers the judge wrote, so that they leave [0, 1].
- The two judges of context relevance and groundedness are asked up to five times each, whatever went wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from pydantic import BaseModel

from ragtrace.compat import ragas_prompts as prompts
from ragtrace.compat.material import contexts_of
from ragtrace.compat.peer import PeerCalls, PeerMetric, PeerOptions, PeerRun
from ragtrace.compat.ragas_readings import (
    claims_run,
    nodes_run,
    questions_run,
    ratings_run,
    recall_run,
)
from ragtrace.compat.ragas_replies import (
    Classifications,
    JudgedStatements,
    MadeQuestionReply,
    Rating,
    Statements,
    Unreadable,
    Usefulness,
    read_to_the_letter,
)
from ragtrace.model import CompatStatus, Direction, Part, RagRecord
from ragtrace.ports import SamplingParameters

__all__ = ["METRICS", "RagasMetric"]

FormT = TypeVar("FormT", bound=BaseModel)

_SAMPLING = SamplingParameters(temperature=0.01, top_p=0.1, json_object=True)
_MAX_TOKENS = 1024
_TRIES_A_JUDGE = 5
_RATINGS = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RagasMetric:
    """One metric of the collections."""

    metric: str
    measure: Callable[[RagRecord, _Asking], Awaitable[PeerRun]]
    needs: tuple[Part, ...]
    profile: str = "ragas"
    direction: Direction = Direction.HIGHER_IS_BETTER
    threshold: float = 0.5

    async def run(self, record: RagRecord, calls: PeerCalls, options: PeerOptions) -> PeerRun:
        """Measure the record as the collections do, one call after another."""
        missing = [part.value for part in self.needs if not _has(record, part)]
        if missing:
            return PeerRun.failed(f"ragas refuses a sample without {' and '.join(missing)}")
        try:
            return await self.measure(record, _Asking(calls=calls, options=options))
        except Unreadable as exc:
            return PeerRun.failed(str(exc))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A run of a metric: where it asks, and under which options."""

    calls: PeerCalls
    options: PeerOptions

    async def ask(self, step: str, prompt: str, form: type[FormT]) -> FormT:
        """Ask until the reply has the form, at most so often.

        Raises:
            Unreadable: it never had.
        """
        wish = prompt
        for _ in range(self.options.max_retries + 1):
            reply = await self.calls.text(step, wish, sampling=_SAMPLING, max_output_tokens=_MAX_TOKENS)
            if reply.cut_off:
                raise Unreadable(f"the reply to `{step}` ended at {_MAX_TOKENS} tokens")
            try:
                return read_to_the_letter(reply.text, form)
            except Unreadable as exc:
                fault = exc
                wish = prompts.correction(prompt, reply.text, str(exc))
        tries = self.options.max_retries + 1
        raise Unreadable(f"the reply to `{step}` could not be read in {tries} tries: {fault}")

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if it gave no rating in all its tries."""
        for _ in range(_TRIES_A_JUDGE):
            try:
                reply = await self.ask(step, prompts.as_json(prompt), Rating)
            except Unreadable:
                continue
            if reply.rating in _RATINGS:
                return reply.rating
        return None


async def _faithfulness(record: RagRecord, asking: _Asking) -> PeerRun:
    prompt = prompts.statements(record.question or "", record.answer or "")
    stated = (await asking.ask("statements", prompt, Statements)).statements
    if not stated:
        return claims_run("ragas", stated, ())
    prompt = prompts.verdicts(_context(record), stated)
    judged = (await asking.ask("verdicts", prompt, JudgedStatements)).statements
    return claims_run("ragas", stated, judged)


async def _answer_relevance(record: RagRecord, asking: _Asking) -> PeerRun:
    prompt = prompts.made_question(record.answer or "")
    replies = [
        await asking.ask("question", prompt, MadeQuestionReply) for _ in range(asking.options.strictness)
    ]
    made = [reply for reply in replies if reply.question]
    asked = record.question or ""
    if not made:
        return questions_run("ragas", asked, (), {})
    texts = [reply.question for reply in made]
    if not all(text.strip() for text in (asked, *texts)):
        return PeerRun.failed("ragas embeds no text that is only blanks")
    vectors = [*await asking.calls.embed([asked]), *await asking.calls.embed(texts)]
    return questions_run("ragas", asked, made, dict(zip((asked, *texts), vectors, strict=True)))


async def _context_precision(
    record: RagRecord, asking: _Asking, beside: Literal["reference", "answer"]
) -> PeerRun:
    answer = (record.reference if beside == "reference" else record.answer) or ""
    verdicts = [
        await asking.ask(
            "ctx_verdict", prompts.usefulness(record.question or "", context, answer), Usefulness
        )
        for context in contexts_of(record)
    ]
    return nodes_run("ragas", record, verdicts)


async def _context_recall(record: RagRecord, asking: _Asking) -> PeerRun:
    prompt = prompts.recall(record.question or "", _context(record), record.reference or "")
    return recall_run("ragas", (await asking.ask("recall", prompt, Classifications)).classifications)


async def _context_relevance(record: RagRecord, asking: _Asking) -> PeerRun:
    question, context = record.question or "", _context(record)
    if not question.strip() or context.strip() in question.strip():
        return _zero("the question holds the whole context, or one of them is blank")
    first = await asking.rating("relevance1", prompts.worth_of_context(question, context))
    second = await asking.rating("relevance2", prompts.worth_of_context_again(question, context))
    return ratings_run("ragas", "context_relevance", (first, second))


async def _groundedness(record: RagRecord, asking: _Asking) -> PeerRun:
    answer, context = record.answer or "", _context(record)
    if not answer.strip() or not context.strip():
        return _zero("the answer or the context is blank")
    first = await asking.rating("groundedness1", prompts.supports(context, answer))
    second = await asking.rating("groundedness2", prompts.supports_again(context, answer))
    return ratings_run("ragas", "groundedness", (first, second))


def _context(record: RagRecord) -> str:
    return "\n".join(contexts_of(record))


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


def _zero(explanation: str) -> PeerRun:
    return PeerRun(status=CompatStatus.OK, score=0.0, explanation=f"{explanation}: ragas scores that 0")


METRICS: tuple[PeerMetric, ...] = (
    RagasMetric(
        metric="faithfulness", measure=_faithfulness, needs=(Part.QUESTION, Part.ANSWER, Part.CONTEXT)
    ),
    RagasMetric(metric="answer_relevance", measure=_answer_relevance, needs=(Part.QUESTION, Part.ANSWER)),
    RagasMetric(
        metric="context_precision",
        measure=partial(_context_precision, beside="reference"),
        needs=(Part.QUESTION, Part.CONTEXT, Part.REFERENCE),
    ),
    RagasMetric(
        metric="context_utilization",
        measure=partial(_context_precision, beside="answer"),
        needs=(Part.QUESTION, Part.CONTEXT, Part.ANSWER),
    ),
    RagasMetric(
        metric="context_recall",
        measure=_context_recall,
        needs=(Part.QUESTION, Part.CONTEXT, Part.REFERENCE),
    ),
    RagasMetric(metric="context_relevance", measure=_context_relevance, needs=(Part.QUESTION, Part.CONTEXT)),
    RagasMetric(metric="groundedness", measure=_groundedness, needs=(Part.ANSWER, Part.CONTEXT)),
)
