"""RAGAS' metrics (0.4): its collections, with strict parsing and retries, and its legacy metrics.

The two differ in how they request and read a reply. The collections take a JSON object and nothing around it,
and no value of another type: a fence, a word before it, ``true`` or ``"1"`` for 1 make it unreadable. The
metrics of old look for the first JSON in a text, close what was left open and convert values. The prompts are
in words of our own, for replies of the form that RAGAS reads.

Source: RAGAS 0.4.3, compared with this module. Surprising behavior of the collections:

- A reply must be a bare JSON object. After three retries, the metric raises. A reply that ends at the limit
  of 1024 tokens raises at once.
- Verdicts are not matched with statements: the score divides by the number of verdicts.
- Context precision and recall calculate with the integers the judge wrote, so they can leave [0, 1].
- The two judges of context relevance and groundedness have up to five tries each, after any failure.

And of the legacy metrics (`ragas.metrics`, still shipped with 0.4):

- The first JSON in a reply counts, even if it was truncated; values are converted. If that fails, the reply
  is sent back once for repair; then the metric raises, which RAGAS' `evaluate()` turns into NaN.
- Only a missing field is refused: an empty answer or context is judged like any other.
- Any digit in the text of a rating counts, 2 before 1 before 0: "1 out of 2" is 2.
- Groundedness is 1 without a call if the context contains the answer verbatim. If the first of two judges
  fails, the score is NaN; if the second fails, it is the first's rating.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ValidationError

from ragtrace.compat.tool import (
    AS_DATA,
    ToolCalls,
    ToolMetric,
    ToolOptions,
    ToolRun,
    contexts_of,
    fenced,
    missing_parts,
)
from ragtrace.errors import JudgeNonsense
from ragtrace.metrics.steps import cosine
from ragtrace.model import (
    ChunkVerdict,
    Claim,
    CompatStatus,
    Intermediate,
    Part,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import FreeText, SamplingParameters
from ragtrace.scoring import score


def _statements_prompt(question: str, answer: str) -> str:
    return _prompt(
        "Take the answer apart into the statements it makes. Each must be one fact, in a full sentence that"
        " is understood without the others: name what a pronoun stands for.",
        'Reply with a JSON object: {"statements": ["…", "…"]}; with an empty list if it states nothing.',
        fenced("question", question),
        fenced("answer", answer),
    )


def _verdicts_prompt(context: str, stated: Sequence[str]) -> str:
    return _prompt(
        "Decide for each statement whether it follows directly from the context: verdict 1 if it does, 0 if"
        " it does not, and also 0 if the context is silent about it.",
        'Reply with a JSON object: {"statements": [{"statement": "the statement, word for word",'
        ' "reason": "why, in one sentence", "verdict": 1}]}, in the order of the statements.',
        fenced("context", context),
        fenced("statements", json.dumps(list(stated), ensure_ascii=False, indent=1)),
    )


def _made_question_prompt(answer: str) -> str:
    return _prompt(
        "Write the question that this answer is the answer to. Also say whether the answer commits itself to"
        " something: noncommittal is 1 if it evades, is vague, or says that it does not know, else 0.",
        'Reply with a JSON object: {"question": "…", "noncommittal": 0}.',
        fenced("answer", answer),
    )


def _usefulness_prompt(question: str, context: str, answer: str) -> str:
    return _prompt(
        "Decide whether the context was of use in arriving at this answer to the question: verdict 1 if it"
        " was, 0 if it was not.",
        'Reply with a JSON object: {"reason": "why, in one sentence", "verdict": 1}.',
        fenced("question", question),
        fenced("context", context),
        fenced("answer", answer),
    )


def _recall_prompt(question: str, context: str, reference: str) -> str:
    return _prompt(
        "Go through the answer statement by statement, and decide for each whether the context says so:"
        " attributed is 1 if it can be traced back to the context, else 0.",
        'Reply with a JSON object: {"classifications": [{"statement": "the statement, word for word",'
        ' "reason": "why, in one sentence", "attributed": 1}]}.',
        fenced("question", question),
        fenced("context", context),
        fenced("answer", reference),
    )


def _worth_of_context_prompt(question: str, context: str) -> str:
    return _prompt(
        "How relevant is the context to the question? Go by what stands in the two alone, not by what you"
        " know besides. Rate 0 if nothing in it helps to answer the question, 1 if a part of it does, 2 if it"
        " holds what the answer needs.",
        fenced("question", question),
        fenced("context", context),
    )


def _worth_of_context_again_prompt(question: str, context: str) -> str:
    """Ask the same in another way, for the second judge."""
    return _prompt(
        "You are given a text that was retrieved for a question. Say to what extent somebody who has"
        " nothing but this text could answer: 2 for in full, 1 for in part, 0 for not at all.",
        fenced("context", context),
        fenced("question", question),
    )


def _supports_prompt(context: str, answer: str) -> str:
    return _prompt(
        "How far does the context support the assertion? Rate 0 if it does not, or if one of the two is"
        " empty, 1 if it supports a part of it, 2 if it supports all of it.",
        fenced("context", context),
        fenced("assertion", answer),
    )


def _supports_again_prompt(context: str, answer: str) -> str:
    """Ask the same in another way, for the second judge."""
    return _prompt(
        "Compare an assertion with the source it should rest on. 2: everything in it stands in the source."
        " 1: some of it does. 0: none of it does, or there is no source or no assertion.",
        fenced("assertion", answer),
        fenced("source", context),
    )


def _as_json_prompt(prompt: str) -> str:
    return f'{prompt}\n\nReply with a JSON object: {{"rating": X}}, where X is 0, 1 or 2.'


def _as_digit_prompt(prompt: str) -> str:
    return f"{prompt}\n\nReply with the digit 0, 1 or 2 and nothing else."


def _correction_prompt(prompt: str, reply: str, fault: str) -> str:
    return (
        f"{prompt}\n\nYour reply was:\n{fenced('reply', reply)}\n\n"
        f"It cannot be read: {fault}. Reply again with the corrected JSON object alone."
    )


def _repair_prompt(prompt: str, reply: str) -> str:
    """Ask to bring a reply into the form its prompt asks for: `{"text": corrected reply}`."""
    return _prompt(
        "The reply below does not have the form that its instructions ask for. Bring it into that form"
        " without changing what it says.",
        'Reply with a JSON object: {"text": "the corrected reply, as a string"}.',
        fenced("instructions", prompt),
        fenced("reply", reply),
    )


def _prompt(*paragraphs: str) -> str:
    task, *rest = paragraphs
    return "\n\n".join((task, AS_DATA, *rest))


FormT = TypeVar("FormT", bound=BaseModel)

_ORNAMENT = " \n\r\t`"


class RagasUnreadable(ValueError):
    """A reply is not of the form. The message tells the model what to correct."""


class Statements(BaseModel):
    """The statements of an answer."""

    statements: list[str]


class JudgedStatement(BaseModel):
    """A statement and whether the context supports it: any number but 0 says yes."""

    statement: str
    reason: str
    verdict: int


class JudgedStatements(BaseModel):
    """Verdicts on statements."""

    statements: list[JudgedStatement]


class MadeQuestionReply(BaseModel):
    """A question made from an answer."""

    question: str
    noncommittal: int


class Usefulness(BaseModel):
    """Whether a context was of use."""

    reason: str
    verdict: int


class Classification(BaseModel):
    """A statement of the reference and whether it can be traced back to the context."""

    statement: str
    reason: str
    attributed: int


class Classifications(BaseModel):
    """Verdicts on the statements of a reference."""

    classifications: list[Classification]


class Rating(BaseModel):
    """How well something does: 0, 1 or 2."""

    rating: int


class FixedText(BaseModel):
    """A reply that was brought into its form."""

    text: str


def read_to_the_letter(reply: str, form: type[FormT]) -> FormT:
    """Read a reply as the collections do."""
    try:
        return form.model_validate_json(reply, strict=True)
    except ValidationError as exc:
        raise RagasUnreadable(_fault(exc)) from None


def read_leniently(reply: str, form: type[FormT]) -> FormT:
    """Read a reply as the metrics of old do."""
    return read_repaired(_outermost(reply), form)


def read_repaired(reply: str, form: type[FormT]) -> FormT:
    """Read a reply that was repaired: as leniently, but there may be no prose around the JSON any more."""
    try:
        return form.model_validate(_loose_json(reply))
    except ValidationError as exc:
        raise RagasUnreadable(_fault(exc)) from None


def _fault(exc: ValidationError) -> str:
    # the message of the exception itself would quote the reply
    first = exc.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or "the reply"
    return f"{where}: {first['msg'].partition(' at line ')[0]}"


def _loose_json(reply: str) -> Any:
    found = reply.strip()
    behind_fence = found.partition("```")[2].removeprefix("json")
    for candidate in (found.strip(_ORNAMENT), behind_fence.strip(_ORNAMENT)):
        try:
            return _completed(candidate)
        except json.JSONDecodeError:
            continue
        except RecursionError:
            break
    raise RagasUnreadable("it holds no JSON")


def _outermost(text: str) -> str:
    """Return the first JSON structure of a text, counting brackets of its kind wherever they stand."""
    at = text.find("```json")
    text = text[at:] if at >= 0 else text
    start = next((index for index, char in enumerate(text) if char in "[{"), None)
    if start is None:
        return text
    opening, closing = text[start], {"[": "]", "{": "}"}[text[start]]
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == opening) - (text[index] == closing)
        if depth == 0:
            return text[start : index + 1]
    return text


def _completed(text: str) -> Any:
    """Parse a text, or what it may have become had it not been cut: ever less of it, closed.

    Raises:
        JSONDecodeError: there is nothing of it that can be parsed.
        RecursionError: it nests too deep.
    """
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as exc:
        fault = exc
    kept, missing, open_string, escaped = _scan(text)
    if missing is None:
        return None
    if open_string:
        kept = [*(kept[:-1] if escaped else kept), '"']
    ends = "".join(reversed(missing))
    length = len(kept)
    while length:
        try:
            return json.loads("".join(kept[:length]) + ends, strict=False)
        except json.JSONDecodeError as exc:
            length = min(length - 1, exc.pos)  # what follows a fault does not repair it
    raise fault


def _scan(text: str) -> tuple[list[str], list[str] | None, bool, bool]:
    """Return the characters with line breaks in strings escaped, the brackets still to be closed (``None``
    where one is closed that is not open), and whether the text ends in a string and behind a backslash."""
    kept: list[str] = []
    missing: list[str] = []
    in_string = escaped = False
    for char in text:
        kept.append("\\n" if in_string and char == "\n" and not escaped else char)
        if in_string:
            in_string = char != '"' or escaped
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string, escaped = True, False
        elif char in "{[":
            missing.append("}" if char == "{" else "]")
        elif char in "}]" and (not missing or missing.pop() != char):
            return kept, None, False, False
    return kept, missing, in_string, escaped


def claims_run(profile: str, stated: Sequence[str], judged: Sequence[JudgedStatement]) -> ToolRun:
    """Score faithfulness."""
    numbers = [item.verdict for item in judged]
    found = score("faithfulness", profile, numbers)
    summary = f"{sum(map(bool, numbers))} of {len(numbers)} verdicts support a statement"
    explanation = summary if stated else "the answer states nothing"
    return ToolRun.of(found, explanation, verdicts=_claims(stated, judged))


def questions_run(
    profile: str,
    asked: str,
    made: Sequence[MadeQuestionReply],
    vectors: Mapping[str, Sequence[float]],
) -> ToolRun:
    """Score answer relevance by the questions generated from the answer."""
    found = score(
        "answer_relevance",
        profile,
        [{"question": reply.question, "noncommittal": reply.noncommittal} for reply in made],
        question=asked,
        embeddings=vectors,
    )
    if not made:
        return ToolRun.of(found, "no question was made from the answer")
    evading = sum(bool(reply.noncommittal) for reply in made)
    return ToolRun.of(
        found,
        f"{len(made)} questions made from the answer, {evading} of them noncommittal",
        intermediate=Intermediate(
            questions=tuple(reply.question for reply in made),
            similarities=tuple(_similarity(vectors[asked], vectors[reply.question]) for reply in made),
        ),
    )


def ratings_run(profile: str, metric: str, ratings: Sequence[int | None]) -> ToolRun:
    """Score by the ratings of two judges."""
    said = " and ".join("none" if rating is None else str(rating) for rating in ratings)
    return ToolRun.of(score(metric, profile, ratings), f"the two judges' ratings, of 2 at most: {said}")


def _similarity(one: Sequence[float], other: Sequence[float]) -> float | None:
    try:
        return cosine(one, other)
    except JudgeNonsense:  # RAGAS computes NaN here
        return None


def _claims(stated: Sequence[str], judged: Sequence[JudgedStatement]) -> tuple[Verdict, ...]:
    """Pair statements with verdicts by position; surplus verdicts bring their own statement."""
    return tuple(
        Verdict(claim=Claim(index=index, text=text or ""), label=VerdictLabel.UNJUDGED)
        if item is None
        else _verdict(index, text or item.statement, attributed=item.verdict, reason=item.reason)
        for index, (text, item) in enumerate(zip_longest(stated, judged))
    )


def _verdict(index: int, text: str, *, attributed: int, reason: str) -> Verdict:
    # a no does not distinguish contradicted from unsupported
    label = VerdictLabel.SUPPORTED if attributed else VerdictLabel.UNSUPPORTED
    return Verdict(claim=Claim(index=index, text=text), label=label, reason=reason or None)


class RagasRun(ABC):
    """A run of a metric: the requests that both have, in their order, and what becomes of the replies."""

    profile: ClassVar[str]
    judges_verbatim: ClassVar[bool] = True
    """Whether an answer that stands in the context word for word is still judged."""

    def __init__(self, calls: ToolCalls, options: ToolOptions) -> None:
        self.calls = calls
        self.options = options

    @classmethod
    @abstractmethod
    def missing(cls, record: RagRecord, needs: tuple[Part, ...]) -> str:
        """Name the missing parts for which RAGAS refuses a sample; empty if none."""

    @abstractmethod
    async def ask(self, step: str, prompt: str, form: type[FormT]) -> FormT:
        """Ask for a reply of the form.

        Raises:
            RagasUnreadable: the reply does not have the form.
        """

    @abstractmethod
    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no try gave a rating."""

    @abstractmethod
    async def answer_relevance(self, record: RagRecord) -> ToolRun:
        """Compare the question with questions made from the answer."""

    async def faithfulness(self, record: RagRecord) -> ToolRun:
        """Ask for statements, and for a verdict on each."""
        prompt = _statements_prompt(record.question or "", record.answer or "")
        stated = (await self.ask("statements", prompt, Statements)).statements
        if not stated:
            return claims_run(self.profile, stated, ())
        prompt = _verdicts_prompt(_context_of(record), stated)
        return claims_run(
            self.profile, stated, (await self.ask("verdicts", prompt, JudgedStatements)).statements
        )

    async def context_precision(self, record: RagRecord, answer: str | None) -> ToolRun:
        """Ask of each context whether it was of use for an answer."""
        asked = [
            _usefulness_prompt(record.question or "", context, answer or "")
            for context in contexts_of(record)
        ]
        judged = [await self.ask("ctx_verdict", prompt, Usefulness) for prompt in asked]
        numbers = [reply.verdict for reply in judged]
        verdicts = tuple(
            ChunkVerdict(
                chunk_id=chunk.id,
                rank=chunk.rank,
                label=VerdictLabel.RELEVANT if reply.verdict else VerdictLabel.IRRELEVANT,
                reason=reply.reason or None,
            )
            for chunk, reply in zip(record.chunks, judged, strict=True)
        )
        return ToolRun.of(
            score("context_precision", self.profile, numbers),
            f"{sum(map(bool, numbers))} of {len(judged)} chunks were of use",
            chunk_verdicts=verdicts,
        )

    async def context_recall(self, record: RagRecord) -> ToolRun:
        """Ask which statements of the reference the context holds."""
        prompt = _recall_prompt(record.question or "", _context_of(record), record.reference or "")
        judged = (await self.ask("recall", prompt, Classifications)).classifications
        numbers = [item.attributed for item in judged]
        return ToolRun.of(
            score("context_recall", self.profile, numbers),
            f"{sum(map(bool, numbers))} of {len(judged)} statements of the reference are in the context",
            verdicts=tuple(
                _verdict(index, item.statement, attributed=item.attributed, reason=item.reason)
                for index, item in enumerate(judged)
            ),
        )

    async def context_relevance(self, record: RagRecord) -> ToolRun:
        """Ask two judges how much the context holds."""
        question, context = record.question or "", _context_of(record)
        if not question.strip() or context.strip() in question.strip():
            return _immediate(0.0, "the question holds the whole context, or one of them is blank")
        first = await self.rating("relevance1", _worth_of_context_prompt(question, context))
        second = await self.rating("relevance2", _worth_of_context_again_prompt(question, context))
        return ratings_run(self.profile, "context_relevance", (first, second))

    async def groundedness(self, record: RagRecord) -> ToolRun:
        """Ask two judges how far the context supports the answer."""
        answer, context = record.answer or "", _context_of(record)
        if not answer.strip() or not context.strip():
            return _immediate(0.0, "the answer or the context is blank")
        if not self.judges_verbatim and answer.strip() in context.strip():
            return _immediate(1.0, "the answer stands in the context word for word")
        first = await self.rating("groundedness1", _supports_prompt(context, answer))
        second = await self.rating("groundedness2", _supports_again_prompt(context, answer))
        return ratings_run(self.profile, "groundedness", (first, second))

    @classmethod
    def metrics(cls) -> tuple[ToolMetric, ...]:
        """Return the metrics under these rules."""
        question, answer, context, reference = Part.QUESTION, Part.ANSWER, Part.CONTEXT, Part.REFERENCE
        by_answer = cls._metric(
            "context_utilization",
            lambda run, record: run.context_precision(record, record.answer),
            (question, context, answer),
        )
        by_reference = cls._metric(
            "context_precision",
            lambda run, record: run.context_precision(record, record.reference),
            (question, context, reference),
            without_reference=by_answer,
        )
        return (
            cls._metric("faithfulness", cls.faithfulness, (question, answer, context)),
            cls._metric("answer_relevance", cls.answer_relevance, (question, answer)),
            by_reference,
            by_answer,
            cls._metric("context_recall", cls.context_recall, (question, context, reference)),
            cls._metric("context_relevance", cls.context_relevance, (question, context)),
            cls._metric("groundedness", cls.groundedness, (answer, context)),
        )

    @classmethod
    def _metric(
        cls,
        name: str,
        measure: Callable[[Self, RagRecord], Awaitable[ToolRun]],
        needs: tuple[Part, ...],
        *,
        without_reference: ToolMetric | None = None,
    ) -> ToolMetric:
        async def run(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
            missing = cls.missing(record, needs)
            if missing == Part.REFERENCE and without_reference is not None:
                found = await without_reference.run(record, calls, options)
                why = f"{without_reference.metric}: judged by the answer, since there is no reference"
                return replace(found, explanation=f"{found.explanation}; {why}")
            if missing:
                return ToolRun.lacking(f"ragas refuses a sample without {missing}")
            try:
                return await measure(cls(calls, options), record)
            except RagasUnreadable as exc:
                return ToolRun.failed(str(exc))

        return ToolMetric(metric=name, profile=cls.profile, needs=needs, run=run)


def _context_of(record: RagRecord) -> str:
    return "\n".join(contexts_of(record))


def _immediate(score: float, explanation: str) -> ToolRun:
    explanation = f"{explanation}: ragas scores that {score:g}"
    return ToolRun(status=CompatStatus.OK, score=score, explanation=explanation)


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
                wish = _correction_prompt(prompt, reply.text, str(exc))
        tries = self.options.max_retries + 1
        raise RagasUnreadable(f"the reply to `{step}` could not be read in {tries} tries: {fault}")

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no try gave a rating."""
        for _ in range(_TRIES_A_JUDGE):
            try:
                reply = await self.ask(step, _as_json_prompt(prompt), Rating)
            except RagasUnreadable:
                continue
            if reply.rating in _RATINGS:
                return reply.rating
        return None

    async def answer_relevance(self, record: RagRecord) -> ToolRun:
        """Compare the question with questions made from the answer, blank ones left out."""
        prompt = _made_question_prompt(record.answer or "")
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


_ONE = SamplingParameters(temperature=0.01)
_SEVERAL = SamplingParameters(temperature=0.3)
_RATING = SamplingParameters(temperature=0.1)


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
            fixed = await self._finished("fix", _repair_prompt(prompt, reply), _ONE)
        try:
            return read_repaired(_fixed(fixed), form)
        except RagasUnreadable as exc:
            raise RagasUnreadable(
                f"the reply to `{step}` could not be read, nor be repaired: {exc}"
            ) from None

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no reply contains a rating."""
        for _ in range(_TRIES_A_JUDGE):
            reply = await self._text(step, _as_digit_prompt(prompt), _RATING)
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
        prompt, times = _made_question_prompt(record.answer or ""), self.options.strictness
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


METRICS = (*_Collections.metrics(), *_Legacy.metrics())
