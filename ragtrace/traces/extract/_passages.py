"""Find passages in a prompt by the markers that separate them from instructions and from the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from ragtrace.traces.extract._prompts import (
    ANY_NUMBERED,
    ASKED,
    ASKED_ABROAD,
    BARE_HEAD_OF_PASSAGES,
    BRACKETED,
    CJK,
    COLUMNS,
    FENCE,
    FILE,
    HEADS_ELSE,
    HEADS_PASSAGES,
    IN_PARENTHESES,
    INSTRUCTS_ABROAD,
    KEYED,
    LAST_LABEL,
    LISTED,
    NAMES_PASSAGES,
    NUMBERED,
    QUESTION_MARKS,
    REPLIES_ABROAD,
    RULE,
    SAYS_TO_ANSWER,
    Element,
    asked_by_label,
    documents_in_json,
    elements_in,
    fields_in,
    keys_of_records,
    outermost,
    parted,
    without,
)

_NOUNS: Final = (
    r"(?:contexts?|passages?|documents?|docs|sources|excerpts?|snippets?|chunks?|extracts?|search results"
    r"|articles?|sections|knowledge base|reference (?:text|material)s?"
    r"|(?:background|context|relevant|retrieved) information)"
)
_VERBS: Final = (
    r"\b(?:answer|answers|answering|respond|reply|use|using|based|rely|relying|refer|cite|citations?|according|grounded|given"
    r"|consult)\b"
)
_THEN_ANSWER: Final = r"[^\n.]{0,80}?\b(?:answer|respond|reply)\b"
_DIRECTED: Final = re.compile(
    rf"{_VERBS}[^\n]{{0,120}}?\b{_NOUNS}\b|\b{_NOUNS}\b{_THEN_ANSWER}", re.IGNORECASE
)
_POINTED: Final = re.compile(
    rf"{_VERBS}[^\n]{{0,80}}?\b(?:these|this|following|given|provided|supplied|retrieved|numbered|labell?ed|below)\b"
    rf"[^\n.]{{0,40}}?\b{_NOUNS}\b"
    rf"|{_VERBS}[^\n]{{0,80}}?\b{_NOUNS}\b[^\n.]{{0,20}}?\b(?:below|provided|that follow)\b"
    rf"|{_VERBS}[^\n]{{0,80}}?\b(?:following|provided|given) information(?: below)?"
    r"[ \t]{0,3}[:.]?[ \t]{0,3}$"
    rf"|\b(?:these|this|following|below)\b[^\n.]{{0,40}}?\b{_NOUNS}\b{_THEN_ANSWER}",
    re.IGNORECASE | re.MULTILINE,
)
_SURE_TAGS: Final = (
    r"contexts?|documents?|docs|passages?|excerpts?|snippets?|chunks?|extracts?|search_results?"
    r"|knowledge_base|retrieved_\w{1,20}|\w{1,20}_context"
)
_TAGS: Final = rf"{_SURE_TAGS}|doc|sources?|articles?|results?|knowledge|references?"
"""Other tags are common in HTML and elsewhere: they count only if the prompt says to answer from them."""
_ANSWERS_IN_TAGS: Final = r"answer|response|submission|completion"
_NO_PASSAGES: Final = rf"examples?|{_ANSWERS_IN_TAGS}"
_BODY: Final = re.compile(r"<(content|text|body|document_contents?|page_content)>", re.IGNORECASE)
_FACTS: Final = re.compile(
    r"<(source|title|url|id|index|score|(?:document_)?metadata|date|name)>"
    r"[^<>]{0,500}</\1>\s{0,9}",
    re.IGNORECASE,
)
_STRONG: Final = (
    r"passages|excerpts|snippets|chunks|search results"
    r"|(?:retrieved|relevant|provided|supporting|found) (?:context|information|text|results|knowledge)"
)
_WEAK: Final = (
    r"context|documents|docs|extracts|sources|articles|background|(?:background |context )?information"
    r"|reference(?: text| material)?s?|knowledge(?: base)?"
)
_HEADING: Final = re.compile(
    r"[\s>#*_=-]{0,8}(?:(?:here|these|below) (?:are|is) )?(?:(?:the|some|our|following|relevant|retrieved"
    r"|provided|supporting|reference|source|top|most|company|internal|\d{1,3}) ){0,4}?"
    rf"(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK}))"
    r"(?: (?:below|provided|found|retrieved|to use|from [^\n:]{1,40}))?(?: ?\([^()\n]{0,80}\))?"
    r"[*_ \t]{0,4}:[*_ \t]{0,4}(?P<text>.*)",
    re.IGNORECASE,
)
_ANNOUNCED: Final = re.compile(
    rf"[\W_]{{0,8}}(?:the )?(?P<strong>{_STRONG}|{_WEAK}|context information) (?:is|are) "
    r"(?:given |provided |listed )?(?:below|as follows)[.:]?[ \t]{0,9}",
    re.IGNORECASE,
)
_BARE_HEADING: Final = re.compile(
    rf"(?:#{{1,6}} {{0,3}}|\*\*|={{2,}} ?|-{{3,}} ?)"
    rf"(?:(?:the|relevant|retrieved|provided|supporting) ){{0,2}}"
    rf"(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK}))[\s*=#-]{{0,9}}",
    re.IGNORECASE,
)
_ANYBODYS: Final = re.compile(r"[ \t#*]{0,6}(?:article|section|result|reference|context)\b", re.IGNORECASE)
"""Labels that contracts and papers also use."""
_BARE_QUESTION: Final = re.compile(
    r"(?:#{1,6} {0,3}|\*\*|={2,} ?|-{3,} ?)(?:the )?(?:user'?s? )?(?:question|query)[\s*=#-]{0,9}",
    re.IGNORECASE,
)
_ANSWER: Final = re.compile(
    r"[\W_]{0,8}(?:\w{1,20} )?(?:answer|response|submission|prediction)[ *_]{0,4}:[ *_]{0,4}(?P<text>.*)",
    re.IGNORECASE,
)
_OTHER: Final = re.compile(
    r"\s{0,3}(?:instructions?|rules?|guidelines?|your task|task|(?:expected )?output(?: format)?"
    r"|(?:chat |conversation )?history|conversation)(?: [^:\n]{0,20})?:.*"
    r"|\s{0,3}(?:the )?(?:above|preceding|foregoing) (?:is|are|was|were) .{0,80}"
    r"|\s{0,3}(?:#{1,6} {0,3}|\*\*|={2,} ?)(?:instructions?|rules?|guidelines?|task|notes?|output|format"
    r"|examples?|history|chat history|conversation|important|constraints?|tone|style|role)\b.{0,80}",
    re.IGNORECASE,
)
_INSTRUCTION: Final = re.compile(
    r"[\W\d_]{0,6}(?:you are\b|you're an? |you must\b|you should\b|you will be\b|your (?:task|job|role|goal) "
    r"|(?:answer|respond|reply)\b(?! ?:)|if you (?:don't|do not|cannot|can't) "
    r"|if the (?:answer|context|passages|documents|information|sources) "
    r"|(?:do not|don't|never) (?:use|make|invent|answer|add|reveal|mention) "
    r"|always (?:answer|respond|reply|be|cite|use) |please (?:answer|respond|be|use|cite)\b"
    r"|be (?:polite|brief|concise|helpful|honest|short|friendly)\b"
    r"|use (?:only|these|at most|three|the following) |only (?:use|answer) |cite |think step|let's think"
    r"|say (?:that )?you |(?:based on|using|given) (?:only |the |these )"
    r"|act as |begin!|keep (?:the|your) answer|the following )",
    re.IGNORECASE,
)
_ASKING: Final = re.compile(r"[?\uff1f\u061f]['\"\u201d\u300d]?[ \t]*(?:\n[ \t]*\n|\s*\Z)")
_SENTENCE: Final = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]['\")\u201d\u300d]?\s*\Z")
_LONGEST_INSTRUCTION: Final = 1_500
_LONGEST_QUESTION: Final = 600
_LONGEST_END: Final = 10_000
_DEEPEST: Final = 4
_SHORTEST_BLOCK: Final = 4
_LABEL_WORDS: Final = 3
"""Words."""
_DIRECTIONS: Final = 20
"""Lines."""
_NOUN: Final = re.compile(r"[^\W\d_]{1,4}")
"""What a noun keeps in most of its forms."""


class Directions(NamedTuple):
    """What the whole prompt says about its passages."""

    is_directed: bool
    """It says to answer from a context, documents or the like."""
    is_pointed: bool
    """It means passages in the prompt itself: *these* passages, the context *below*."""
    is_named: bool
    """It names passages and speaks of an answer, in any language."""
    is_asked: bool
    """It has a paragraph that ends with a question mark."""
    is_told: bool = True
    """Words tell this; else structure has to."""


class Passages(NamedTuple):
    """The passages of one message, and the rest of it."""

    passages: tuple[str, ...] = ()
    rest: str = ""
    shape: str = ""
    """Human-readable: how they are marked."""
    has_answer: bool = False
    """It also holds an answer, for grading or as an example."""
    is_guess: bool = False
    """They are told by repetition alone, as a list of rules is, too."""


def directions_in(texts: Sequence[str]) -> Directions:
    """Find directions in the messages of the system and the user."""
    # directions come before or after the passages of a long text
    shorts = (
        each if len(each) <= 2 * _LONGEST_END else f"{each[:_LONGEST_END]}\n{each[-_LONGEST_END:]}"
        for each in texts
    )
    ends = "\n\n".join(shorts)
    lines = ends.splitlines()
    return Directions(
        is_directed=any(map(_is_directing, lines)),
        is_pointed=any(map(_is_pointing, lines)),
        is_named=bool(
            NAMES_PASSAGES.search(ends)
            and (
                SAYS_TO_ANSWER.search(ends)
                or any(asked_by_label(each) and not ASKED.match(each) for each in lines)
            )
        ),
        is_asked=bool(_ASKING.search(ends)),
    )


@lru_cache(maxsize=1_024)  # an application writes the lines of its template again and again
def _is_directing(line: str) -> bool:
    return bool(_DIRECTED.search(line))


@lru_cache(maxsize=1_024)
def _is_pointing(line: str) -> bool:
    return bool((_is_directing(line) or "nformation" in line) and _POINTED.search(line))


def is_english(text: str) -> bool:
    """Return whether a prompt has words of English: what it says of passages is known then."""
    return bool(_ENGLISH.search(text))


def are_about(passages: Sequence[str], question: str) -> bool:
    """Return whether passages, and no talk, have words of the question, in any language and inflection."""
    is_talk = all(KEYED.fullmatch(line) for each in passages[:1] for line in each.split("\n") if line.strip())
    return not is_talk and len(_beginnings("\n".join(passages)) & _beginnings(question)) >= _SHARED


def _beginnings(text: str) -> set[str]:
    """Return how the longer words begin; in scripts that may not divide words, each two characters."""
    words = {word[:5].lower() for word in text.split() if len(word) > _SHORT_WORD}
    if _VIETNAMESE.search(text):  # which divides its words into syllables
        words |= {" ".join(pair).lower() for pair in pairwise(text.split())}
    return words | {text[each.start() : each.start() + 2] for each in CJK.finditer(text)}


_ENGLISH: Final = re.compile(r"\b(?:the|you|your)\b", re.IGNORECASE)
_VIETNAMESE: Final = re.compile(r"[\u1ea0-\u1ef9]")
_SHORT_WORD: Final = 3
_SHARED: Final = 2


@lru_cache(maxsize=256)
def is_instruction(paragraph: str) -> bool:
    """Return whether a paragraph begins like instructions, or has a heading such as ``# Rules``."""
    if len(paragraph) > _LONGEST_INSTRUCTION:
        return False
    heading, _, _ = paragraph.partition("\n")
    return bool(
        _INSTRUCTION.match(paragraph) or _OTHER.fullmatch(heading) or INSTRUCTS_ABROAD.match(paragraph)
    )


