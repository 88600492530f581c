"""Find passages in a prompt by the markers that separate them from instructions and from the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.traces.extract._languages import (
    ASKED_ABROAD,
    BARE_HEAD_OF_PASSAGES,
    HEADS_ELSE,
    HEADS_PASSAGES,
    INSTRUCTS_ABROAD,
    NAMES_PASSAGES,
    REPLIES_ABROAD,
    SAYS_TO_ANSWER,
)
from ragtrace.traces.extract._passage_split import (
    ANY_NUMBERED,
    BRACKETED,
    LISTED,
    NUMBERED,
    RULE,
    documents_in_json,
    parted,
)
from ragtrace.traces.extract._prompts import ASKED, Element, elements_in, fields_in, outermost, without

_NOUNS: Final = (
    r"(?:context|passages?|documents?|docs|sources|excerpts?|snippets?|chunks?|extracts?|search results"
    r"|articles?|sections|knowledge base|reference (?:text|material)s?"
    r"|(?:background|context|relevant|retrieved) information)"
)
_VERBS: Final = (
    r"\b(?:answer|answers|answering|respond|reply|use|using|based|rely|relying|refer|cite|citations?|according|grounded|given"
    r"|consult)\b"
)
_DIRECTED: Final = re.compile(rf"{_VERBS}[^\n]{{0,120}}?\b{_NOUNS}\b", re.IGNORECASE)
_POINTED: Final = re.compile(
    rf"{_VERBS}[^\n]{{0,80}}?\b(?:these|this|following|given|provided|supplied|retrieved|numbered|labell?ed|below)\b"
    rf"[^\n.]{{0,40}}?\b{_NOUNS}\b"
    rf"|{_VERBS}[^\n]{{0,80}}?\b{_NOUNS}\b[^\n.]{{0,20}}?\b(?:below|provided|that follow)\b"
    rf"|{_VERBS}[^\n]{{0,80}}?\b(?:following|provided|given) information(?: below)?"
    r"[ \t]{0,3}[:.]?[ \t]{0,3}$",
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
    r"\s{0,3}(?:instructions?|rules?|guidelines?|your task|task|output format|(?:chat |conversation )?history"
    r"|conversation)(?: [^:\n]{0,20})?:.*"
    r"|\s{0,3}(?:the )?(?:above|preceding|foregoing) (?:is|are|was|were) .{0,80}"
    r"|\s{0,3}(?:#{1,6} {0,3}|\*\*|={2,} ?)(?:instructions?|rules?|guidelines?|task|notes?|output|format"
    r"|examples?|history|chat history|conversation|important|constraints?|tone|style|role)\b.{0,80}",
    re.IGNORECASE,
)
_INSTRUCTION: Final = re.compile(
    r"[\W\d_]{0,6}(?:you are\b|you're an? |you must\b|you should\b|you will be\b|your (?:task|job|role|goal) "
    r"|(?:answer|respond|reply)\b(?! ?:)|if you (?:don't|do not|cannot|can't) "
    r"|if the (?:answer|context|passages|documents) "
    r"|(?:do not|don't|never) (?:use|make|invent|answer|add|reveal|mention) "
    r"|always (?:answer|respond|reply|be|cite|use) |please (?:answer|respond|be|use|cite)\b"
    r"|be (?:polite|brief|concise|helpful|honest|short|friendly)\b"
    r"|use (?:only|these|at most|three|the following) |only (?:use|answer) |cite |think step|let's think"
    r"|say (?:that )?you |(?:based on|using|given) (?:only |the |these )"
    r"|act as |keep (?:the|your) answer|the following )",
    re.IGNORECASE,
)
_LONGEST_INSTRUCTION: Final = 1_500
_LONGEST_QUESTION: Final = 600
_LONGEST_END: Final = 10_000
_DEEPEST: Final = 4
_SHORTEST_BLOCK: Final = 4
"""Words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """What the whole prompt says about its passages."""

    is_directed: bool
    """It says to answer from a context, documents or the like."""
    is_pointed: bool
    """It means passages in the prompt itself: *these* passages, the context *below*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
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
    return Directions(
        is_directed=any(_DIRECTED.search(_ends(text)) for text in texts),
        is_pointed=any(_POINTED.search(_ends(text)) for text in texts),
    )


def _ends(text: str) -> str:
    """Return the ends of a long text: directions come before or after the passages."""
    return text if len(text) <= 2 * _LONGEST_END else f"{text[:_LONGEST_END]}\n{text[-_LONGEST_END:]}"


def is_instruction(paragraph: str) -> bool:
    """Return whether a paragraph begins like instructions, or has a heading such as ``# Rules``."""
    if len(paragraph) > _LONGEST_INSTRUCTION:
        return False
    heading, _, _ = paragraph.partition("\n")
    return bool(
        _INSTRUCTION.match(paragraph) or _OTHER.fullmatch(heading) or INSTRUCTS_ABROAD.match(paragraph)
    )


