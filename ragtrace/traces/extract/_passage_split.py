"""Split a block of text into passages by visible separators."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

from ragtrace.model import AttributeValue
from ragtrace.traces.extract._content import parse_loosely
from ragtrace.traces.extract._documents import chunk_of, has_text

_FENCE: Final = re.compile(r"[ \t]{0,3}(`{3,}|~{3,}|\"{3}|'{3})[\w-]{0,20}[ \t]*")
RULE: Final = re.compile(r"[ \t]{0,3}(-{3,}|={3,}|\*{3,}|#{3,}|_{3,})[ \t]*")
NUMBERED: Final = re.compile(
    r"[ \t#*\[]{0,6}(?:document|doc|passage|source|chunk|context|excerpt|snippet|article|extract|result"
    r"|reference|section)[ \t]{0,2}(?:no\.?|number|id)?[ \t]{0,2}[#\[(]?\d{1,4}[\])]?"
    r"(?:[ \t]{0,2}\([^()\n]{0,200}\))?[ \t]{0,2}(?:[:.)\-][ \t*]{0,4}|\*{0,2}$)",
    re.IGNORECASE,
)
"""A line that begins a passage: ``Document 1:``."""
BRACKETED: Final = re.compile(
    r"[ \t]{0,3}(?:[-*][ \t])?\[(?![ xX]\])[^\[\]\n]{1,80}\]:?(?:[ \t]{1,4}(?=\S)|$)"
)
"""A line that begins a passage: ``[1] …``, ``[faq-12] …``."""
LISTED: Final = re.compile(r"[ \t]{0,3}\d{1,3}[.)][ \t]{1,4}(?=\S)")
ANY_NUMBERED: Final = re.compile(
    r"[ \t#*]{0,6}(?:[^\W\d_]{2,20}|[\u3010\[(\uff08]?[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,8})"
    r"[ \t]{0,2}(?:n[.º°o]{1,2} ?|nr\. ?)?[#\[(]?\d{1,4}[\])\u3011\uff09]?[ \t]{0,2}"
    r"(?:\([^()\n]{0,200}\))?[ \t]{0,2}"
    r"[:\uff1a.)-][ \t*]{0,4}",
    re.IGNORECASE,
)
"""A line that begins a passage in another language: ``Dokument 1:``."""
_BULLET: Final = re.compile(r"[ \t]{0,3}[-*•][ \t]{1,4}(?=\S)")
_JSON: Final = re.compile(
    r"\[\s{0,20}\{|\{\s{0,20}\"(?:documents|passages|contexts?|chunks|results|sources)\"", re.IGNORECASE
)
_JSON_TRIED: Final = 8
_SENTENCE: Final = re.compile(r"\w\W{0,3}[.!?…][\"'”)\]]{0,2}[ \t]{0,9}$")
_LABELED: Final = re.compile(r"\w{1,20}:")
_MARKS: Final = re.compile(
    r"^[ \t]*\[(?:/|END )[^\]\n]{0,40}\][ \t]*$|<((?:document_)?metadata)>[^<>]{0,500}</\1>",
    re.MULTILINE | re.IGNORECASE,
)
_FILE: Final = re.compile(r"[\w./-]{1,120}\.\w{2,5}")
"""A list of sources that follows the passages."""
_LETTER: Final = re.compile(r"\w")


def parted(block: str) -> tuple[str, ...]:
    """Split a block; without separators, it is one passage."""
    documents, _ = documents_in_json(block)
    if documents:
        return documents
    if shown := documents_in_repr(block):
        return _whole(str(each["text"]) for each in shown if isinstance(each, Mapping))
    lines = block.splitlines()
    for passages in (
        _fenced(lines),
        _begun_by(NUMBERED, lines),
        _begun_by(ANY_NUMBERED, lines) if sum(bool(ANY_NUMBERED.match(each)) for each in lines) > 1 else (),
        _begun_by(BRACKETED, lines),
        _ruled(lines),
        _listed(LISTED, lines),
        _listed(_BULLET, lines),
        _a_line_each(lines),
    ):
        if passages:
            return passages
    return _whole([block])


def documents_in_json(text: str) -> tuple[tuple[str, ...], str]:
    """Read the documents of a JSON list inside a text, and return them with the surrounding text.

    Chat messages are not documents.
    """
    listed, rest = objects_in_json(text)
    texts = [chunk_of(each, 0, "").text for each in listed if isinstance(each, Mapping)]
    texts = texts or [each for each in listed if isinstance(each, str)]
    found = _whole([each or "" for each in texts])
    return (found, rest) if found else ((), text)


def objects_in_json(text: str) -> tuple[Sequence[AttributeValue], str]:
    """Return the objects with text of lines of JSON or of a JSON list, or a list's strings; and the rest."""
    objects: list[AttributeValue] = []
    rest: list[str] = []
    for line in text.splitlines() if '{"' in text else ():
        stripped = line.strip().rstrip(",")
        node = parse_loosely(stripped) if stripped[:2] == '{"' and stripped[-1:] == "}" else None
        if _is_document(node):
            objects.append(node)
        else:
            rest.append(line)
    if objects:
        return objects, "\n".join(rest)
    decoder = json.JSONDecoder()
    for match in islice(_JSON.finditer(text), _JSON_TRIED):
        try:
            _, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        node = parse_loosely(text[match.start() : end])
        if isinstance(node, Mapping):
            node = next((each for each in node.values() if isinstance(each, tuple)), ())
        items = node if isinstance(node, tuple) else ()
        if items and (all(map(_is_document, items)) or all(isinstance(each, str) for each in items)):
            return items, f"{text[: match.start()]}\n{text[end:]}"
    return (), text