def passages_in(
    text: str, directions: Directions, question: str | None = None, *, is_last: bool = True
) -> Passages:
    """Find the passages of a message by their markers, the most reliable first.

    The time is linear in the length of the text: every pattern is anchored at a line or bounded.
    """
    lines = text.splitlines()
    asks = [i for i, line in enumerate(lines) if _kind(line) == _ASKS]
    if not asks:
        return _passages_in(lines, directions, question)
    example = _example(lines, asks)
    pairs = [] if example else _answered(lines, asks, is_last=is_last)
    for i in pairs:
        lines[i] = f"{_MASK}{lines[i]}"
    found = _passages_in(lines, directions, question, example)
    if not pairs:
        return found
    shown = tuple(each.replace(_MASK, "") for each in found.passages)
    return found._replace(passages=shown, rest=found.rest.replace(_MASK, ""))


_MASK: Final = "\u02bf\u02be"
"""Letters, so that no label begins there."""


def _answered(lines: Sequence[str], asks: Sequence[int], *, is_last: bool) -> list[int]:
    """Return the labels of questions that have their answer: beside the one that is asked, they are text."""
    found: list[int] = []
    is_asked = not is_last
    for at, end in zip(asks, [*asks[1:], len(lines)], strict=True):
        said = next((i for i in range(at + 1, end) if _kind(lines[i]) == _ANSWERS), None)
        if said is None or not _is_answered(lines[said:end]):
            is_asked = True
        elif not (at and _kind(lines[at - 1]) in (_SURE, _PERHAPS) and not lines[at - 1].endswith(":")):
            found.extend((at, said))  # else it is an example with a context of its own
    return found if is_asked else []