def passages_in(text: str, directions: Directions, question: str | None = None) -> Passages:
    """Find the passages of a message by their markers, the most reliable first.

    The time is linear in the length of the text: every pattern is anchored at a line or bounded.
    """
    found = _in_fields(text) or _tagged(text, is_directed=directions.is_directed)
    if found.passages:
        return found
    lines = text.splitlines()
    sections = _sections(lines, directions, question)
    for each in (
        sections,
        _as_json(text) if directions.is_directed else None,
        _bracketed(lines, question) if directions.is_pointed else None,
        _below_rule(lines, question) if directions.is_pointed else None,
        _led_in(lines, question) if directions.is_pointed else None,
    ):
        if each is not None and each.passages:
            return _with_answer(each, has_answer=sections.has_answer or found.has_answer)
    if (by_structure := structured(text, question, directions)) is not None:
        return _with_answer(by_structure, has_answer=sections.has_answer or found.has_answer)
    return Passages(rest=text, has_answer=sections.has_answer or found.has_answer)


_FIELD_OF_PASSAGES: Final = re.compile(
    r"\w{0,20}(?:context|passage|document|chunk|source|snippet)s?", re.IGNORECASE
)


def _in_fields(text: str) -> Passages | None:
    """Find the fields of a DSPy program that hold passages: ``[[ ## context ## ]]``."""
    fields = fields_in(text)
    held = [
        value for name, value in fields.items() if _FIELD_OF_PASSAGES.fullmatch(name) and _is_prose(value)
    ]
    if not held:
        return None
    passages = tuple(passage.strip("\u00ab\u00bb ") for value in held for passage in parted(value))
    rest = text
    for value in held:
        rest = rest.replace(value, "")
    return Passages(passages=passages, rest=rest, shape="in the fields of a DSPy program")


def _with_answer(found: Passages, *, has_answer: bool) -> Passages:
    return replace(found, has_answer=has_answer)


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
    return replace(_inside_all(text, passages, depth), has_answer=has_answer)


def _in_any_tags(text: str, depth: int = 0) -> Passages:
    found = [each for each in elements_in(text) if not _ASKING_TAG.fullmatch(each.name)]
    return _inside_all(
        text, outermost([each for each in found if _is_prose(text[each.inside])]), depth, any_tag=True
    )


def _inside_all(text: str, elements: Sequence[Element], depth: int, *, any_tag: bool = False) -> Passages:
    """Split the content of tags: by inner tags, else like any block."""
    passages: list[str] = []
    for each in elements:
        inner = _FACTS.sub("", text[each.inside])  # title and source, next to the content of a document
        nested = Passages()
        if depth < _DEEPEST:
            nested = (
                _in_any_tags(inner, depth + 1)
                if any_tag
                else _tagged(inner, is_directed=True, depth=depth + 1)
            )
        passages.extend(nested.passages or parted(_body(inner)))
    names = dict.fromkeys(f"`<{each.name}>`" for each in elements)
    return Passages(
        passages=tuple(passages), rest=without(text, elements), shape=f"between tags {', '.join(names)}"
    )


