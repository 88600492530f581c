"""Citations as models' providers return them: which part of the answer comes from which source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from ragtrace.model import AttributeValue, Chunk, Citation
from ragtrace.traces.extract._documents import plain
from ragtrace.traces.extract._messages import message_text, of_tools, part_text, shown_document, speaks
from ragtrace.traces.trace import flat

_MOST: Final = 300
"""Citations of an answer, and sources that they name; further ones are not read."""
_MOST_SOURCES: Final = 50
"""Of a citation."""
_MOST_TEXTS: Final = 8
"""Of a source."""
_LONGEST: Final = 100_000
"""Characters of a message in which places are looked for."""
_DEEPEST: Final = 12
_MAY_CITE: Final = re.compile(r"itations|nnotations|rounding_?[Ss]upports")
_CITING: Final = ("citations", "annotations", "groundingsupports")
_NOT_CITING: Final = ("citationmetadata", "arguments", "tools", "toolcalls", "functionresponse")
"""Gemini's ``citationMetadata`` is about the model's training data."""


class CitedSource(NamedTuple):
    """A source, as the provider names it."""

    name: str
    names: frozenset[str] = frozenset()
    """Ids, files, addresses and titles, in lower case."""
    texts: tuple[str, ...] = ()
    """The whole source, or what of it is cited."""


class FoundCitation(NamedTuple):
    """A citation in a message. Its place is ``None`` if the message does not have it."""

    message: str
    place: tuple[int, int] | None
    sources: tuple[CitedSource, ...]


class _Shape(NamedTuple):
    """A form of citations: where its keys, in plain spelling, tell the cited part of the answer."""

    told_by: str
    start: str = ""
    """Without one, it cites for the whole part of the message that has it."""
    end: str = ""
    words: str = ""
    """The cited part of the answer itself."""
    sources: str = ""
    """Without a key, the citation names its source itself."""
    unit: str = "utf-32-le"
    """What the offsets count: code points, or else UTF-8's bytes."""


_BEDROCK: Final = "generatedresponsepart.textresponsepart"
_SHAPES: Final = (
    # Gemini and Vertex AI
    _Shape(
        *("segment", "segment.startindex", "segment.endindex", "segment.text", "groundingchunkindices"),
        unit="utf-8",
    ),
    # Bedrock's RetrieveAndGenerate
    _Shape(
        *("generatedresponsepart", f"{_BEDROCK}.span.start", f"{_BEDROCK}.span.end", f"{_BEDROCK}.text"),
        sources="retrievedreferences",
    ),
    # OpenAI's Assistants and Chat Completions, then Responses, with LangChain's and xAI's
    _Shape("filecitation", "startindex", "endindex", "text", "filecitation"),
    _Shape("urlcitation", "urlcitation.startindex", "urlcitation.endindex", "", "urlcitation"),
    _Shape("startindex", "startindex", "endindex"),
    # Cohere, versions 2 and 1
    _Shape("sources", "start", "end", "text", "sources"),
    _Shape("documentids", "start", "end", "text", "documentids"),
    # Anthropic, Bedrock's Converse, then OpenAI's `file_citation`, behind whose words it is
    _Shape("citedtext"),
    _Shape("sourcecontent"),
    _Shape("fileid", "index", "index"),
)
_CHARS: Final = {"utf-32-le": 4, "utf-16-le": 2, "utf-8": 1}
"""Bytes of a unit in which offsets count."""
_NAMES: Final = (
    *("documenttitle", "title", "filename", "url", "uri", "source", "fileid", "documentid", "docid", "id"),
    *("filepath", "path"),
)
_TEXTS: Final = ("citedtext", "quote", "text", "content", "snippet", "excerpt")
_BLOCKS: Final = {"documentindex": "document", "searchresultindex": "search_result"}
"""What Anthropic counts in the request."""


def may_cite(value: AttributeValue) -> bool:
    """Return whether a value may hold citations."""
    return bool(_MAY_CITE.search(value)) if isinstance(value, str) else isinstance(value, tuple | dict)


