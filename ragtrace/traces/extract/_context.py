"""Choose the answer's chunks from all retrievals of a RAG call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ragtrace.model import Chunk, Gap, Part, SkipReason
from ragtrace.traces.extract._answers import is_for_a_program
from ragtrace.traces.extract._calls import GIVEN, Call, SpanTree, snake
from ragtrace.traces.extract._content import FoundValue, Place, parse_loosely
from ragtrace.traces.extract._documents import (
    MAX_CHUNKS,
    chunk_of,
    find_documents,
    is_document,
    is_prose,
    is_unnamed,
    joined,
    too_many,
)
from ragtrace.traces.extract._messages import hosted_documents, message_text
from ragtrace.traces.extract._missing import missing_documents
from ragtrace.traces.extract._nesting import final_retrievals, named_by_steps
from ragtrace.traces.extract._prompt_context import ExtractedContext, documents_shown, prompt_of, prompted
from ragtrace.traces.extract._rules import ContextFrom, is_mapped
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import StatusCode


def context_of(
    call: Call, generation: SpanReading | None, tree: SpanTree, *, question: str | None, source: ContextFrom
) -> ExtractedContext:
    """Find the chunks in the retrievals, or in the prompt if the call has no retrieval.

    ``question`` comes from the call's own span.
    """
    found = _retrieved(call, generation, tree)
    if source is ContextFrom.SPANS or any(chunk.text for chunk in found.chunks):
        return found
    is_told = all(each.documents is not None and each.documents.damage is None for each in found.sources)
    if found.sources and not found.chunks and is_told:
        return found  # it searched, and found nothing
    shown = documents_shown(generation, has_retrieval=bool(found.sources))
    if generation and shown and shown.value:
        return _with_texts(found, call, generation, shown)
    is_liberal = source is ContextFrom.PROMPT
    if generation and not found.sources and not is_liberal and is_for_a_program(generation):
        return found  # it reads a document for a program, not for a person who asks
    of_prompt = prompted(
        call, generation, question=question, is_liberal=is_liberal, has_retrieval=bool(found.sources)
    )
    if of_prompt is not None:
        return _named_by(of_prompt, found.chunks, call, generation)
    if found.sources or call.of(Role.RETRIEVAL, Role.RERANK):
        return found
    return replace(found, gaps=(_no_retrieval(call, _PROMPT_IS_BARE if is_liberal else _USE_THE_PROMPT),))


def _with_texts(
    found: ExtractedContext, call: Call, generation: SpanReading, shown: FoundValue[tuple[Chunk, ...]]
) -> ExtractedContext:
    """Take the texts of documents whose ids a retrieval has from the model's prompt."""
    reading = SpanReading(generation.span, shown.at.convention, Role.RETRIEVAL, documents=shown)
    why = f"the retrieval has no texts, and the model's prompt has documents: {shown.how}."
    of_prompt = ExtractedContext(
        sources=(*found.sources, reading),
        chunks=joined([reading.chunks])[:MAX_CHUNKS],
        provenance=(shown.provenance(Part.CONTEXT, generation.span, why),),
        gaps=(),
        is_prompt=not found.chunks,
    )
    return _named_by(of_prompt, found.chunks, call, generation)


def _named_by(
    of_prompt: ExtractedContext, retrieved: Sequence[Chunk], call: Call, generation: SpanReading | None
) -> ExtractedContext:
    """Give passages of a prompt the ids of retrieved documents: those beside them, else in their order."""
    chunks = of_prompt.chunks
    known = {chunk.id: chunk for chunk in retrieved}
    if not known:
        return of_prompt
    if len(chunks) == 1 and len(retrieved) > 1:
        paragraphs = [each for each in (chunks[0].text or "").split("\n\n") if each.strip()]
        if len(paragraphs) == len(retrieved):
            chunks = tuple(
                chunk_of({"text": text}, rank, chunks[0].span_id or "")
                for rank, text in enumerate(paragraphs)
            )
    _, prompt = prompt_of(call, generation)
    text = "\n".join(map(message_text, (prompt.value if prompt else None) or ()))
    origins = [
        known.get(chunk.id) or beside
        for chunk, beside in zip(chunks, _beside(chunks, known, text), strict=True)
    ]
    if not any(origins) and len(chunks) == len(retrieved) and all(is_unnamed(chunk) for chunk in chunks):
        origins = [*retrieved]
    named = tuple(
        replace(chunk, id=origin.id, score=origin.score, score_kind=origin.score_kind) if origin else chunk
        for chunk, origin in zip(chunks, origins, strict=True)
    )
    return replace(of_prompt, chunks=named)


def _beside(chunks: Sequence[Chunk], known: Mapping[str, Chunk], prompt: str) -> Iterator[Chunk | None]:
    """Yield for each passage the document whose id stands before it, after the passage above."""
    end = 0
    for chunk in chunks:
        at = prompt.find(chunk.text or "", end)
        if at < 0 or not chunk.text:
            yield None
            continue
        before = prompt[max(end, at - _NEAR) : at]
        end = at + len(chunk.text)
        places = {key: before.rfind(key) for key in known if len(key) > 1 or f"[{key}]" in before}
        nearest = max(places, key=lambda key: (places[key], len(key)), default=None)
        yield known[nearest] if nearest is not None and places[nearest] >= 0 else None


