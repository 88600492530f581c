"""List the sources that were read but not chosen, with the reason, for ``ragtrace explain``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ragtrace.model import Part, Provenance
from ragtrace.traces.extract._calls import Call, SpanTree
from ragtrace.traces.extract._content import FoundValue, Place
from ragtrace.traces.extract._rules import is_mapped
from ragtrace.traces.extract._span_reader import Role, SpanReading, T

_RETRIEVALS: Final = (Role.RETRIEVAL, Role.RERANK)
_NO_TEXT: Final = "it holds no text"


def passed_over(
    call: Call,
    tree: SpanTree,
    *,
    generation: SpanReading | None,
    sources: Sequence[SpanReading],
    chosen: Sequence[Provenance],
    reasons: Mapping[str, str],
) -> tuple[Provenance, ...]:
    """Return the readings that hold a part of the record but were not chosen, with the rule."""
    spans = {part: {each.span_id for each in chosen if each.part is part} for part in Part}
    own = call.own.span.span_id if call.own else None
    considered = (
        *_questions(call, generation, is_own=own in spans[Part.QUESTION]),
        *_contexts(call, tree, generation, sources),
        *_answers(call, tree, generation, reasons, is_own=own in spans[Part.ANSWER]),
    )
    return tuple(each for each in considered if each.span_id not in spans[each.part])


def _questions(call: Call, generation: SpanReading | None, *, is_own: bool) -> Iterator[Provenance]:
    for each in call.of(*_RETRIEVALS, Role.GENERATION):
        found = each.question if each.role is Role.GENERATION else each.query
        if found is None:
            continue
        if found.value is None:
            why = _NO_TEXT
        elif is_own:
            why = "the question of the RAG call itself comes first"
        elif each.role is not Role.GENERATION:
            why = "the query of another retrieval was used"
        else:
            why = "a prompt comes last" if each is generation else "another generation gave the answer"
        yield _over(Part.QUESTION, each, found, why)


def _contexts(
    call: Call, tree: SpanTree, generation: SpanReading | None, sources: Sequence[SpanReading]
) -> Iterator[Provenance]:
    chosen = {each.span.span_id for each in sources}
    retrievals = [each for each in call.of(*_RETRIEVALS) if each.span.span_id not in chosen]
    inside = tree.nearest_above([each.span.span_id for each in retrievals], chosen)
    around = tree.all_above(chosen)
    has_mapped = any(is_mapped(source.documents) for source in sources)
    has_reranked = any(source.role is Role.RERANK for source in sources)
    for each in retrievals:
        if each.span.span_id in inside:
            why = "the retrieval around it holds the same documents"
        elif each.span.span_id in around:
            why = "it holds no chunks of its own, but a retrieval inside it does"
        elif has_mapped:
            why = "the mapping names another place"
        elif generation and each.span.start_ns > generation.span.end_ns:
            why = "it began after the answer was complete"
        else:
            why = "the output of a later step replaces it" if has_reranked else _NO_TEXT
        yield _over(Part.CONTEXT, each, each.documents, why)
    for each in call.of(Role.TOOL):
        why = "its name is not that of a retrieval tool: if it retrieves, name it in `tools` of the mapping"
        yield _over(Part.CONTEXT, each, each.documents, why)


def _answers(
    call: Call, tree: SpanTree, generation: SpanReading | None, reasons: Mapping[str, str], *, is_own: bool
) -> Iterator[Provenance]:
    generations = call.of(Role.GENERATION)
    chosen = {generation.span.span_id} if generation else set()
    inside = tree.nearest_above([each.span.span_id for each in generations], chosen)
    for each in generations:
        if each.answer is None or each.answer.value is None:
            why = _NO_TEXT
        elif each.span.span_id in reasons:
            why = reasons[each.span.span_id]
        elif is_own:
            why = "the answer of the RAG call itself comes first"
        elif each.span.span_id in inside:
            why = "the generation around it holds the same text"
        else:
            why = "a later generation gave the answer"
        yield _over(Part.ANSWER, each, each.answer, why)


def _over(part: Part, reading: SpanReading, found: FoundValue[T] | None, why: str) -> Provenance:
    at = found.at if found else Place("", reading.convention, "")
    return FoundValue(None, at).provenance(part, reading.span, why)