def citations_in(
    response: AttributeValue, *, answer: str, request: Callable[[], tuple[AttributeValue, ...]]
) -> tuple[FoundCitation, ...]:
    """Find the citations in a response; ``answer`` is what those outside a message cite for."""

    @cache
    def shown(kind: str) -> Sequence[Mapping[str, AttributeValue]]:
        return tuple(_blocks(request(), kind, 0))

    return tuple(islice(_walk(response, _Said(answer, 0, len(answer)), shown, 0), _MOST))


def placed(
    found: Sequence[FoundCitation], answer: str | None, chunks: Sequence[Chunk]
) -> tuple[Citation, ...]:
    """Return the citations by their places in the answer and by chunks, one for each source."""
    texts = [flat(chunk.text or "") for chunk in chunks]
    known: dict[CitedSource, tuple[str, ...]] = {}
    citations: list[Citation] = []
    pairs = ((citation, source) for citation in found for source in citation.sources)
    for citation, source in islice(pairs, _MOST):
        start, end = _in_answer(citation, answer or "") or (None, None)
        if source not in known:
            known[source] = _chunk_ids(source, chunks, texts)
        citations.append(Citation(start=start, end=end, chunk_ids=known[source], source=source.name))
    return tuple(dict.fromkeys(citations))


_Shown: TypeAlias = Callable[[str], Sequence[Mapping[str, AttributeValue]]]
"""Returns the documents, or the search results, of the request in their order."""


class _Said(NamedTuple):
    """A part of a message."""

    message: str
    start: int
    end: int


def _walk(
    node: AttributeValue, said: _Said, shown: _Shown, depth: int, *, are_parts: bool = False
) -> Iterator[FoundCitation]:
    if depth > _DEEPEST:
        return
    if isinstance(node, tuple):
        at = said.start
        for each in node:
            text, part = part_text(each) if are_parts else "", said
            if text and (start := said.message.find(text, at)) >= 0:
                at = start + len(text)
                part = _Said(said.message, start, at)
            if isinstance(each, tuple | dict):
                yield from _walk(each, part, shown, depth + 1)
        return
    if not isinstance(node, dict) or of_tools(node):
        return
    is_message = speaks(node)
    if is_message and (message := message_text(node)):
        said = _Said(message, 0, len(message))
    for key, inner in node.items():
        name = plain(key)
        if name in _CITING:
            listed = _plain(node).get("groundingchunks") if name == "groundingsupports" else None
            for item in inner if isinstance(inner, tuple) else ():
                found = _read(_plain(item), said, listed, shown)
                if found:
                    yield found
        elif name not in _NOT_CITING and isinstance(inner, tuple | dict):
            are_parts = is_message and name in ("content", "parts")
            yield from _walk(inner, said, shown, depth + 1, are_parts=are_parts)


def _plain(node: AttributeValue) -> Mapping[str, AttributeValue]:
    return {plain(key): value for key, value in node.items()} if isinstance(node, dict) else {}


def _at(item: Mapping[str, AttributeValue], path: str) -> AttributeValue:
    node: AttributeValue = item
    for key in path.split("."):
        node = _plain(node).get(key)
    return node


def _read(
    item: Mapping[str, AttributeValue], said: _Said, listed: AttributeValue, shown: _Shown
) -> FoundCitation | None:
    shape = next((each for each in _SHAPES if item.get(each.told_by) is not None), None)
    if shape is None or item.get("type") == "file_path":  # a file that the model wrote
        return None
    given = _at(item, shape.sources) if shape.sources else item
    among = listed if isinstance(listed, tuple) else ()
    sources = tuple(
        _source(among[each] if isinstance(each, int) and 0 <= each < len(among) else each, shown)
        for each in (given[:_MOST_SOURCES] if isinstance(given, tuple) else (given,))
    )
    part = said.message[said.start : said.end]
    words = _at(item, shape.words) if shape.words else None
    start, end = (_at(item, each) if each else None for each in (shape.start, shape.end))
    if len(part) > _LONGEST:
        found = None
    elif shape.start:
        found = _characters(part, start, end, words if isinstance(words, str) else "", shape.unit)
    else:
        found = (0, len(part))
    place = (said.start + found[0], said.start + found[1]) if found else None
    return FoundCitation(said.message, place, sources)