def _passages_in(
    lines: list[str], directions: Directions, question: str | None, example: slice | None = None
) -> Passages:
    text = "\n".join(lines)
    if example:
        behind = _passages_in(lines[example.stop :], directions, question)
        if behind.passages:
            return behind
        lines[example] = []
        text = "\n".join(lines)
    if fields := fields_in(text):
        return _in_fields(text, fields)
    found = _tagged(text, is_directed=directions.is_directed)
    if found.passages:
        return found
    sections = _sections(lines, directions, question)
    has_answer = sections.has_answer or found.has_answer
    others = (each for each in _by_each_rule(text, lines, question, directions) if each and each.passages)
    chosen = sections if sections.passages else next(others, Passages(rest=text))
    return chosen._replace(has_answer=has_answer)


def _by_each_rule(
    text: str, lines: Sequence[str], question: str | None, directions: Directions
) -> Iterator[Passages | None]:
    """Yield what each rule finds, the most reliable first."""
    is_marked = directions.is_directed or directions.is_named
    is_shown = is_marked or directions.is_asked
    if is_shown:
        yield _records(lines, question, is_marked=is_marked)
    if is_marked:
        yield Passages(*documents_in_json(text), "as JSON")
    if directions.is_pointed:
        yield _repeated(lines, question, BRACKETED, least=1)
        yield _led_in(lines, question)
    if is_marked or directions.is_pointed:
        yield from _by_structure(text, lines, question, directions)
    if is_shown:
        yield _table(lines, question)


