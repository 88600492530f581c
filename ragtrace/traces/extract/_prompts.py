"""Find the question in a prompt from a template, next to the chunks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ragtrace.traces.extract._content import FoundValue
from ragtrace.traces.extract._languages import ASKED_ABROAD, INSTRUCTS_ABROAD, REPLIES_ABROAD

QUESTION_MARKS = ("?", "\uff1f", "\u061f")
LAST_LABEL = re.compile(r"\n[^\n]{1,60}[:\uff1a]\Z")
"""Below a question: ``Answer:``."""
_MARKUP = r"[\W_]{0,8}"
_COLON = r"[ *_]{0,4}:[ *_]{0,4}"
ASKED = re.compile(
    rf"{_MARKUP}(?:(?:user|user's|human|customer) )?(?:question|query){_COLON}(?P<text>.*)", re.IGNORECASE
)
_ASKED_BY_LABEL = re.compile(
    r"[\W_]{0,8}(?:[^\s:\uff1a]{1,20} ){0,11}[^\s:\uff1a]{1,20}[*_ ]{0,4}[:\uff1a][*_ ]{0,4}"
    r"(?P<text>[^\n]{3,600}[?\uff1f\u061f])\s{0,9}"
)
"""Any label before what ends like a question: ``Current task: …?``."""
_HEADING = re.compile(
    r"[ \t]{0,3}(?:#{1,6} |\*\*[^*\n]{1,40}\*\*:?[ \t]*$|={2,}|\u3010[^\n]{1,40}\u3011[ \t]*$)|</"
)
_OVER = re.compile(
    rf"{_MARKUP}(?:\w{{1,20}} )?(?:answer|response|context|documents?|passages?|sources?){_COLON}",
    re.IGNORECASE,
)


def asked_by_label(text: str) -> re.Match[str] | None:
    """Match a line or a paragraph that ends like a question behind a label; its ``text`` is the question."""
    return _ASKED_BY_LABEL.fullmatch(text) if text.rstrip().endswith(QUESTION_MARKS) else None


def is_question_alone(prompt: FoundValue[str] | None, texts: Sequence[str]) -> bool:
    """Return whether a prompt is only the question: it contains no known chunk."""
    text = (prompt.value if prompt else None) or ""
    is_whole = asked_in(text) is None and not any(each in text for each in texts)
    return is_whole and bool(text and texts)


def question_of(prompt: FoundValue[str] | None) -> FoundValue[str] | None:
    """Extract the question from a template's prompt."""
    asked = asked_in(prompt.value) if prompt and prompt.value else None
    if prompt is None or asked is None:
        return None
    return prompt._replace(value=asked, how="the text after its last `Question:` or `Query:`")


def beside_chunks(prompt: FoundValue[str] | None, texts: Sequence[str]) -> FoundValue[str] | None:
    """Return what is left of a prompt beside the chunks, if it is short: the question."""
    if prompt is None or prompt.value is None or asked_in(prompt.value):
        return question_of(prompt)
    rest = prompt.value
    for each in texts[:_MOST_CHUNKS]:
        rest = rest.replace(each, "\n\n")
    paragraphs = [each.strip() for each in rest.split("\n\n") if each.strip()]
    if rest == prompt.value or not paragraphs or len(paragraphs[-1]) > _LONGEST_QUESTION:
        return None
    return prompt._replace(value=paragraphs[-1], how="what is beside the chunks in the prompt")


_MOST_CHUNKS = 50
_LONGEST_QUESTION = 600


_FIELD = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*$", re.MULTILINE)
_FIELD_OF_QUESTION = re.compile(r"(user_)?(question|query|request)s?", re.IGNORECASE)


def fields_in(text: str) -> Mapping[str, str]:
    """Return the fields of a text that DSPy wrote: ``[[ ## name ## ]]`` on a line, then the value."""
    marks = list(_FIELD.finditer(text)) if "[[ ## " in text else []
    ends = [*(each.start() for each in marks[1:]), len(text)]
    return {each[1]: text[each.end() : end].strip() for each, end in zip(marks, ends, strict=False)}


class Element(NamedTuple):
    """A tag with its content and its end: ``<x>…</x>``, ``[X]…[/X]``."""

    name: str
    """Lower case."""
    start: int
    end: int
    inside: slice


_TAG = re.compile(r"[<\[\u25c1](/?)([^\W\d][\w.:-]{0,40})(?:\s[^<>\[\]]{0,300})?[>\]\u25b7]")


def elements_in(text: str) -> list[Element]:
    """Find all elements with content. A tag that is only mentioned encloses nothing."""
    opened: list[tuple[str, re.Match[str]]] = []
    found: list[Element] = []
    for match in _TAG.finditer(text) if any(mark in text for mark in "<[\u25c1") else ():
        name = match[2].lower()
        if not match[1]:
            opened.append((name, match))
            continue
        near = range(len(opened) - 1, max(-1, len(opened) - 9), -1)
        at = next((i for i in near if opened[i][0] == name), None)
        if at is not None:
            start = opened[at][1]
            del opened[at:]
            if _INK.search(text, start.end(), match.start()):
                found.append(Element(name, start.start(), match.end(), slice(start.end(), match.start())))
    return found


_INK = re.compile(r"\S")


def outermost(elements: Sequence[Element]) -> list[Element]:
    """Return the elements that are in no other of them, in their order."""
    chosen: list[Element] = []
    for each in sorted(elements, key=lambda each: each.start):
        if not chosen or each.start >= chosen[-1].end:
            chosen.append(each)
    return chosen


def without(text: str, elements: Sequence[Element]) -> str:
    """Return what is beside elements that do not overlap, in their order."""
    ends = [0, *(each.end for each in elements)]
    starts = [*(each.start for each in elements), len(text)]
    return "\n".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def asked_in(prompt: str) -> str | None:
    """Return the text after the last ``Question:`` or ``Query:`` at the start of a line, or a field's.

    Frameworks' templates, and most hand-written ones, mark the question this way.
    """
    for name, value in fields_in(prompt).items():
        if value and _FIELD_OF_QUESTION.fullmatch(name):
            return value.split("\n\n")[0].strip() or None
    asked: list[str] | None = None
    is_open = False
    for line in prompt.splitlines():
        if match := ASKED.match(line) or ASKED_ABROAD.match(line):
            asked, is_open = [match["text"]], True
        elif is_open and (
            _OVER.match(line)
            or REPLIES_ABROAD.match(line)
            or (any(asked or ()) and (_HEADING.match(line) or INSTRUCTS_ABROAD.match(line)))
        ):
            is_open = False
        elif is_open and asked is not None:
            asked.append(line)
    return _unquoted("\n".join(asked).strip()) or None if asked else None


def _unquoted(text: str) -> str:
    pair = (text[:1], text[-1:])
    return text[1:-1].strip() if len(text) > 2 and pair in _QUOTES and text.count(pair[0]) <= 2 else text


_QUOTES = {('"', '"'), ("\u201c", "\u201d"), ("\u300c", "\u300d"), ("\u00ab", "\u00bb"), ("\u201e", "\u201c")}
