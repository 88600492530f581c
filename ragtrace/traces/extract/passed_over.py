"""What was read as well, and why something else was believed: for ``ragtrace explain``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ragtrace.model import Part, Provenance
from ragtrace.traces.extract.calls import Call, SpanTree
from ragtrace.traces.extract.content import Found
from ragtrace.traces.extract.mapping import is_mapped
from ragtrace.traces.extract.reading import Reading, Role, T

__all__ = ["passed_over"]

_RETRIEVALS: Final = (Role.RETRIEVAL, Role.RERANK)


def passed_over(
    call: Call,
    tree: SpanTree,
    *,
    generation: Reading | None,
    sources: Sequence[Reading],
    chosen: Sequence[Provenance],
) -> tuple[Provenance, ...]:
    """Name the readings that hold a part of the record and were not chosen for it, with the rule."""
    used = {(each.part, each.span_id) for each in chosen}
    considered = (
        *_questions(call, generation),
        *_contexts(call, tree, generation, sources),
        *_answers(call, tree, generation),
    )
    return tuple(each for each in considered if (each.part, each.span_id) not in used)


def _questions(call: Call, generation: Reading | None) -> Iterator[Provenance]:
    for each in call.members:
        if each is call.own or each.role is Role.CALL:
            continue
        if each.role is Role.GENERATION and each.question:
            is_chosen = each is generation
            why = "what the model was asked comes last" if is_chosen else "another generation gave the answer"
            yield _over(Part.QUESTION, each, each.question, why)
        elif each.query:
            yield _over(Part.QUESTION, each, each.query, "the question of the RAG call comes first")


def _contexts(
    call: Call, tree: SpanTree, generation: Reading | None, sources: Sequence[Reading]
) -> Iterator[Provenance]:
    chosen = {each.span.span_id for each in sources}
    retrievals = [each for each in call.of(*_RETRIEVALS) if each.span.span_id not in chosen]
    inside = tree.nearest_above([each.span.span_id for each in retrievals], chosen)
    around = tree.all_above(chosen)
    for each in retrievals:
        why = _why_not_chosen(each, generation, sources)
        if each.span.span_id in inside:
            why = "the retrieval around it holds the same documents"
        elif each.span.span_id in around:
            why = "it holds no chunks of its own, a retrieval inside it does"
        yield _over(Part.CONTEXT, each, each.documents, why)
    for each in call.of(Role.TOOL):
        why = "by its name no tool that retrieves: if it does, name it in `tools` of the mapping"
        yield _over(Part.CONTEXT, each, each.documents, why)


def _why_not_chosen(each: Reading, generation: Reading | None, sources: Sequence[Reading]) -> str:
    if any(is_mapped(source.documents) for source in sources):
        return "the mapping names another place"
    if generation and each.span.start_ns > generation.span.end_ns:
        return "it began after the answer was complete"
    if any(source.role is Role.RERANK for source in sources):
        return "a reranker's output takes its place"
    return "it holds no text"


def _answers(call: Call, tree: SpanTree, generation: Reading | None) -> Iterator[Provenance]:
    generations = call.of(Role.GENERATION)
    chosen = {generation.span.span_id} if generation else set()
    inside = tree.nearest_above([each.span.span_id for each in generations], chosen)
    for each in generations:
        is_inside = each.span.span_id in inside
        why = "the generation around it holds the same text" if is_inside else None
        yield _over(Part.ANSWER, each, each.answer, why or _why_not_answer(each, call, generation))


def _why_not_answer(each: Reading, call: Call, generation: Reading | None) -> str:
    if each.answer is None or each.answer.value is None:
        return "it holds no text of an answer"
    if each is generation or generation is None:
        return "the answer of the RAG call itself comes first"
    retrievals = call.of(*_RETRIEVALS)
    if retrievals and each.span.end_ns <= retrievals[0].span.start_ns:
        return "it ended before anything was retrieved"
    told = call.own.answer.value if call.own and call.own.answer else None
    if told and generation.answer and generation.answer.value == told:
        return "its text is not what the RAG call returned"
    return "a later generation gave the answer"


def _over(part: Part, reading: Reading, found: Found[T] | None, why: str) -> Provenance:
    return Provenance(
        part=part,
        span_id=reading.span.span_id,
        span_name=reading.span.name,
        attribute=found.attribute if found else "",
        convention=found.convention if found else reading.convention,
        why=why,
    )
