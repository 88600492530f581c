"""rag_evals' metrics: one call per metric, chunks by number, a retry after an unknown number.

A reply that names an unknown chunk is refused; a chunk without a grade counts 0. Source: its documentation,
and its code compared with this module. The code also refuses a supported statement without a chunk; its
documentation and this module do not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import fsum
from typing import Annotated, TypeAlias, TypeVar

from pydantic import BaseModel, Field, ValidationError

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
from ragtrace.metrics.answers import DEFAULT_WEIGHTS, checked_weights
from ragtrace.model import Chunk, ChunkVerdict, Claim, CompatStatus, Part, RagRecord, Verdict, VerdictLabel
from ragtrace.scoring import score


def _instructions(task: str, form: str) -> str:
    return "\n\n".join(
        [
            " ".join(task.split()),
            f"Reply with one JSON object of this form and nothing else:\n{form}",
            AS_DATA,
        ]
    )


_FAITHFULNESS_PROMPT = _instructions(
    """Take the answer apart into the single statements it makes, in its own words. Decide for each
    whether the chunks support it: they state it, or it follows from them beyond reasonable doubt. A
    statement that is supported in part only is not supported. Name the numbers of all chunks that
    support it; none where it is not supported. Judge nothing but this: neither whether the statement is
    true, nor whether it answers the question.""",
    '{"statements": [{"statement": "what is stated", "reasoning": "why, briefly", "is_supported": true,'
    ' "supporting_chunk_ids": [0]}]}',
)

_PRECISION_PROMPT = _instructions(
    """Decide for each chunk whether it is relevant to the question: whether anything in it would help
    to answer the question, directly or indirectly, whatever the answer made of it. Grade every chunk
    once, by its number.""",
    '{"graded_chunks": [{"id_chunk": 0, "score": true}, {"id_chunk": 1, "score": false}]}',
)

_RELEVANCE_PROMPT = _instructions(
    """Rate how well the answer addresses the question, whether it is true or not, with numbers from 0.0
    to 1.0: `topical_match`, whether it is about what was asked; `completeness`, whether it covers every
    part of the question; `conciseness`, whether it is free of what was not asked. `overall_score` is
    the average of the three.""",
    '{"overall_score": 0.9, "topical_match": 1.0, "completeness": 0.8, "conciseness": 0.9,'
    ' "reasoning": "why, briefly"}',
)


def _material_prompt(question: str, answer: str | None, contexts: Sequence[str]) -> str:
    asked = [fenced("question", question)]
    answered = [] if answer is None else [fenced("answer", answer)]
    chunks = [fenced(f"chunk {number}", text) for number, text in enumerate(contexts)]
    return "\n\n".join([*asked, *answered, *chunks])


def _again_prompt(prompt: str, fault: str) -> str:
    return f"{prompt}\n\nYour last reply was refused: {fault}. Reply again, with the whole JSON object."


Share = Annotated[float, Field(ge=0, le=1)]


class StatementEvaluation(BaseModel, frozen=True):
    """What the judge writes about a statement. Other fields are ignored."""

    statement: str
    is_supported: bool
    supporting_chunk_ids: list[int] | None = None
    reasoning: object = None
    """Asked for, and never looked at there."""


class FaithfulnessResult(BaseModel, frozen=True):
    """The reply of faithfulness."""

    statements: list[StatementEvaluation]


class ChunkBinaryScore(BaseModel, frozen=True):
    """What the judge writes about a chunk."""

    id_chunk: int
    score: bool


class ChunkGradedBinary(BaseModel, frozen=True):
    """The reply of context precision."""

    graded_chunks: list[ChunkBinaryScore]


class RelevanceScore(BaseModel, frozen=True):
    """The reply of answer relevance."""

    overall_score: Share
    topical_match: Share
    completeness: Share
    conciseness: Share
    reasoning: str


ReplyT = TypeVar("ReplyT", bound=BaseModel)


class _Refused(Exception):
    """The reply does not have the form, or names an unknown chunk."""


async def _faithfulness(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    reply = await _asked(record, calls, options, "statements", _FAITHFULNESS_PROMPT, FaithfulnessResult)
    supported = [statement.is_supported for statement in reply.statements]
    found = score("faithfulness", "rag_evals", supported)
    return ToolRun.of(
        found,
        f"{sum(supported)} of {len(supported)} statements supported",
        verdicts=tuple(_verdict(index, found, record) for index, found in enumerate(reply.statements)),
    )


async def _context_precision(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    reply = await _asked(record, calls, options, "graded_chunks", _PRECISION_PROMPT, ChunkGradedBinary)
    if not reply.graded_chunks:
        return ToolRun.failed("the judge graded no chunk: rag_evals divides by zero here")
    grades = [graded.score for graded in reply.graded_chunks]
    ungraded = set(range(len(record.chunks))) - {graded.id_chunk for graded in reply.graded_chunks}
    found = score("context_precision", "rag_evals", [*grades, *[False] * len(ungraded)])
    return ToolRun.of(
        found,
        f"{sum(grades)} of {len(grades)} grades are relevant; {len(ungraded)} chunks ungraded",
        chunk_verdicts=_chunk_verdicts(record.chunks, reply.graded_chunks),
    )


async def _answer_relevance(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    reply = await _asked(record, calls, options, "relevance", _RELEVANCE_PROMPT, RelevanceScore)
    parts = f"{reply.topical_match:.2f}, {reply.completeness:.2f} and {reply.conciseness:.2f}"
    return ToolRun.of(
        score("answer_relevance", "rag_evals", reply.overall_score),
        f"the judge's own number; topical match, completeness and conciseness: {parts}",
        details={
            "topical_match": reply.topical_match,
            "completeness": reply.completeness,
            "conciseness": reply.conciseness,
        },
    )


async def _rag_score(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    """Weigh the three scores, each with its own call. Source: ragtrace's composite on rag_evals' numbers."""
    weights = checked_weights(options.weights or DEFAULT_WEIGHTS)
    runs = {name: await measure(record, calls, options) for name, measure in _PARTS.items()}
    lost = next((f"{name}: {run.explanation}" for name, run in runs.items() if run.score is None), None)
    if lost is not None:
        return ToolRun.failed(f"a part of the composite has no number: {lost}")
    scores = {name: run.score or 0.0 for name, run in runs.items()}
    return ToolRun(
        status=CompatStatus.OK,
        score=min(1.0, fsum(scores[name] * weight for name, weight in weights.items())),
        explanation=", ".join(f"{name} {score:.2f}" for name, score in scores.items()),
        verdicts=runs["faithfulness"].verdicts,
        chunk_verdicts=runs["chunk_precision"].chunk_verdicts,
        details={**scores, **runs["answer_relevance"].details},
    )


async def _asked(
    record: RagRecord,
    calls: ToolCalls,
    options: ToolOptions,
    step: str,
    instructions: str,
    reply_type: type[ReplyT],
) -> ReplyT:
    """Ask until the reply has the form and names existing chunks, up to the configured number of tries."""
    contexts = contexts_of(record)
    first = prompt = _material_prompt(record.question or "", record.answer, contexts)
    for _ in range(options.max_retries + 1):
        said = await calls.text(step, prompt, system=instructions)
        if said.cut_off:
            raise _Refused(
                f"the reply to `{step}` ended at the token limit: rag_evals does not ask again then"
            )
        try:
            reply = reply_type.model_validate_json(said.text, strict=True)
            _check_numbers(reply, len(contexts))
        except (ValidationError, _Refused) as exc:
            fault = _described(exc)
            prompt = _again_prompt(first, fault)
        else:
            return reply
    raise _Refused(
        f"the reply to `{step}` was refused {options.max_retries + 1} times, at last because {fault}"
    )


def _check_numbers(reply: BaseModel, chunks: int) -> None:
    match reply:
        case FaithfulnessResult():
            named = [number for found in reply.statements for number in found.supporting_chunk_ids or ()]
        case ChunkGradedBinary():
            named = [graded.id_chunk for graded in reply.graded_chunks]
        case _:
            named = []
    unknown = sorted({number for number in named if not 0 <= number < chunks})
    if unknown:
        raise _Refused(f"there is no chunk {', '.join(map(str, unknown))}")


def _described(fault: ValidationError | _Refused) -> str:
    if isinstance(fault, _Refused):
        return str(fault)
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"


def _verdict(index: int, found: StatementEvaluation, record: RagRecord) -> Verdict:
    numbers = dict.fromkeys(found.supporting_chunk_ids or ())
    return Verdict(
        claim=Claim(index=index, text=found.statement),
        label=VerdictLabel.SUPPORTED if found.is_supported else VerdictLabel.UNSUPPORTED,
        reason=found.reasoning if isinstance(found.reasoning, str) else None,
        chunk_ids=tuple(record.chunks[number].id for number in numbers),
    )


def _chunk_verdicts(chunks: tuple[Chunk, ...], graded: list[ChunkBinaryScore]) -> tuple[ChunkVerdict, ...]:
    relevant = {found.id_chunk for found in graded if found.score}
    known = {found.id_chunk for found in graded}
    return tuple(
        ChunkVerdict(
            chunk_id=chunk.id,
            rank=chunk.rank,
            label=VerdictLabel.RELEVANT
            if number in relevant
            else VerdictLabel.IRRELEVANT
            if number in known
            else VerdictLabel.UNJUDGED,
        )
        for number, chunk in enumerate(chunks)
    )


_Measure: TypeAlias = Callable[[RagRecord, ToolCalls, ToolOptions], Awaitable[ToolRun]]

_PARTS: Mapping[str, _Measure] = {
    "faithfulness": _faithfulness,
    "answer_relevance": _answer_relevance,
    "chunk_precision": _context_precision,
}


def _metric(name: str, measure: _Measure, *needs: Part) -> ToolMetric:
    async def run(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
        if missing := missing_parts(record, needs):
            return ToolRun.lacking(f"rag_evals cannot ask without {missing}")
        try:
            return await measure(record, calls, options)
        except _Refused as exc:
            return ToolRun.failed(str(exc))

    return ToolMetric(metric=name, profile="rag_evals", needs=needs, run=run)


METRICS: tuple[ToolMetric, ...] = (
    _metric("faithfulness", _faithfulness, Part.QUESTION, Part.ANSWER, Part.CONTEXT),
    _metric("answer_relevance", _answer_relevance, Part.QUESTION, Part.ANSWER),
    _metric("context_precision", _context_precision, Part.QUESTION, Part.CONTEXT),
    _metric("chunk_precision", _context_precision, Part.QUESTION, Part.CONTEXT),
    _metric("rag_score", _rag_score, Part.QUESTION, Part.ANSWER, Part.CONTEXT),
)
