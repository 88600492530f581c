"""What became of chunks between the retriever and the model: dropped by a reranker, cut in the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from ragtrace.model import Chunk, Hops
from ragtrace.traces.extract._calls import Call
from ragtrace.traces.extract._context import ExtractedContext
from ragtrace.traces.extract._messages import message_text
from ragtrace.traces.extract._prompt_context import prompt_of
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.text import flat

_MOST_DROPPED: Final = 100
_MOST_CHARS: Final = 4_000
"""Of a dropped chunk."""
_MOST_COMPARED: Final = 50_000_000
"""Characters that are searched for chunks."""
_HEAD: Final = 60
"""A chunk begins in the prompt if so many of its first characters do."""
_NEARLY: Final = 0.95
"""A chunk of which so much is in the prompt counts as whole: templates trim."""


def hops_of(call: Call, generation: SpanReading | None, context: ExtractedContext) -> Hops | None:
    """Return the hops of a call, ``None`` if spans tell nothing of them."""
    if context.is_prompt:
        return None
    reranker = next((each for each in reversed(context.sources) if each.role is Role.RERANK), None)
    dropped = tuple(islice(_dropped(call, context.chunks), _MOST_DROPPED)) if reranker else ()
    shown = _shown(call, generation, context.chunks)
    if not dropped and not shown:
        return None
    return Hops(dropped=dropped, dropped_by=reranker.span.span_id if reranker else "", shown=shown)


def _dropped(call: Call, final: Sequence[Chunk]) -> Iterator[Chunk]:
    known = {chunk.id for chunk in final} | {chunk.text for chunk in final if chunk.text}
    for reading in call.of(Role.RETRIEVAL, Role.RERANK):
        for chunk in reading.chunks:
            if chunk.text and chunk.id not in known and chunk.text not in known:
                known |= {chunk.id, chunk.text}
                yield replace(chunk, text=chunk.text[:_MOST_CHARS], span_id=reading.span.span_id)


def _shown(call: Call, generation: SpanReading | None, chunks: Sequence[Chunk]) -> dict[str, int]:
    """Return the chunks that the prompt has not whole. A prompt without any chunk tells nothing of them."""
    _, found = prompt_of(call, generation)
    if found is None or found.damage or not chunks:
        return {}
    prompt = flat("\n".join(message_text(message) for message in found.value or ()))
    compared = chunks[: max(1, _MOST_COMPARED // max(1, len(prompt)))]
    shown = {
        chunk.id: (_part(flat(chunk.text), prompt), len(flat(chunk.text))) for chunk in compared if chunk.text
    }
    if not any(part for part, _ in shown.values()):
        return {}
    return {chunk_id: part for chunk_id, (part, whole) in shown.items() if part < _NEARLY * whole}


def _part(text: str, prompt: str) -> int:
    """Return how many characters from the beginning of a text are in the prompt."""
    if text in prompt:
        return len(text)
    start = prompt.find(text[:_HEAD]) if len(text) > _HEAD else -1
    if start < 0:
        return 0
    pairs = zip(text, prompt[start : start + len(text)], strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), len(prompt) - start)