def _example(lines: Sequence[str], asks: Sequence[int]) -> slice | None:
    """Find questions that have their answer below a label, before the question that has none yet."""
    said = [i for i in range(asks[0], asks[-1]) if _kind(lines[i]) == _ANSWERS]
    if not said or not asks[0] or not lines[asks[0] - 1].strip():
        return None
    start = _start_of_last_paragraph(lines, asks[0])
    if not lines[start].rstrip().endswith(":") or _kind(lines[start]) in (_NUMBER, _SURE, _PERHAPS):
        return None
    return slice(start, said[-1] + 1 + (not _is_answered(lines[said[-1] : said[-1] + 1])))


_FIELD_OF_PASSAGES: Final = re.compile(
    r"\w{0,20}(?:context|passage|document|chunk|source|snippet)s?", re.IGNORECASE
)


def _in_fields(text: str, fields: Mapping[str, str]) -> Passages:
    """Find the fields of a DSPy program that hold passages: ``[[ ## context ## ]]``."""
    held = [
        value for name, value in fields.items() if _FIELD_OF_PASSAGES.fullmatch(name) and _is_prose(value)
    ]
    passages = tuple(passage.strip("\u00ab\u00bb ") for value in held for passage in parted(value))
    for value in held:
        text = text.replace(value, "")
    return Passages(passages=passages, rest=text, shape="in the fields of a DSPy program")


# -- between tags


def _tagged(text: str, *, is_directed: bool, depth: int = 0) -> Passages:
    """Find ``<context>…</context>`` and the like."""
    known = [
        each
        for each in elements_in(text)
        if re.fullmatch(rf"{_TAGS}|{_NO_PASSAGES}", each.name)
        and (tag := text[each.end - len(each.name) - 1 : each.end - 1]) in (each.name, tag.upper())
    ]  # <Document> may be a UI component
    chosen = outermost(known)
    has_answer = any(re.fullmatch(_ANSWERS_IN_TAGS, each.name) for each in chosen)
    names_of_passages = _TAGS if is_directed else _SURE_TAGS
    passages = [each for each in chosen if re.fullmatch(names_of_passages, each.name)]
    return _inside_all(text, passages, depth)._replace(has_answer=has_answer)