def _body(text: str) -> str:
    start = _BODY.search(text)
    if start is None:
        return text
    end = text.lower().rfind(f"</{start[1].lower()}>")
    return text[start.end() : end] if end > start.end() else text


# -- under labels


@dataclass(frozen=True, slots=True)
class _Segment:
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
    passages: list[str] = []
    rest: list[str] = []
    for i, each in enumerate(segments):
        is_certain = each.kind in (_NUMBER, _SURE) or directions.is_directed or i < last_question
        block, tail = (each.lines, []) if i + 1 < len(segments) else _without_tail(each.lines, question)
        if each.holds_passages and is_certain and _words(block) >= _SHORTEST_BLOCK:
            passages.extend(_without_instructions(parted("\n".join(_without_label(each.kind, block)))))
            rest.extend(tail)
        else:
            rest.extend(each.lines)
    return Passages(
        passages=tuple(passages),
        rest="\n".join(rest),
        shape="under a label",
        has_answer=any(each.kind == _ANSWERS and _is_answered(each.lines) for each in segments),
    )


def _without_instructions(passages: Sequence[str]) -> Sequence[str]:
    """Remove template text after the last of several passages."""
    return passages[:-1] if len(passages) > 1 and is_instruction(passages[-1]) else passages


def _segments(lines: Sequence[str]) -> list[_Segment]:
    segments = [_Segment("", [])]
    is_fenced = False
    for line in lines:
        if _QUOTED.fullmatch(line):
            is_fenced = not is_fenced
        kind, now = "" if is_fenced else _kind(line), segments[-1].kind
        is_inside = kind == _NUMBER and now in (_NUMBER, _SURE, _PERHAPS)
        is_inside = is_inside or (kind in (_SURE, _PERHAPS) and now == _NUMBER)
        if kind and not is_inside:
            segments.append(_Segment(kind, []))
        segments[-1].lines.append(line)
    return segments


def _kind(line: str) -> str:
    if not line or line.isspace():
        return ""
    if NUMBERED.match(line) and not _ANYBODYS.match(line):
        return _NUMBER
    heading = _HEADING.fullmatch(line) or _BARE_HEADING.fullmatch(line) or _ANNOUNCED.fullmatch(line)
    if heading:
        return _SURE if heading["strong"] else _PERHAPS
    if ASKED.match(line) or _BARE_QUESTION.fullmatch(line):
        return _ASKS
    if _ANSWER.fullmatch(line):
        return _ANSWERS
    return _ELSE if _OTHER.fullmatch(line) else ""


def _without_label(kind: str, lines: Sequence[str]) -> list[str]:
    if kind == _NUMBER:
        return [*lines]
    heading = _HEADING.fullmatch(lines[0])
    return [heading["text"] if heading else "", *lines[1:]]


def _is_answered(lines: Sequence[str]) -> bool:
    label = _ANSWER.fullmatch(lines[0])
    return any(each.strip() for each in ((label["text"] if label else ""), *lines[1:]))


# -- without labels of their own


def _as_json(text: str) -> Passages:
    passages, rest = documents_in_json(text)
    return Passages(passages=passages, rest=rest, shape="as JSON")


def _bracketed(lines: Sequence[str], question: str | None) -> Passages | None:
    """Find lines that begin with ``[1]`` or ``[faq-12]``."""
    first = next((i for i, line in enumerate(lines) if BRACKETED.match(line)), None)
    if first is None:
        return None
    block, tail = _up_to_label(lines[first:], question)
    passages = parted("\n".join(block)) if _words(block) >= _SHORTEST_BLOCK else ()
    return Passages(passages=passages, rest="\n".join([*lines[:first], *tail]), shape="behind `[…]`")


