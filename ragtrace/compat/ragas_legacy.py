"""RAGAS' metrics of old (`ragas.metrics`, still shipped with 0.4): lenient replies, one repair.

Source: RAGAS 0.4.3, run side by side with this module. What may surprise:

- The first JSON in a reply counts, also where it was cut; values are converted. What still has no form is
  sent back once to be repaired, then the metric raises, which `evaluate()` there turns into NaN.
- Only a missing field is refused: an empty answer or context is judged like any other.
- Any digit in the text of a rating counts, 2 before 1 before 0: "1 out of 2" is 2.
- Groundedness is 1 without a call for an answer that the context holds verbatim. If the first of two judges
  fails the score is NaN; if the second does it is the first's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from pydantic import BaseModel

from ragtrace.compat import ragas_prompts as prompts
from ragtrace.compat.material import contexts_of, missing_parts
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
    FixedText,
    JudgedStatements,
    MadeQuestionReply,
    Statements,
    Unreadable,
    Usefulness,
    read_leniently,
    read_repaired,
)
from ragtrace.model import CompatStatus, Direction, Part, RagRecord
from ragtrace.ports import FreeText, SamplingParameters

__all__ = ["METRICS", "LegacyRagasMetric"]

FormT = TypeVar("FormT", bound=BaseModel)

_PROFILE = "ragas-legacy"
_ONE = SamplingParameters(temperature=0.01)
_SEVERAL = SamplingParameters(temperature=0.3)
_RATING = SamplingParameters(temperature=0.1)
_TRIES_A_JUDGE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyRagasMetric:
    """One of the metrics of old."""

    metric: str
    measure: Callable[[RagRecord, _Asking], Awaitable[PeerRun]]
    needs: tuple[Part, ...]
    profile: str = _PROFILE
    direction: Direction = Direction.HIGHER_IS_BETTER
    threshold: float = 0.5

    async def run(self, record: RagRecord, calls: PeerCalls, options: PeerOptions) -> PeerRun:
        """Measure the record as the metrics of old do, one call after another."""
        missing = missing_parts(record, self.needs)
        if missing:
            return PeerRun.failed(f"ragas refuses a sample without {missing}")
        try:
            return await self.measure(record, _Asking(calls=calls, options=options))
        except Unreadable as exc:
            return PeerRun.failed(str(exc))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A run of a metric: where it asks, and under which options."""

    calls: PeerCalls
    options: PeerOptions

    async def ask(
        self, step: str, prompt: str, form: type[FormT], sampling: SamplingParameters = _ONE
    ) -> FormT:
        """Ask, and have the reply repaired once.

        Raises:
            Unreadable: it still has not the form.
        """
        return await self.read(step, prompt, form, await self._finished(step, prompt, sampling))

    async def all_of(self, step: str, prompt: str, form: type[FormT], times: int) -> list[FormT]:
        """Ask several times, then read the replies.

        Raises:
            Unreadable: a reply has not the form, and repaired it still has not.
        """
        sampling = _SEVERAL if times > 1 else _ONE
        replies = [await self._finished(step, prompt, sampling) for _ in range(times)]
        return [await self.read(step, prompt, form, reply) for reply in replies]

    async def read(self, step: str, prompt: str, form: type[FormT], reply: str) -> FormT:
        try:
            return read_leniently(reply, form)
        except Unreadable:
            fixed = await self._finished("fix", prompts.repair(prompt, reply), _ONE)
        try:
            return read_repaired(_fixed(fixed), form)
        except Unreadable as exc:
            raise Unreadable(f"the reply to `{step}` could not be read, nor be repaired: {exc}") from None

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no reply holds a rating."""
        for _ in range(_TRIES_A_JUDGE):
            reply = await self._text(step, prompts.as_digit(prompt), _RATING)
            found = next((digit for digit in (2, 1, 0) if str(digit) in reply.text), None)
            if found is not None:
                return found
        return None

    async def _finished(self, step: str, prompt: str, sampling: SamplingParameters) -> str:
        reply = await self._text(step, prompt, sampling)
        if reply.cut_off:
            raise Unreadable(f"the reply to `{step}` ended at the token limit")
        return reply.text

    async def _text(self, step: str, prompt: str, sampling: SamplingParameters) -> FreeText:
        return await self.calls.text(step, prompt, sampling=sampling)


def _fixed(reply: str) -> str:
    """Return the repaired reply; models also send it bare, without the object it should come in."""
    try:
        return read_leniently(reply, FixedText).text
    except Unreadable:
        return reply


async def _faithfulness(record: RagRecord, asking: _Asking) -> PeerRun:
    prompt = prompts.statements(record.question or "", record.answer or "")
    stated = (await asking.ask("statements", prompt, Statements)).statements
    if not stated:
        return claims_run(_PROFILE, stated, ())
    prompt = prompts.verdicts(_context(record), stated)
    judged = (await asking.ask("verdicts", prompt, JudgedStatements)).statements
    return claims_run(_PROFILE, stated, judged)


async def _answer_relevance(record: RagRecord, asking: _Asking) -> PeerRun:
    prompt = prompts.made_question(record.answer or "")
    made = await asking.all_of("question", prompt, MadeQuestionReply, asking.options.strictness)
    asked, texts = record.question or "", [reply.question for reply in made]
    if not any(texts):
        return questions_run(_PROFILE, asked, (), {})
    vectors = [*await asking.calls.embed([asked]), *await asking.calls.embed(texts)]
    return questions_run(_PROFILE, asked, made, dict(zip((asked, *texts), vectors, strict=True)))


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
    return nodes_run(_PROFILE, record, verdicts)


async def _context_recall(record: RagRecord, asking: _Asking) -> PeerRun:
    prompt = prompts.recall(record.question or "", _context(record), record.reference or "")
    return recall_run(_PROFILE, (await asking.ask("recall", prompt, Classifications)).classifications)


async def _context_relevance(record: RagRecord, asking: _Asking) -> PeerRun:
    question, context = record.question or "", _context(record)
    if not question.strip() or context.strip() in question.strip():
        return _at_once(0.0, "the question holds the whole context, or one of them is blank")
    first = await asking.rating("relevance1", prompts.worth_of_context(question, context))
    second = await asking.rating("relevance2", prompts.worth_of_context_again(question, context))
    return ratings_run(_PROFILE, "context_relevance", (first, second))


async def _groundedness(record: RagRecord, asking: _Asking) -> PeerRun:
    answer, context = record.answer or "", _context(record)
    if not answer.strip() or not context.strip():
        return _at_once(0.0, "the answer or the context is blank")
    if answer.strip() in context.strip():
        return _at_once(1.0, "the answer stands in the context word for word")
    first = await asking.rating("groundedness1", prompts.supports(context, answer))
    second = await asking.rating("groundedness2", prompts.supports_again(context, answer))
    return ratings_run(_PROFILE, "groundedness", (first, second))


def _context(record: RagRecord) -> str:
    return "\n".join(contexts_of(record))


def _at_once(score: float, explanation: str) -> PeerRun:
    return PeerRun(
        status=CompatStatus.OK, score=score, explanation=f"{explanation}: ragas scores that {score:g}"
    )


METRICS: tuple[PeerMetric, ...] = (
    LegacyRagasMetric(
        metric="faithfulness", measure=_faithfulness, needs=(Part.QUESTION, Part.ANSWER, Part.CONTEXT)
    ),
    LegacyRagasMetric(
        metric="answer_relevance", measure=_answer_relevance, needs=(Part.QUESTION, Part.ANSWER)
    ),
    LegacyRagasMetric(
        metric="context_precision",
        measure=partial(_context_precision, beside="reference"),
        needs=(Part.QUESTION, Part.CONTEXT, Part.REFERENCE),
    ),
    LegacyRagasMetric(
        metric="context_utilization",
        measure=partial(_context_precision, beside="answer"),
        needs=(Part.QUESTION, Part.CONTEXT, Part.ANSWER),
    ),
    LegacyRagasMetric(
        metric="context_recall",
        measure=_context_recall,
        needs=(Part.QUESTION, Part.CONTEXT, Part.REFERENCE),
    ),
    LegacyRagasMetric(
        metric="context_relevance", measure=_context_relevance, needs=(Part.QUESTION, Part.CONTEXT)
    ),
    LegacyRagasMetric(metric="groundedness", measure=_groundedness, needs=(Part.ANSWER, Part.CONTEXT)),
)