def documents_in_tags(text: str) -> tuple[str, ...]:
    """Return the passages of a text that has nothing but several of them, between tags."""
    found = _tagged(text, is_directed=True) if text.lstrip().startswith("<") else Passages()
    return found.passages if len(found.passages) > 1 and not found.rest.strip() else ()


def _in_any_tags(text: str, depth: int = 0) -> Passages:
    found = [each for each in elements_in(text) if not _ASKING_TAG.fullmatch(each.name)]
    return _inside_all(
        text, outermost([each for each in found if _is_prose(text[each.inside])]), depth, any_tag=True
    )


def _inside_all(text: str, elements: Sequence[Element], depth: int, *, any_tag: bool = False) -> Passages:
    """Split the content of tags: by inner tags, else like any block."""
    passages: list[str] = []
    names = Counter(each.name for each in elements)
    for each in elements:
        inner = _FACTS.sub("", text[each.inside])  # title and source, next to the content of a document
        nested = Passages()
        if depth < _DEEPEST:
            nested = (
                _in_any_tags(inner, depth + 1)
                if any_tag
                else _tagged(inner, is_directed=True, depth=depth + 1)
            )
        body = _body(inner)
        passages.extend(nested.passages or ([body.strip()] if names[each.name] > 1 else parted(body)))
    shown = ", ".join(f"`<{each}>`" for each in names)
    return Passages(passages=tuple(passages), rest=without(text, elements), shape=f"between tags {shown}")


def _body(text: str) -> str:
    start = _BODY.search(text)
    if start is None:
        return text
    end = text.lower().rfind(f"</{start[1].lower()}>")
    return text[start.end() : end] if end > start.end() else text


# -- under labels


class _Segment(NamedTuple):
    """Lines under one label, with the label; ``kind`` is empty for lines without one."""

    kind: str
    lines: list[str]

    @property
    def holds_passages(self) -> bool:
        return self.kind in (_NUMBER, _SURE, _PERHAPS)


_NUMBER, _SURE, _PERHAPS = "numbered", "strong", "weak"
_ASKS, _ANSWERS, _ELSE = "question", "answer", "other"


def _sections(lines: Sequence[str], directions: Directions, question: str | None) -> Passages:
    """Find the text under ``Context:`` and the like, or under ``Document 1:``, up to the next label.

    ``Context:`` alone may describe the user. It counts only if the prompt says to answer from it, or if a
    label ``Question:`` follows.
    """
    segments = _segments(lines)
    last_question = max((i for i, each in enumerate(segments) if each.kind == _ASKS), default=-1)
    if any(not each.holds_passages and any(map(asked_by_label, each.lines)) for each in segments):
        last_question = len(segments)
    passages: list[str] = []
    rest: list[str] = []
    for i, each in enumerate(segments):
        is_certain = each.kind in (_NUMBER, _SURE) or directions.is_directed or i < last_question
        block, tail = (each.lines, []) if i + 1 < len(segments) else _without_tail(each.lines, question)
        found = parted("\n".join(_without_label(each.kind, block))) if each.holds_passages else ()
        is_certain = is_certain or (directions.is_asked and sum(map(bool, map(BRACKETED.match, block))) > 1)
        if is_certain and found and _words(block) >= _SHORTEST_BLOCK:
            ends_in_template = len(found) > 1 and is_instruction(found[-1])
            passages.extend(found[:-1] if ends_in_template else found)
            rest.extend(tail)
        else:
            rest.extend(each.lines)
    return Passages(
        passages=tuple(passages),
        rest="\n".join(rest),
        shape="under a label",
        has_answer=any(each.kind == _ANSWERS and _is_answered(each.lines) for each in segments),
    )


def _segments(lines: Sequence[str]) -> list[_Segment]:
    segments = [_Segment("", [])]
    is_fenced = False
    for line in lines:
        if FENCE.fullmatch(line):
            is_fenced = not is_fenced
        kind, now = "" if is_fenced else _kind(line), segments[-1].kind
        is_inside = kind == _NUMBER and now in (_NUMBER, _SURE, _PERHAPS)
        is_inside = is_inside or (kind in (_SURE, _PERHAPS) and now == _NUMBER)
        if kind and not is_inside:
            segments.append(_Segment(kind, []))
        segments[-1].lines.append(line)
    return segments