def _is_document(item: AttributeValue) -> bool:
    return isinstance(item, Mapping) and "role" not in item and has_text(item)


_REPR: Final = re.compile(r"\b(?:Document|Node|TextNode|Chunk|Passage|Doc)\(")
_QUOTE: Final = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_REPR_TEXT: Final = re.compile(rf"\b(?:page_content|content|text)={_QUOTE}", re.DOTALL)
_REPR_ID: Final = re.compile(rf"\b(?:id|id_|doc_id|node_id)={_QUOTE}")
_MOST_REPRS: Final = 1_000


def documents_in_repr(text: str) -> tuple[AttributeValue, ...]:
    """Read documents that a template wrote as Python shows them: ``[Document(id='a', page_content='…')]``."""
    starts = [each.start() for each in islice(_REPR.finditer(text), _MOST_REPRS)]
    found: list[AttributeValue] = []
    for start, end in pairwise([*starts, len(text)]):
        said = _REPR_TEXT.search(text, start, end)
        if said is None:
            continue
        named = _REPR_ID.search(text, start, said.start())
        found.append({"text": _unquoted(said[1]), **({"id": _unquoted(named[1])} if named else {})})
    return tuple(found)


def _unquoted(text: str) -> str:
    """Return what a Python string literal says."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError):
        return text[1:-1]


def _fenced(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the content of fences, if only labels surround them."""
    inside: list[list[str]] = []
    mark, has_more = "", False
    for line in lines:
        fence = _FENCE.fullmatch(line)
        if fence and not mark:
            mark = fence[1]
            inside.append([])
        elif fence and fence[1] == mark:
            mark = ""
        elif mark:
            inside[-1].append(line)
        else:
            has_more = has_more or not (line.rstrip().endswith(":") or not line.strip())
    return () if has_more or mark else _whole("\n".join(each) for each in inside)


def _begun_by(label: re.Pattern[str], lines: Sequence[str]) -> tuple[str, ...]:
    """Start a passage at each line with a label; text before the first label is a passage too."""
    passages: list[list[str]] = [[]]
    for line in lines:
        match = label.match(line)
        if match:
            passages.append([line[match.end() :]])
        else:
            passages[-1].append(line)
    if len(passages) == 1:
        return ()
    first = [] if "\n".join(passages[0]).rstrip().endswith(":") else passages[:1]
    return _whole("\n".join(each) for each in (*first, *passages[1:]))


def _ruled(lines: Sequence[str]) -> tuple[str, ...]:
    """Split at lines of dashes and similar rules."""
    passages: list[list[str]] = [[]]
    for line in lines:
        if RULE.fullmatch(line):
            passages.append([])
        else:
            passages[-1].append(line)
    return _whole("\n".join(each) for each in passages) if len(passages) > 1 else ()


def _listed(mark: re.Pattern[str], lines: Sequence[str]) -> tuple[str, ...]:
    """Split a block that is only a list; a list below a sentence belongs to the sentence."""
    items: list[list[str]] = []
    for line in lines:
        match = mark.match(line)
        if match:
            items.append([line[match.end() :]])
        elif items and (not line.strip() or line[:1] in " \t"):
            items[-1].append(line)
        elif line.strip():
            return ()
    return _whole("\n".join(each) for each in items) if len(items) > 1 else ()


def _a_line_each(lines: Sequence[str]) -> tuple[str, ...]:
    """Split adjacent lines if each ends like a sentence; wrapped text does not."""
    stripped = "\n".join(lines).strip().splitlines()
    is_each_whole = all(_SENTENCE.search(line) and not _LABELED.match(line) for line in stripped)
    return _whole(stripped) if len(stripped) > 1 and is_each_whole else ()


def _whole(passages: Iterable[str]) -> tuple[str, ...]:
    texts = [text for each in passages if _LETTER.search(text := _MARKS.sub("", each).strip())]
    said = [text for text in texts if not _FILE.fullmatch(text)]
    return tuple(said or texts)