def _characters(
    text: str, start: AttributeValue, end: AttributeValue, words: str, unit: str
) -> tuple[int, int] | None:
    """Return a place in code points. The words, if known, tell what the provider really counts."""
    start = 0 if start is None and end is not None else start  # JSON of protobuf leaves zeros out
    if type(start) is int and type(end) is int and 0 <= start <= end:
        for each in _CHARS if words else (unit,):
            data, size = _encoded(text, each), _CHARS[each]
            first = len(data[: start * size].decode(each, "ignore"))
            last = len(data[: end * size].decode(each, "ignore"))
            if words and text.startswith(words, first) and start * size <= len(data):
                return first, first + len(words)
            if not words and end * size <= len(data):
                return first, last
    at = text.find(words) if words and text.count(words) == 1 else -1
    return (at, at + len(words)) if at >= 0 else None


@lru_cache(maxsize=3)
def _encoded(text: str, unit: str) -> bytes:
    return text.encode(unit, "surrogatepass")


def _source(item: AttributeValue, shown: _Shown) -> CitedSource:
    """Read the names and the texts of a source."""
    names: dict[str, str] = {}
    texts: dict[str, None] = {}
    pending = [(_plain(item), 0)]
    for fields, depth in pending:
        for key, kind in _BLOCKS.items():
            index = fields.get(key)
            if type(index) is int:
                blocks = shown(kind)
                names.setdefault(key, f"{kind.replace('_', ' ')} {index}")
                for document in shown_document(blocks[index]) if 0 <= index < len(blocks) else ():
                    text = _plain(document).get("text")
                    texts |= {text: None} if isinstance(text, str) else {}
        for key, value in fields.items():
            if isinstance(value, tuple | dict) and depth < 4:
                inner = value[:_MOST_SOURCES] if isinstance(value, tuple) else (value,)
                pending.extend((_plain(each), depth + 1) for each in inner)
            elif isinstance(value, str) and value:
                if key in _TEXTS:
                    texts[value] = None
                elif key in _NAMES:
                    names.setdefault(key, value)
    if isinstance(item, str | int):
        names["id"] = str(item)
    name = next((names[key] for key in (*_NAMES, *_BLOCKS) if key in names), "an unnamed source")
    return CitedSource(name, frozenset(map(str.casefold, names.values())), tuple(texts)[:_MOST_TEXTS])


def _blocks(node: AttributeValue, kind: str, depth: int) -> Iterator[Mapping[str, AttributeValue]]:
    if isinstance(node, dict) and node.get("type") == kind:
        yield node
    elif isinstance(node, tuple | dict) and depth <= _DEEPEST:
        for each in node.values() if isinstance(node, dict) else node:
            yield from _blocks(each, kind, depth + 1)


def _in_answer(found: FoundCitation, answer: str) -> tuple[int, int] | None:
    """Return the place in the answer, which may be a part of the message, or be in other words."""
    if found.place is None:
        return None
    (start, end), at = found.place, answer.find(found.message)
    if at >= 0:
        return at + start, at + end
    words = found.message[start:end].strip()
    at = answer.find(words) if words and answer.count(words) == 1 else -1
    return (at, at + len(words)) if at >= 0 else None


def _chunk_ids(source: CitedSource, chunks: Sequence[Chunk], texts: Sequence[str]) -> tuple[str, ...]:
    """Return the chunks that hold what is cited, else those of the source by its name."""
    cited = [each for text in source.texts if (each := flat(text))]
    named = {place for place, chunk in enumerate(chunks) if not source.names.isdisjoint(_names_of(chunk))}
    holding = {place for place, text in enumerate(texts) if text in cited} or {
        place for place, text in enumerate(texts) if any(each in text for each in cited)
    }
    places = (holding & named) or holding or named
    return tuple(chunks[place].id for place in sorted(places))


def _names_of(chunk: Chunk) -> Iterator[str]:
    yield re.sub(r"#\d+\Z", "", chunk.id).casefold()  # a file's chunks with the file as their id
    for key, value in chunk.metadata.items():
        if plain(key) in _NAMES and isinstance(value, str):
            yield value.casefold()