@lru_cache(maxsize=1_024)  # an application writes the lines of its template again and again
def _kind(line: str) -> str:
    if not line or line.isspace():
        return ""
    if NUMBERED.match(line) and not _ANYBODYS.match(line):
        return _NUMBER
    heading = _HEADING.fullmatch(line) or _BARE_HEADING.fullmatch(line) or _ANNOUNCED.fullmatch(line)
    if heading:
        return _SURE if heading["strong"] else _PERHAPS
    if ASKED.match(line) or ASKED_ABROAD.match(line) or _BARE_QUESTION.fullmatch(line):
        return _ASKS
    if _ANSWER.fullmatch(line) or REPLIES_ABROAD.match(line):
        return _ANSWERS
    return _ELSE if _OTHER.fullmatch(line) else ""


def _without_label(kind: str, lines: Sequence[str]) -> list[str]:
    if kind == _NUMBER:
        return [*lines]
    heading = _HEADING.fullmatch(lines[0])
    return [heading["text"] if heading else "", *lines[1:]]


def _is_answered(lines: Sequence[str]) -> bool:
    label = REPLIES_ABROAD.match(lines[0])
    said = lines[0][label.end() :] if label else lines[0].partition(":")[2]
    return any(each.strip(" *_") for each in (said, *lines[1:]))


# -- without labels of their own


def _block(
    lines: Sequence[str], start: int, end: int, question: str | None, shape: str, last: int = 0
) -> Passages | None:
    """Split a block of lines, up to a label, the question or instructions below its last mark."""
    labels = (i for i in range(max(start, last), end) if _kind(lines[i]) in (_ASKS, _ANSWERS, _ELSE))
    at = next(labels, None)
    block, tail = (
        _without_tail(lines[start:end], question) if at is None else (lines[start:at], lines[at:end])
    )
    if not _is_prose("\n".join(block)):
        return None
    rest = "\n".join([*lines[:start], *tail, *lines[end:]])
    return Passages(passages=parted("\n".join(block)), rest=rest, shape=shape)


