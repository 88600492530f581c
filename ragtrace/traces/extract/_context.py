"""Choose the answer's chunks from all retrievals of a RAG call, else from the model's prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import Chunk, EarlierTurn, Gap, Hops, Part, Provenance, SkipReason
from ragtrace.traces.extract._answers import is_for_a_program, missing_documents
from ragtrace.traces.extract._calls import GIVEN, Call, ContextFrom, SpanTree, is_mapped
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    Place,
    clean,
    found_text,
    parse_loosely,
    snake,
    text_damage,
    without_excess,
)
from ragtrace.traces.extract._documents import (
    MAX_CHUNKS,
    chunk_of,
    documents_in_repr,
    find_documents,
    is_document,
    is_prose,
    is_unnamed,
    joined,
    named_as,
    too_many,
    with_text_damage,
)
from ragtrace.traces.extract._messages import (
    ChatTurn,
    Message,
    calls_tools,
    hosted_documents,
    listed_documents,
    message_text,
    turns_of,
)
from ragtrace.traces.extract._passages import (
    Passages,
    are_about,
    directions_in,
    is_english,
    is_instruction,
    passages_in,
)
from ragtrace.traces.extract._prompts import (
    LAST_LABEL,
    OF_THE_CONVERSATION,
    QUESTION_MARKS,
    asked_by_label,
    asked_in,
    objects_in_json,
    parted,
)
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import Span, StatusCode, flat

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


_MOST_DROPPED: Final = 100
_MOST_CHARS: Final = 4_000
"""Of a dropped chunk."""
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
    compared = chunks[: max(1, _MAX_COMPARED // max(1, len(prompt)))]
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


_PROMPT_MARK: Final = "messages"
"""The content policy's mark of a truncated prompt."""
_ASKED_IN_TAGS: Final = re.compile(
    r"<((?:user_)?(?:question|query))>\s{0,9}(?P<text>[^<>]{1,4000}?)\s{0,9}</\1>", re.IGNORECASE
)
_PARAGRAPHS: Final = re.compile(
    r"\n[ \t]*\n|^[ \t]{0,3}(?:-{3,}|={3,}|\*{3,}|_{3,}|#{3,})[ \t]*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedContext:
    """The chunks with their sources."""

    sources: tuple[SpanReading, ...]
    """The chosen retrievals, in order of start."""
    chunks: tuple[Chunk, ...]
    provenance: tuple[Provenance, ...]
    gaps: tuple[Gap, ...]
    question: FoundValue[str] | None = None
    """The question in the prompt, next to the passages."""
    is_prompt: bool = False
    """Whether the chunks are passages of the model's prompt."""


class _Material(NamedTuple):
    """One turn of the system or the user, split into parts."""

    turn: ChatTurn
    found: Passages
    is_last: bool
    """Whether it is the user's last turn."""
    is_asking: bool
    """Whether it is a turn of the user after the model's last, so it may have the question."""


_VARIABLES: Final = (
    "gen_ai.prompt.variable.",
    "llm.prompt_template.variables",
    "traceloop.prompt.template_variables.",
)


def documents_shown(
    generation: SpanReading | None, *, has_retrieval: bool
) -> FoundValue[tuple[Chunk, ...]] | None:
    """Return the documents of a prompt's variables, else those that Python wrote into its text."""
    if generation is None:
        return None
    for key, value in generation.span.attributes.items():
        if key.startswith(_VARIABLES) and isinstance(value, str):
            parsed = parse_loosely(value)
            for each in (parsed, *(parsed.values() if isinstance(parsed, dict) else ())):
                listed = listed_documents(each)
                if isinstance(listed, tuple) and listed and all(is_document(item) for item in listed):
                    at = Place(key, generation.convention, generation.span.span_id)
                    return find_documents(listed, at)
    prompt = generation.prompt
    for turn in turns_of(prompt.value or ()) if prompt else ():
        objects = objects_in_json(turn.text)[0] if has_retrieval else ()
        named = tuple(each for each in objects if isinstance(each, dict))
        if prompt and turn.role != "assistant" and (listed := documents_in_repr(turn.text) or named):
            return find_documents(listed, prompt.at)
    return None


def prompted(
    call: Call,
    generation: SpanReading | None,
    *,
    question: str | None,
    is_liberal: bool,
    has_retrieval: bool = False,
) -> ExtractedContext | None:
    """Use the generation's prompt as the context.

    Without ``is_liberal``, only marked passages count. An agent's turn never counts, because its tools are
    its context, nor does a prompt with an answer, which is for grading or an example.
    """
    span, prompt = prompt_of(call, generation)
    if span is None or prompt is None:
        return None
    messages = prompt.value or ()
    if not (is_liberal or has_retrieval) and (call.of(Role.TOOL) or calls_tools(messages)):
        return None
    if not is_liberal and _is_about_the_conversation(messages):
        return None
    material = _material(messages, question)
    if not any(each.found.passages or is_english(each.turn.text[:_LONGEST_REQUEST]) for each in material):
        unnamed = _material(messages, question, by_structure=True)
        shown = [each for part in unnamed for each in part.found.passages]
        if are_about(shown, _asked(unnamed, question) or ""):
            material = unnamed
    # if the user's last turn is a question, what has an answer elsewhere is an example
    is_asked = any(each.is_last and each.turn.text.rstrip().endswith(QUESTION_MARKS) for each in material)
    is_graded = any(each.found.has_answer and (each.is_asking or not is_asked) for each in material)
    if is_graded and not (is_liberal or has_retrieval):
        return None
    asked = _asked(material, question)
    if asked is None and generation and all(generation.asked != each.turn.text for each in material):
        asked = generation.asked or None  # it may be a field of a message's JSON
    passages = [each for part in material for each in _passages(part, asked, is_liberal=is_liberal)]
    if not passages and has_retrieval:
        passages = [each for part in material for each in _passages(part, asked, is_liberal=True)]
    if not passages or not (question or asked):
        return None
    return _prompted(span, prompt, passages, material, asked)


def _is_about_the_conversation(messages: Sequence[Message]) -> bool:
    """Return whether the last message asks for a title, tags or a summary of an earlier answer."""
    turns = turns_of(messages)
    last = max((i for i, each in enumerate(turns) if each.role == "user"), default=0)
    if not any(each.role == "assistant" for each in turns[:last]):
        return False
    asked = turns[last].text.strip()
    return (
        len(asked) < _LONGEST_REQUEST
        and not asked.endswith(QUESTION_MARKS)
        and bool(OF_THE_CONVERSATION.search(asked))
    )


_LONGEST_REQUEST: Final = 4_000


def prompt_of(
    call: Call, generation: SpanReading | None
) -> tuple[Span | None, FoundValue[tuple[Message, ...]] | None]:
    """Read the prompt of the generation, or of the provider's span below it; return also the source."""
    if generation is None:
        return None, None
    others = (each for each in call.of(Role.GENERATION) if each.answer and each.said == generation.said)
    chosen = next((each for each in (generation, *others) if each.prompt), None)
    return (chosen.span, chosen.prompt) if chosen else (None, None)


def _material(
    messages: Sequence[Message], question: str | None, *, by_structure: bool = False
) -> list[_Material]:
    every = turns_of(messages)
    said = max((i for i, each in enumerate(every) if each.role == "assistant"), default=-1)
    earlier = sum(each.role != "assistant" for each in every[: said + 1])
    turns = [each for each in every if each.role != "assistant"]
    last = max((i for i, each in enumerate(turns) if each.role == "user"), default=-1)
    texts = [without_excess(clean(each.text))[0] for each in turns]
    if question and last >= 0 and texts[last].strip() != question and question in texts[last]:
        before, _, after = texts[last].rpartition(question)
        texts[last] = f"{before}{after}"
    directions = directions_in(texts)
    if by_structure:
        directions = directions._replace(is_named=True, is_told=False)
    found = [passages_in(text, directions, question, is_last=i == last) for i, text in enumerate(texts)]
    if any(each.passages and not each.is_guess for each in found):  # then what only repeats is rules
        found = [
            Passages(rest=text, has_answer=each.has_answer) if each.is_guess else each
            for text, each in zip(texts, found, strict=True)
        ]
    return [
        _Material(turn, each, i == last, turn.role == "user" and (i == last or i >= earlier))
        for i, (turn, each) in enumerate(zip(turns, found, strict=True))
    ]


def _asked(material: Sequence[_Material], question: str | None) -> str | None:
    """Find the question in the user's last turns, next to the passages: the context may follow it."""
    if question:
        return question
    rests = [each.found.rest for each in material if each.is_asking][::-1]
    for rest in rests:
        tagged = [match["text"] for match in _ASKED_IN_TAGS.finditer(rest)]
        if labeled := tagged[-1] if tagged else asked_in(rest):
            first, *others = labeled.split("\n\n")
            return "\n\n".join([first, *(each for each in others if not is_instruction(each.strip()))])
    plain = [_plain(rest) for rest in rests]
    for paragraphs in plain:
        if questions := [each for each in paragraphs if each.endswith(QUESTION_MARKS)]:
            label = asked_by_label(questions[-1])
            return label["text"] if label else questions[-1]
    alone = [_plain(each.found.rest) for each in material if each.is_asking and not each.found.passages]
    return "\n\n".join(next((each[-1:] for each in (*alone[::-1], *plain) if each), ())) or None


def _plain(text: str) -> list[str]:
    """Return the paragraphs that are no labels and, if there are others, no instructions."""
    paragraphs = [LAST_LABEL.sub("", each) for each in _paragraphs(text)]
    paragraphs = [each for each in paragraphs if not each.endswith(":")]
    return [each for each in paragraphs if not is_instruction(each)] or paragraphs


def _passages(part: _Material, asked: str | None, *, is_liberal: bool) -> Iterator[str]:
    for each in part.found.passages:
        if each != asked:
            yield each
    if not is_liberal:
        return
    paragraphs = [each for each in _paragraphs(part.found.rest) if not _is_aside(each, asked)]
    if part.turn.role == "user" and not part.is_last:
        paragraphs = paragraphs if len(paragraphs) > 1 else []  # earlier questions are not context
    yield from parted("\n\n".join(paragraphs))


def _is_aside(paragraph: str, asked: str | None) -> bool:
    """Return whether a paragraph is an instruction, a label or the question."""
    is_label = paragraph.endswith(":") and "\n" not in paragraph
    is_question = paragraph == asked or asked_in(paragraph) is not None or _ASKED_IN_TAGS.search(paragraph)
    return bool(is_label or is_question or is_instruction(paragraph))


def _paragraphs(text: str) -> list[str]:
    return [stripped for each in _PARAGRAPHS.split(text) if (stripped := each.strip())]


def _prompted(
    span: Span,
    prompt: FoundValue[tuple[Message, ...]],
    passages: Sequence[str],
    material: Sequence[_Material],
    asked: str | None,
) -> ExtractedContext:
    chunks = joined([[chunk_of({"text": each}, rank, span.span_id) for rank, each in enumerate(passages)]])
    shapes = dict.fromkeys(each.found.shape for each in material if each.found.passages) or ["as one text"]
    many = "1 passage" if len(chunks) == 1 else f"{len(chunks)} passages"
    why = (
        f"no span of the RAG call is a retrieval, so its prompt is the context: {many}, {', '.join(shapes)}."
    )
    damages = (prompt.damage or _damage(span, prompt, chunks, material), too_many(len(chunks), "there are"))
    return ExtractedContext(
        sources=(),
        chunks=chunks[:MAX_CHUNKS],
        provenance=(prompt.provenance(Part.CONTEXT, span, why),),
        gaps=tuple(each.gap(Part.CONTEXT) for each in damages if each),
        question=found_text(asked, prompt.at, "the question in the last turn"),
        is_prompt=True,
    )


def _damage(
    span: Span,
    prompt: FoundValue[tuple[Message, ...]],
    chunks: Sequence[Chunk],
    material: Sequence[_Material],
) -> ContentDamage | None:
    marks = span.attributes.get(semconv.RAG_TRUNCATED)
    if isinstance(marks, tuple) and _PROMPT_MARK in marks:
        detail = "the content policy of `ragtrace.instrument` cut the prompt: raise `max_messages_bytes`"
        return ContentDamage(SkipReason.TRUNCATED, detail)
    if any(without_excess(clean(each.turn.text))[1] for each in material):
        detail = f"`{prompt.at.attribute}` is longer than ragtrace reads"
        return ContentDamage(SkipReason.TRUNCATED, detail)
    return with_text_damage(chunks, prompt.at.attribute)


# -- the conversation before the question


def earlier_turns(call: Call, generation: SpanReading | None, *, most: int) -> tuple[EarlierTurn, ...]:
    """Return the last turns before the question, the oldest first; redacted ones are left out."""
    _, prompt = prompt_of(call, generation) if most else (None, None)
    if prompt is None:
        return ()
    spoken = [turn for turn in turns_of(prompt.value or ()) if turn.role != "system"]
    last = max((place for place, turn in enumerate(spoken) if turn.role == "user"), default=0)
    return tuple(_pairs(spoken[:last]))[-most:]


def _pairs(spoken: Sequence[ChatTurn]) -> list[EarlierTurn]:
    found: list[EarlierTurn] = []
    question: str | None = None
    for turn in spoken:
        text = turn.text.strip()
        if not text or text_damage(text, ""):
            continue
        if turn.role == "user":
            question = clean(asked_in(text) or text)
        else:
            found.append(EarlierTurn.bounded(question, clean(text)))
            question = None
    return found
