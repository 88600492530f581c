"""Choose among several retrievals: nested ones, and those that a reranker replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ragtrace.model import Chunk
from ragtrace.traces.extract._calls import SpanTree
from ragtrace.traces.extract._documents import is_unnamed, named_as
from ragtrace.traces.extract._span_reader import Role, SpanReading

_MAX_COMPARED = 50_000_000
"""Limit of characters searched for chunks in enclosing texts."""
_MAX_LOOKED_FOR = 20
"""Number of a retriever's chunks that are searched in the enclosing tool's result."""


def final_retrievals(retrievals: Sequence[SpanReading], tree: SpanTree) -> tuple[SpanReading, ...]:
    """Choose the retrievals whose documents reached the model, in order of start.

    Of nested retrievals, the outermost with text counts, with the ids and scores of the inner ones. A tool
    whose text repeats the chunks of an inner retriever does not count. A reranker's output replaces all
    earlier retrievals.
    """
    if len(retrievals) == 1 and retrievals[0].role is Role.RETRIEVAL:
        return (retrievals[0],)
    candidates = _without_tools_around(retrievals, tree)
    inside = _chunks_inside(candidates, tree)
    chosen = [_completed_by(each, inside.get(each.span.span_id, ())) for each in _outermost(candidates, tree)]
    return _after_reranking(chosen)


def named_by_steps(
    retrievals: Sequence[SpanReading], steps: Sequence[SpanReading]
) -> tuple[SpanReading, ...]:
    """Give chunks without an id the id of the same text in a later step."""
    known = {chunk.text: chunk for step in steps for chunk in step.chunks}
    return tuple(_named(each, known) for each in retrievals)


def _without_tools_around(retrievals: Sequence[SpanReading], tree: SpanTree) -> Sequence[SpanReading]:
    """Drop tools that return the results of an inner retriever: their text has no separate chunks."""
    tools = {each.span.span_id: each for each in retrievals if each.tool}
    inner = {each.span.span_id: each for each in retrievals if not each.tool and each.has_text}
    inside: dict[str, list[SpanReading]] = {}
    for span_id, tool_id in tree.nearest_above(inner, tools.keys()).items():
        if span_id in inner:
            inside.setdefault(tool_id, []).append(inner[span_id])
    shells = {tool_id for tool_id, found in inside.items() if _repeats(tools[tool_id], found)}
    return [each for each in retrievals if each.span.span_id not in shells]


def _repeats(tool: SpanReading, retrievals: Sequence[SpanReading]) -> bool:
    shown = "\0".join(chunk.text for chunk in tool.chunks if chunk.text)
    if not shown:
        return True
    found = (chunk.text for each in retrievals for chunk in each.chunks[:_MAX_LOOKED_FOR] if chunk.text)
    return any(text in shown for text in islice(found, max(_MAX_LOOKED_FOR, _MAX_COMPARED // len(shown))))


def _outermost(retrievals: Sequence[SpanReading], tree: SpanTree) -> list[SpanReading]:
    ids = {each.span.span_id for each in retrievals}
    with_text = {each.span.span_id for each in retrievals if each.has_text}
    around_text = tree.all_above(with_text)
    inside_text, inside_any = tree.nearest_above(ids, with_text), tree.nearest_above(ids, ids)
    return [
        each
        for each in retrievals
        if (each.has_text and each.span.span_id not in inside_text)
        or (
            not each.has_text and each.span.span_id not in around_text and each.span.span_id not in inside_any
        )
    ]


def _chunks_inside(retrievals: Sequence[SpanReading], tree: SpanTree) -> Mapping[str, Sequence[Chunk]]:
    """Map a retrieval to the chunks of those directly inside it."""
    ids = {each.span.span_id for each in retrievals}
    above = tree.nearest_above(ids, ids)
    found: dict[str, list[Chunk]] = {}
    for each in retrievals:
        outer = above.get(each.span.span_id)
        if outer is not None:
            found.setdefault(outer, []).extend(each.chunks)
    return found


def _completed_by(retrieval: SpanReading, inside: Sequence[Chunk]) -> SpanReading:
    if retrieval.tool and inside and not any(chunk.text for chunk in inside):
        return _in_paragraphs(retrieval, inside)
    return _named(retrieval, {chunk.text: chunk for chunk in inside})


def _in_paragraphs(tool: SpanReading, inside: Sequence[Chunk]) -> SpanReading:
    """Split the text of a tool if it has one paragraph per document of an inner retrieval."""
    found, chunks = tool.documents, tool.chunks
    paragraphs = (chunks[0].text or "").split("\n\n") if len(chunks) == 1 else []
    if found is None or len(paragraphs) != len(inside):
        return tool
    parted = tuple(
        replace(chunk, text=text, span_id=tool.span.span_id)
        for chunk, text in zip(inside, paragraphs, strict=True)
    )
    how = f"{len(parted)} paragraphs, named by the retrieval inside it"
    return tool._replace(documents=found._replace(value=parted, how=how))


def _named(retrieval: SpanReading, inside: Mapping[str | None, Chunk]) -> SpanReading:
    """Give chunks without an id or a score those of the same text in an inner retrieval."""
    if not inside or not retrieval.chunks:
        return retrieval
    return retrieval.with_chunks(tuple(named_as(each, inside.get(each.text)) for each in retrieval.chunks))


def _after_reranking(retrievals: Sequence[SpanReading]) -> tuple[SpanReading, ...]:
    chosen: list[SpanReading] = []
    candidates: list[SpanReading] = []
    for each in retrievals:
        if each.role is Role.RETRIEVAL:
            candidates.append(each)
        elif each.has_text:
            reranked = _traced_back(each, candidates or chosen[-1:])
            known = {chunk.text for chunk in chosen[-1].chunks} if chosen and not candidates else set()
            if known and all(chunk.text in known for chunk in reranked.chunks):
                chosen.pop()  # its input was already reranked or joined
            chosen.append(reranked)
            candidates.clear()
    return (*chosen, *candidates)


def _traced_back(reranked: SpanReading, candidates: Sequence[SpanReading]) -> SpanReading:
    """Map chunks that lost their ids to their origins: the same text, or a text that contains it."""
    known: dict[str | None, Chunk] = {
        chunk.text: chunk for each in candidates for chunk in each.chunks if chunk.text
    }
    if not known or not reranked.chunks:
        return reranked
    size = sum(len(chunk.text or "") for chunk in reranked.chunks)
    around = known if size * len(known) <= _MAX_COMPARED else {}
    chunks = [
        origin if chunk.score is None else replace(origin, score=chunk.score, score_kind=chunk.score_kind)
        for chunk in reranked.chunks
        for origin in _origins(chunk, known, around)
    ]
    return reranked.with_chunks(tuple(replace(chunk, rank=rank) for rank, chunk in enumerate(chunks)))


def _origins(
    chunk: Chunk, known: Mapping[str | None, Chunk], around: Mapping[str | None, Chunk]
) -> Sequence[Chunk]:
    if not is_unnamed(chunk) or chunk.text is None:
        return (chunk,)
    if chunk.text in known:
        return (known[chunk.text],)
    return [known[text] for text in around if text and text in chunk.text] or (chunk,)