_NEAR: Final = 300
"""Characters before a passage in which its id stands."""


def _retrieved(call: Call, generation: SpanReading | None, tree: SpanTree) -> ExtractedContext:
    """Join the documents of the retrievals that started before the generation ended.

    A user's mapping replaces all other sources. Of nested retrievals, the outermost with text counts. A
    reranker's output replaces all earlier retrievals.
    """
    retrievals = [
        each
        for each in call.of(Role.RETRIEVAL, Role.RERANK)
        if generation is None or each.span.start_ns <= generation.span.end_ns
    ]
    worked = [each for each in retrievals if each.span.status_code is not StatusCode.ERROR]
    if any(each.has_text for each in worked):
        retrievals = worked  # what a failed one says is an error
    mapped = tuple(each for each in call.members if is_mapped(each.documents))
    final = final_retrievals(retrievals, tree) or _handed(generation) or _returned(call)
    sources = mapped or named_by_steps(final, call.of(Role.STEP))
    chunks = joined([each.chunks for each in sources])
    return ExtractedContext(
        sources=sources,
        chunks=chunks[:MAX_CHUNKS],
        provenance=tuple(
            found.provenance(Part.CONTEXT, each.span, f"{_why(each)}: {found.how}.")
            for each in sources
            if (found := each.documents) and found.value
        ),
        gaps=tuple(_gaps(call, sources, chunks)),
    )


def _handed(generation: SpanReading | None) -> tuple[SpanReading, ...]:
    """Read tool results from the generation's prompt, if no span has them."""
    results = generation.handed if generation else ()
    return tuple(
        SpanReading(
            generation.span,
            result.documents.at.convention,
            Role.RETRIEVAL,
            tool=result.tool or "tool",
            documents=result.documents,
        )
        for result in results
        if generation is not None
    )


def _returned(call: Call) -> tuple[SpanReading, ...]:
    """Read the passages that a call returned beside its answer, if no other span is known of it."""
    own = call.own
    if own is None or call.of(Role.GENERATION, Role.RETRIEVAL, Role.RERANK, Role.TOOL):
        return ()
    if not all(each and is_prose(each.value) for each in (own.question, own.answer)):
        return ()  # a function that loads or divides documents
    node = parse_loosely(own.output)
    named = node.items() if isinstance(node, dict) else ()
    listed = hosted_documents(node, is_response=True) or next(
        (
            each
            for key, each in named
            if isinstance(each, tuple) and each and GIVEN.search(snake(key))
            if all(map(is_prose, each)) or all(map(is_document, each))
        ),
        (),
    )
    at = Place(own.output_at, own.convention, own.span.span_id)
    return (own._replace(role=Role.RETRIEVAL, documents=find_documents(listed, at)),) if listed else ()


def _why(source: SpanReading) -> str:
    if is_mapped(source.documents):
        return "the mapping names it"
    if source.role is Role.RERANK:
        return "the output of a reranker or a synthesizer replaces earlier retrievals"
    return "a retrieval that began before the answer was complete, and no retrieval around it holds text"


def _gaps(call: Call, sources: Sequence[SpanReading], chunks: Sequence[Chunk]) -> list[Gap]:
    if not sources:
        return [_no_retrieval(call, _USE_THE_PROMPT)]
    gaps = [
        damage.gap(Part.CONTEXT) if damage else missing_documents(each.span)
        for each in sources
        if (damage := each.documents.damage if each.documents else None) or each.documents is None
    ]
    if not chunks and not gaps:
        detail = "the retrieval returned no documents"
        gaps.append(Gap(part=Part.CONTEXT, reason=SkipReason.EMPTY_RETRIEVAL, detail=detail))
    damage = too_many(len(chunks), "there are")
    return [*gaps, damage.gap(Part.CONTEXT)] if damage else gaps


_USE_THE_PROMPT: Final = (
    "; or, if its prompt holds them, have it read: `extract.context: prompt` in the collector, else "
    "`--set extract.context=prompt`"
)
_PROMPT_IS_BARE: Final = "; its prompt holds nothing beside the question and instructions"


def _no_retrieval(call: Call, prompt: str) -> Gap:
    detail = f"{_without_retrieval(call)}{prompt}"
    return Gap(part=Part.CONTEXT, reason=SkipReason.NO_RETRIEVAL, detail=detail)


def _without_retrieval(call: Call) -> str:
    tools = ", ".join(sorted({repr(each.tool) for each in call.of(Role.TOOL)}))
    if tools:
        return (
            f"no span of the RAG call is a retrieval, and no name among {tools} is that of a retrieval tool: "
            "if one retrieves, name it in `tools` of the mapping"
        )
    spans = [*(member.span for member in call.members), *([call.root] if call.root else [])]
    if any(link.trace_id != span.trace_id for span in spans for link in span.links):
        return (
            "no span of the RAG call is a retrieval. It is linked to another trace, which is not read: "
            "record the retrieved chunks in this trace"
        )
    return (
        "no span of the RAG call is a retrieval: record the retrieved chunks, with `@ragtrace.retrieval` on "
        "the function that finds them"
    )