def _led_in(lines: Sequence[str], question: str | None) -> Passages | None:
    """Find the text after a sentence that points to it, or below the line of dashes that follows it."""
    pointing = next((i for i, line in enumerate(lines) if _is_pointing(line)), None)
    if pointing is None:
        return None
    rules = [i for i in range(pointing + 1, len(lines)) if RULE.fullmatch(lines[i])]
    rules = [i for i in rules if lines[i] == lines[rules[0]]]  # others are in passages
    goes_on = not lines[pointing].rstrip().endswith(":")
    if rules and all(goes_on and line.strip() for line in lines[pointing + 1 : rules[0] - 1]):
        end = rules[-1] if len(rules) > 1 else len(lines)
        if found := _block(lines, rules[0] + 1, end, question, "below a line"):
            return found
    start = pointing + 1
    if goes_on:
        start = next((i + 1 for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    start += _instructions(lines[start:])
    return _block(lines, start, len(lines), question, "behind a sentence that points to them")


def _without_tail(lines: Sequence[str], question: str | None) -> tuple[Sequence[str], Sequence[str]]:
    """Remove the question and instructions from the end of a block without an end label."""
    end = len(lines)
    while end > 0:
        start = _start_of_last_paragraph(lines, end)
        if start == 0 or not _is_tail("\n".join(lines[start:end]).strip(), question):
            break
        end = start
    return lines[:end], lines[end:]


def _is_tail(paragraph: str, question: str | None) -> bool:
    if not paragraph:
        return True
    if BRACKETED.match(paragraph) or NUMBERED.match(paragraph):
        return False
    is_asked = LAST_LABEL.sub("", paragraph).endswith(QUESTION_MARKS)
    is_question = is_asked and len(paragraph) <= _LONGEST_QUESTION
    is_label = paragraph.endswith((":", "\uff1a")) and "\n" not in paragraph
    return is_question or is_label or paragraph == question or is_instruction(paragraph)


def _instructions(lines: Sequence[str]) -> int:
    """Count the lines of instructions at the start of a block."""
    start = 0
    while start < len(lines):
        end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
        if end > start and not is_instruction("\n".join(lines[start:end])):
            break
        start = end + 1
    return start


def _start_of_last_paragraph(lines: Sequence[str], end: int) -> int:
    """Return the start of the paragraph that ends here; a blank line is a paragraph."""
    start = end - 1
    while start > 0 and lines[start].strip() and lines[start - 1].strip():
        start -= 1
    return start


def _words(lines: Sequence[str]) -> int:
    return sum(len(line.split()) for line in lines)


# -- in any language


def _by_structure(
    text: str, lines: Sequence[str], question: str | None, directions: Directions
) -> Iterator[Passages | None]:
    """Yield what structure alone tells in a prompt that says, in any language, to answer from passages.

    By tags, what is below a heading that names them, fences, rules; else blocks that begin alike.
    """
    is_pointed = directions.is_pointed or directions.is_named
    if is_pointed:
        yield _in_any_tags(text)
        yield _below_heading(lines, question, is_told=directions.is_told)
    yield _between(lines, FENCE, "in fences")
    yield _between(lines, RULE, "between lines")
    lists = (LISTED, ANY_NUMBERED, IN_PARENTHESES) if directions.is_told else (ANY_NUMBERED,)  # may be rules
    for mark in (NUMBERED, BRACKETED, FILE, *lists) if is_pointed else ():
        repeated = _repeated(lines, question, mark, is_told=directions.is_told)
        if repeated and not any(map(is_instruction, repeated.passages)):
            yield repeated._replace(is_guess=True)


_ASKING_TAG: Final = re.compile(
    r".*(question|query|frage|pregunta|pergunta|instruction|example|rule|history|output|format|answer|role|task).*"
    r"|问题|质问|質問|b|i|p|u|br|code|a|ul|li|em|strong",
    re.IGNORECASE,
)


def _is_prose(text: str) -> bool:
    return (
        _words(text.splitlines()) >= _SHORTEST_BLOCK or len(CJK.findall(text[:2_000])) >= 2 * _SHORTEST_BLOCK
    )


def _between(lines: Sequence[str], mark: re.Pattern[str], shape: str) -> Passages | None:
    """Find the text between the first and the last line of marks; after a single one, all that follows."""
    at = [i for i, line in enumerate(lines) if mark.fullmatch(line)]
    if len(at) < 2:
        return _block(lines, at[0] + 1, len(lines), None, shape) if at and mark is RULE else None
    first, last = at[0], at[-1]
    above = first
    while above and lines[above - 1].strip() and _is_passage(lines[above - 1]):
        above -= 1
    block = "\n".join(lines[above : last + 1])
    rest = "\n".join([*lines[:above], *lines[last + 1 :]])
    return Passages(passages=parted(block), rest=rest, shape=shape) if _is_prose(block) else None


def _is_passage(paragraph: str) -> bool:
    """Return whether a paragraph above the first of several lines is a passage, too, and no instruction."""
    said = paragraph.strip()
    is_other = said.endswith((":", "?", "\uff1a", "\uff1f")) or is_instruction(said) or _is_directing(said)
    return _is_prose(said) and not is_other and not NAMES_PASSAGES.search(said)


def _below_heading(lines: Sequence[str], question: str | None, *, is_told: bool) -> Passages | None:
    passages: list[str] = []
    rest: list[str] = []
    i = 0
    while i < len(lines):
        said = _behind_heading(lines[i])
        is_other = is_told or any(each.match(lines[i]) for each in (ANY_NUMBERED, BRACKETED, FILE))
        if said is None and not is_other and HEADS_ELSE.fullmatch(lines[i]):
            said = "" if _is_spoken_of(lines[i], lines[: min(i, _DIRECTIONS)]) else None
        if said is None:
            rest.append(lines[i])
            i += 1
            continue
        mark = _mark_of(lines[i])
        end = next((j for j in range(i + 1, len(lines)) if _ends_block(lines[j], mark)), len(lines))
        block, tail = _without_tail([said, *lines[i + 1 : end]], question)
        if _is_prose("\n".join(block)):
            passages.extend(parted("\n".join(block)))
            rest.extend(tail)
        else:
            rest.extend(lines[i:end])
        i = end
    return (
        Passages(passages=tuple(passages), rest="\n".join(rest), shape="under a heading")
        if passages
        else None
    )


@lru_cache(maxsize=1_024)
def _behind_heading(line: str) -> str | None:
    """Return what follows a heading that names passages, on its line; ``None`` if the line is none."""
    heading = HEADS_PASSAGES.fullmatch(line) if len(line) <= 400 else None
    bare = BARE_HEAD_OF_PASSAGES.fullmatch(line) if len(line) <= 200 else None
    is_label = NUMBERED.match(line) or ANY_NUMBERED.match(line) or BRACKETED.match(line)
    if (heading is None and bare is None) or is_label or ASKED_ABROAD.match(line):
        return None
    return heading["text"] if heading else ""


def _mark_of(heading: str) -> str:
    return heading[: len(heading) - len(heading.lstrip("#*=-\u3010["))]


@lru_cache(maxsize=1_024)
def _ends_block(line: str, mark: str) -> bool:
    """Return whether a line is a label of another kind, or a heading like the one above the passages."""
    if not line or line.isspace():
        return False
    if ASKED_ABROAD.match(line) or REPLIES_ABROAD.match(line) or _kind(line) in (_ASKS, _ANSWERS, _ELSE):
        return True
    if NUMBERED.match(line) or BRACKETED.match(line) or ANY_NUMBERED.match(line):
        return False
    if not HEADS_ELSE.fullmatch(line) or HEADS_PASSAGES.fullmatch(line):
        return False
    other = _mark_of(line)
    if mark.startswith("#"):
        return other.startswith("#") and len(other) <= len(mark)
    return other == mark if mark or other else len(line.split()) <= _LABEL_WORDS


def _table(lines: Sequence[str], question: str | None) -> Passages | None:
    rule = next((i for i, line in enumerate(lines) if COLUMNS.fullmatch(line)), 0)
    if not rule:
        return None
    end = next((i for i in range(rule, len(lines)) if "|" not in lines[i]), len(lines))
    found = _block(lines, rule - 1, end, question, "in a table")
    return found if found and sum(map(_is_prose, found.passages)) > len(found.passages) / 2 else None


def _records(lines: Sequence[str], question: str | None, *, is_marked: bool) -> Passages | None:
    """Find blocks of lines with the same keys: ``Title: …``, ``Content: …``; of sentences, if not marked."""
    if not (keys := keys_of_records(lines)):
        return None
    at = [
        i
        for i, line in enumerate(lines)
        if (match := KEYED.fullmatch(line)) and match["key"].lower() == keys[0]
    ]
    found = _block(lines, at[0], _end_of_last(lines, at), question, "in blocks with the same fields")
    is_said = found and all(map(_SENTENCE.search, found.passages))
    return found if is_marked or is_said else None


def _is_spoken_of(label: str, others: Sequence[str]) -> bool:
    """Return whether the noun of a label is in another line."""
    noun = _NOUN.search(label)
    return noun is not None and any(noun[0].lower() in each.lower() for each in others)


def _repeated(
    lines: Sequence[str], question: str | None, mark: re.Pattern[str], least: int = 2, *, is_told: bool = True
) -> Passages | None:
    """Find blocks that begin alike: ``[1]``, ``1.``, ``Dokument 1:``."""
    at = [i for i, line in enumerate(lines) if mark.match(line)]
    above = next((line for line in lines[at[0] - 1 :: -1] if line.strip()), "") if at and at[0] else ""
    if len(at) < least or (is_told and _is_passage(above)):  # a list in a passage
        return None
    is_named = is_told or mark is not ANY_NUMBERED  # the prompt speaks of what it numbers, but not of steps
    if not is_named and not _is_spoken_of(lines[at[0]], [line for line in lines if not mark.match(line)]):
        return None
    return _block(lines, at[0], _end_of_last(lines, at), question, "in numbered blocks", at[-1])


def _end_of_last(lines: Sequence[str], at: Sequence[int]) -> int:
    """Return the end of the last of several blocks: its first paragraph, if the others have one only."""
    for start, end in pairwise(at):
        breaks = [i for i in range(start, end) if _is_break(lines[i])]
        if breaks and any(not _is_break(line) for line in lines[breaks[0] : end]):
            return len(lines)
    of_last = range(at[-1], len(lines)) if len(at) > 1 else ()
    return next((i for i in of_last if _is_break(lines[i])), len(lines))


def _is_break(line: str) -> bool:
    return not line.strip() or bool(RULE.fullmatch(line))
