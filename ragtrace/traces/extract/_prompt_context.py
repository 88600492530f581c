"""Read a model's prompt: the context of a call without a retrieval, and the earlier conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import Chunk, EarlierTurn, Gap, Part, Provenance, SkipReason
from ragtrace.traces.extract._calls import Call
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    Place,
    clean,
    found_text,
    parse_loosely,
    text_damage,
    without_excess,
)
from ragtrace.traces.extract._documents import (
    MAX_CHUNKS,
    chunk_of,
    find_documents,
    is_document,
    joined,
    too_many,
    with_text_damage,
)
from ragtrace.traces.extract._languages import OF_THE_CONVERSATION
from ragtrace.traces.extract._messages import ChatTurn, Message, calls_tools, turns_of
from ragtrace.traces.extract._passage_split import documents_in_repr, objects_in_json, parted
from ragtrace.traces.extract._passages import (
    Passages,
    are_about,
    directions_in,
    is_english,
    is_instruction,
    passages_in,
)
from ragtrace.traces.extract._payload import listed_documents
from ragtrace.traces.extract._prompts import LAST_LABEL, QUESTION_MARKS, asked_by_label, asked_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import Span

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
            return labeled
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