def _led_in(lines: Sequence[str], question: str | None) -> Passages | None:
    """Find the text after a sentence that points to it: "Answer from the passages below." """
    pointing = next((i for i, line in enumerate(lines) if _POINTED.search(line)), None)
    if pointing is None:
        return None
    start = pointing + 1
    if not lines[pointing].rstrip().endswith(":"):
        start = next((i + 1 for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    block, tail = _up_to_label(lines[start:], question)
    block = block[_instructions(block) :]
    passages = parted("\n".join(block)) if _words(block) >= _SHORTEST_BLOCK else ()
    return Passages(
        passages=passages,
        rest="\n".join([*lines[:start], *tail]),
        shape="behind a sentence that points to them",
    )


def _below_rule(lines: Sequence[str], question: str | None) -> Passages | None:
    """Find the text below a line of dashes that follows the instructions at once."""
    pointing = next((i for i, line in enumerate(lines) if _POINTED.search(line)), None)
    if pointing is None:
        return None
    rule = next((i for i in range(pointing + 1, len(lines)) if RULE.fullmatch(lines[i])), None)
    if rule is None or any(not line.strip() for line in lines[pointing + 1 : rule - 1]):
        return None
    last = max(i for i in range(rule, len(lines)) if RULE.fullmatch(lines[i]))
    end = last if last > rule else len(lines)
    block, tail = _up_to_label(lines[rule + 1 : end], question)
    if not _is_prose("\n".join(block)):
        return None
    return Passages(
        passages=parted("\n".join(block)),
        rest="\n".join([*lines[:rule], *tail, *lines[end:]]),
        shape="below a line",
    )


def _up_to_label(lines: Sequence[str], question: str | None) -> tuple[list[str], list[str]]:
    """Split the lines at the first label that ends a block, else before the question or other text."""
    end = next((i for i, line in enumerate(lines) if _kind(line) in (_ASKS, _ANSWERS, _ELSE)), None)
    return _without_tail(lines, question) if end is None else ([*lines[:end]], [*lines[end:]])


def _without_tail(lines: Sequence[str], question: str | None) -> tuple[list[str], list[str]]:
    """Remove the question and instructions from the end of a block without an end label."""
    end = len(lines)
    while end > 0:
        start = _start_of_last_paragraph(lines, end)
        if start == 0 or not _is_tail("\n".join(lines[start:end]).strip(), question):
            break
        end = start
    return [*lines[:end]], [*lines[end:]]


def _is_tail(paragraph: str, question: str | None) -> bool:
    if not paragraph:
        return True
    if BRACKETED.match(paragraph) or NUMBERED.match(paragraph):
        return False
    is_question = paragraph.endswith("?") and len(paragraph) <= _LONGEST_QUESTION
    return is_question or paragraph == question or is_instruction(paragraph)


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


_QUOTED: Final = re.compile(r'[ \t]{0,3}("{3}|\'{3}|`{3,}|~{3,})[\w-]{0,20}[ \t]*')
_CJK: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def structured(text: str, question: str | None, directions: Directions) -> Passages | None:
    """Find passages by structure alone in a prompt that says, in any language, to answer from some.

    By tags, fences, rules, then what is below a heading that names them; else all of its paragraphs but the
    question and instructions. ``None`` if the prompt says nothing of passages.
    """
    ends = _ends(text)
    is_pointed = directions.is_pointed or bool(NAMES_PASSAGES.search(ends) and SAYS_TO_ANSWER.search(ends))
    if not (is_pointed or directions.is_directed):
        return None
    lines = text.splitlines()
    for found in (
        _in_any_tags(text) if is_pointed else None,
        _between(lines, _QUOTED, "in fences"),
        _between(lines, RULE, "between lines"),
        _below_heading(lines, question) if is_pointed else None,
    ):
        if found is not None and found.passages:
            return found
    repeated = _repeated(lines, question) if is_pointed else None
    return replace(repeated, is_guess=True) if repeated is not None and repeated.passages else None


_ASKING_TAG: Final = re.compile(
    r".*(question|query|frage|pregunta|pergunta|instruction|example|rule|history|output|format|answer|role|task).*"
    r"|问题|质问|質問|b|i|p|u|br|code|a|ul|li|em|strong",
    re.IGNORECASE,
)


def _is_prose(text: str) -> bool:
    return (
        _words(text.splitlines()) >= _SHORTEST_BLOCK or len(_CJK.findall(text[:2_000])) >= 2 * _SHORTEST_BLOCK
    )


def _between(lines: Sequence[str], mark: re.Pattern[str], shape: str) -> Passages | None:
    """Find the text between the first and the last line of marks; after a single one, all that follows."""
    at = [i for i, line in enumerate(lines) if mark.fullmatch(line)]
    if not at:
        return None
    first, last = at[0], at[-1]
    if len(at) == 1:
        if mark is not RULE:
            return None
        block, tail = _up_to_label(lines[first + 1 :], None)
        rest = [*lines[:first], *tail]
    else:
        above = _start_of_last_paragraph(lines, first) if first else 0
        if _is_passage("\n".join(lines[above:first])):
            first = above
        block = [*lines[first : last + 1]]
        rest = [*lines[:first], *lines[last + 1 :]]
    if not _is_prose("\n".join(block)):
        return None
    return Passages(passages=parted("\n".join(block)), rest="\n".join(rest), shape=shape)


def _is_passage(paragraph: str) -> bool:
    """Return whether a paragraph above the first of several lines is a passage, too, and no instruction."""
    said = paragraph.strip()
    is_other = said.endswith((":", "?", "\uff1a", "\uff1f")) or is_instruction(said) or _DIRECTED.search(said)
    return _is_prose(said) and not is_other and not NAMES_PASSAGES.search(said)


def _below_heading(lines: Sequence[str], question: str | None) -> Passages | None:
    passages: list[str] = []
    rest: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        heading = HEADS_PASSAGES.fullmatch(line) if len(line) <= 400 else None
        bare = BARE_HEAD_OF_PASSAGES.fullmatch(line) if len(line) <= 200 else None
        is_label = NUMBERED.match(line) or ANY_NUMBERED.match(line)
        if (heading is None and bare is None) or is_label or ASKED_ABROAD.match(line):
            rest.append(line)
            i += 1
            continue
        end = next((j for j in range(i + 1, len(lines)) if _ends_block(lines[j])), len(lines))
        block = [heading["text"] if heading else "", *lines[i + 1 : end]]
        block, tail = _without_tail(block, question)
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


def _ends_block(line: str) -> bool:
    if not line or line.isspace():
        return False
    if ASKED_ABROAD.match(line) or REPLIES_ABROAD.match(line) or _kind(line) in (_ASKS, _ANSWERS, _ELSE):
        return True
    if NUMBERED.match(line) or BRACKETED.match(line) or ANY_NUMBERED.match(line):
        return False
    return bool(HEADS_ELSE.fullmatch(line)) and not HEADS_PASSAGES.fullmatch(line)


def _repeated(lines: Sequence[str], question: str | None) -> Passages | None:
    """Find two or more blocks that begin alike: ``[1]``, ``1.``, ``Dokument 1:``."""
    for mark in (NUMBERED, BRACKETED, LISTED, ANY_NUMBERED):
        at = [i for i, line in enumerate(lines) if mark.match(line)]
        if len(at) < 2:
            continue
        block, tail = _up_to_label(lines[at[0] :], question)
        if _is_prose("\n".join(block)):
            return Passages(
                passages=parted("\n".join(block)),
                rest="\n".join([*lines[: at[0]], *tail]),
                shape="in numbered blocks",
            )
    return None
