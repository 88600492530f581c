"""Split a block of text into passages by visible separators."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import Final

from ragtrace.model import AttributeValue
from ragtrace.traces.extract._content import parse_loosely
from ragtrace.traces.extract._documents import chunk_of, is_document
from ragtrace.traces.extract._languages import REPLY_ABROAD, SAYS_TO_ANSWER

FENCE: Final = re.compile(r"[ \t]{0,3}(`{3,}|~{3,}|\"{3}|'{3})[\w-]{0,20}[ \t]*")
RULE: Final = re.compile(r"[ \t]{0,3}(-{3,}|={3,}|\*{3,}|#{3,}|_{3,})[ \t]*$")
NUMBERED: Final = re.compile(
    r"[ \t#*\[]{0,6}(?:document|doc|passage|source|chunk|context|excerpt|snippet|article|extract|result"
    r"|reference|section)[ \t]{0,2}(?:no\.?|number|id)?[ \t]{0,2}[#\[(]?\d{1,4}[\])]?"
    r"(?:[ \t]{0,2}\([^()\n]{0,200}\))?[ \t]{0,2}(?:(?::{1,3}|[.)\-])[ \t*]{0,4}|\*{0,2}$)",
    re.IGNORECASE,
)
"""A line that begins a passage: ``Document 1:``."""
BRACKETED: Final = re.compile(
    r"[ \t]{0,3}(?:[-*][ \t])?\[{1,2}(?![ xX]\])[^\[\]\n]{1,80}\]{1,2}:?(?:[ \t]{1,4}(?=\S)|$)"
    r"|[ \t]{0,3}\u3010[^\u3010\u3011\n]{0,40}\d\u3011[:\uff1a]?[ \t]*"
)
"""A line that begins a passage: ``[1] …``, ``[faq-12] …``."""
LISTED: Final = re.compile(
    r"[ \t]{0,3}(?:(?:\d{1,3}[.)]|[IVX]{1,5}\.|[A-Za-z]\))[ \t]{1,4}|\d{1,3}\u3001"
    r"|[\u2460-\u2473\u2776-\u277f])(?=[ \t]*\S)"
)
"""An item of a list, numbered in any way."""
IN_PARENTHESES: Final = re.compile(r"[ \t]{0,3}[(\uff08](?:\d{1,3}|[a-z])[)\uff09](?=[ \t]*\S)")
FILE: Final = re.compile(
    r"[ \t]{0,3}(?:#{1,6} |\*\*|={2,} ?|-{3,} ?)?(?:[^\W\d_]{1,20}: ?)?[\w./-]{1,120}\.[a-z]\w{1,4}"
    r"(?:\*\*)?:?[ \t*=-]*$"
)
"""A line with the name of the file that follows."""
ANY_NUMBERED: Final = re.compile(
    r"(?=[^\d\u4e00-\u56db\n]{0,60}[\d\u4e00-\u56db])"  # most lines have no number where one may be
    r"[ \t#*]{0,6}(?:(?:[^\W\d_]{1,12} )?[^\W\d_]{2,20}"
    r"|[\u3010\[(\uff08]?[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,8})"
    r"[ \t]{0,2}(?:n[.º°o]{1,2} ?|nr\. ?)?[#\[(]?(?:\d{1,4}"
    r"|[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]{1,3})[\])\u3011\uff09]?[ \t]{0,2}"
    r"(?:\([^()\n]{0,200}\))?[ \t]{0,2}"
    r"(?:[:\uff1a.)-][ \t*]{0,4}|$)",
    re.IGNORECASE,
)
"""A line that begins a passage in another language: ``Dokument 1:``."""
_BULLET: Final = re.compile(r"[ \t]{0,3}[-*•][ \t]{1,4}(?=\S)")
_JSON: Final = re.compile(r"\[\s{0,20}[{\"]|\{\s{0,20}\"")
_DECODER: Final = json.JSONDecoder()
_JSON_TRIED: Final = 8
_SENTENCE: Final = re.compile(r"\w\W{0,3}[.!?…][\"'”)\]]{0,2}[ \t]{0,9}$")
_LONGEST_END: Final = 16
_LABELED: Final = re.compile(r"\w{1,20}:")
_MARKS: Final = re.compile(
    r"^[ \t]*\[(?:/|END )[^\]\n]{0,40}\][ \t]*$|<((?:document_)?metadata)>[^<>]{0,500}</\1>",
    re.MULTILINE | re.IGNORECASE,
)
_LAST_RULE: Final = re.compile(r"\n[ \t]{0,3}(?:-{3,}|={3,}|\*{3,}|_{3,})\s*\Z")
_FILE: Final = re.compile(r"[\w./-]{1,120}\.\w{2,5}")
"""A list of sources that follows the passages."""
_LETTER: Final = re.compile(r"\w")


def parted(block: str) -> tuple[str, ...]:
    """Split a block; without separators, it is one passage."""
    documents, _ = documents_in_json(block)
    if documents:
        return documents
    if shown := documents_in_repr(block):
        return _whole(str(each["text"]) for each in shown if isinstance(each, dict))
    lines = block.splitlines()
    return next((passages for split in _SPLITS if (passages := split(lines))), ()) or _whole([block])


def documents_in_json(text: str) -> tuple[tuple[str, ...], str]:
    """Read the documents of a JSON list inside a text, and return them with the surrounding text.

    Chat messages are not documents.
    """
    listed, rest = objects_in_json(text)
    texts = [chunk_of(each, 0, "").text for each in listed if isinstance(each, dict)]
    texts = texts or [each for each in listed if isinstance(each, str)]
    found = _whole([each or "" for each in texts])
    return (found, rest) if found else ((), text)


def objects_in_json(text: str) -> tuple[Sequence[AttributeValue], str]:
    """Return the objects with text, in lists or one by one, or the strings of a list; and the rest."""
    if "[" not in text and "{" not in text:
        return (), text
    objects: list[AttributeValue] = []
    rest: list[str] = []
    failed, taken, at = 0, 0, 0
    while failed < _JSON_TRIED and (match := _JSON.search(text, at)):
        try:
            _, at = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            failed, at = failed + 1, match.start() + 1
            continue
        if items := _items_of(parse_loosely(text[match.start() : at])):
            objects.extend(items)
            rest.append(text[taken : match.start()].rstrip(" \t,"))
            taken = at
    known = [each for each in objects if not isinstance(each, dict) or is_document(each)]
    if not known and len({frozenset(each) for each in objects if isinstance(each, dict)}) == 1:
        known = _with_text([each for each in objects if isinstance(each, dict)])
    return (known, _EMPTY_FENCE.sub("", "\n".join([*rest, text[taken:]]))) if known else ((), text)


_EMPTY_FENCE: Final = re.compile(r"^(`{3,}|~{3,})\w{0,9}[\s,]{0,9}^\1[ \t]*$", re.MULTILINE)
_ID: Final = re.compile(r"[^\s]{0,80}[\d./#][^\s]{0,80}")


def _items_of(node: AttributeValue) -> Sequence[AttributeValue]:
    """Return the documents of a list, of a list below any key, or by their ids; or the one document."""
    if isinstance(node, dict):
        if is_document(node):
            return (node,)
        for each in node.values():
            if isinstance(each, tuple) and (items := _items_of(each)):
                return items
        by_id = [{"id": key, "text": each} if isinstance(each, str) else each for key, each in node.items()]
        if len(by_id) > 1 and all(map(_ID.fullmatch, node)) and all(map(is_document, by_id)):
            return by_id
        return (node,) if not any(isinstance(each, dict | tuple) for each in node.values()) else ()
    items = node if isinstance(node, tuple) else ()
    texts = [each for each in items if isinstance(each, str)]
    if len(texts) == len(items):
        return texts if any(" " in each.strip() or CJK.search(each) for each in texts) else ()
    return items if all(isinstance(each, dict) and "role" not in each for each in items) else ()


def _with_text(objects: Sequence[Mapping[str, AttributeValue]]) -> list[AttributeValue]:
    """Take the longest text of several objects with the same keys as that of a document."""
    lengths = {
        key: sum(len(text) for each in objects if isinstance(text := each[key], str)) for key in objects[0]
    }
    key = max(lengths, key=lambda each: lengths[each], default="")
    if (
        len(objects) < 2
        or lengths.get(key, 0) < _SHORTEST_TEXT * len(objects)
        or any(map(NO_TEXT.fullmatch, lengths))
    ):
        return []
    return [{**each, "text": each[key]} for each in objects]


_SHORTEST_TEXT: Final = 12
"""Characters, of passages on average."""
NO_TEXT: Final = re.compile(
    rf"(?:user|human|assistant|ai|system|role|input|output|question|query|q|a|answer|completion|response"
    rf"|{REPLY_ABROAD}|.*{SAYS_TO_ANSWER.pattern})",
    re.IGNORECASE,
)
"""The key of a field of an example or of a turn."""
CJK: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


_REPR: Final = re.compile(r"\b(?:Document|Node|TextNode|Chunk|Passage|Doc)\(")
_QUOTE: Final = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_REPR_TEXT: Final = re.compile(rf"\b(?:page_content|content|text)={_QUOTE}", re.DOTALL)
_REPR_ID: Final = re.compile(rf"\b(?:id|id_|doc_id|node_id)={_QUOTE}")
_MOST_REPRS: Final = 1_000


def documents_in_repr(text: str) -> tuple[AttributeValue, ...]:
    """Read documents that a template wrote as Python shows them: ``[Document(id='a', page_content='…')]``."""
    if "content=" not in text and "text=" not in text:
        return ()
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
        fence = FENCE.fullmatch(line)
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


COLUMNS: Final = re.compile(r"[ \t]{0,3}(?=[^|\n]*\|)(?:\|?[ \t]*:?-{2,}:?[ \t]*)+\|?[ \t]*")
"""The line below the heads of a table's columns."""
_CELL: Final = re.compile(r"(?<!\\)\|")
_LABEL_WORDS: Final = 5


def _tabled(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of the column with the most text, if only labels surround the table."""
    rule = next((i for i, line in enumerate(lines) if COLUMNS.fullmatch(line)), None)
    beside = [line.strip() for line in lines if "|" not in line and line.strip()]
    if rule is None or not all(line.endswith(":") and len(line.split()) < _LABEL_WORDS for line in beside):
        return ()
    rows = [_CELL.split(line.strip().strip("|")) for line in lines[rule + 1 :] if "|" in line]
    columns = [
        [row[i] if i < len(row) else "" for row in rows] for i in range(max(map(len, rows), default=0))
    ]
    return _whole(max(columns, key=lambda cells: sum(map(len, cells)), default=()))


KEYED: Final = re.compile(
    r"[^\w\n]{0,8}(?P<key>[^\W\d_](?:[\w()-]|[ .](?=\w)){0,30})[ \t]{0,2}[:\uff1a=](?!//)[ \t]*"
    r"(?:[|>][-+]?$)?(?P<text>.*)"
)
"""A line of a record: ``Title: …``, ``├── Content:``."""


def keys_of_records(lines: Sequence[str]) -> Sequence[str]:
    """Return the keys that all of two or more blocks of lines have, the first first, in any language."""
    keys = [match["key"].lower() for line in lines if (match := KEYED.fullmatch(line))]
    first = next((key for key, times in Counter(keys).items() if times > 1), None)
    if first is None or any(map(NO_TEXT.fullmatch, keys)):
        return ()
    blocks: list[set[str]] = []
    for key in keys[keys.index(first) :]:
        if key == first:
            blocks.append(set())
        blocks[-1].add(key)
    shared = set.intersection(*blocks)
    return [first, *sorted(shared - {first})] if len(shared) > 1 else ()


def _recorded(lines: Sequence[str]) -> tuple[str, ...]:
    """Return each record's text, of several with the same keys; all of it, if other fields have facts."""
    if not (keys := keys_of_records(lines)):
        return ()
    records: list[dict[str, list[str]]] = []
    whole: list[list[str]] = []
    key = ""
    for line in lines:
        match = KEYED.fullmatch(line)
        named = match["key"].lower() if match else ""
        if match and (named == keys[0] or (records and named in keys)):
            key = named
            if key == keys[0]:
                records.append({})
                whole.append([])
            records[-1].setdefault(key, []).append(match["text"])
        elif records and not RULE.fullmatch(line):
            records[-1][key].append(line)
        if records and not RULE.fullmatch(line):
            whole[-1].append(line)
    values = {key: [" ".join(each.get(key, ())).strip() for each in records] for key in keys}
    said = [key for key, texts in values.items() if not all(map(_ASIDE.fullmatch, texts))]
    if len(said) == 1:
        whole = [each.get(said[0], []) for each in records]
    return _whole(map("\n".join, whole))


_ASIDE: Final = re.compile(
    rf"(?:(?!{CJK.pattern})\S)*|\S{{0,8}}|(?:[^\s\d]{{1,30}} ?){{1,5}}(?<![.!?\u3002])"
)
"""A value beside the text: an address, an id, a title."""


def _begun_by(label: re.Pattern[str], lines: Sequence[str], *, least: int = 1) -> tuple[str, ...]:
    """Start a passage at each line with a label; text before the first label is a passage too."""
    passages: list[list[str]] = [[]]
    for line in lines:
        match = label.match(line)
        if match:
            passages.append([line[match.end() :]])
        else:
            passages[-1].append(line)
    if len(passages) <= least:
        return ()
    first = [] if "\n".join(passages[0]).rstrip().endswith(":") else passages[:1]
    return _whole("\n".join(each) for each in (*first, *passages[1:]))


def _listed(mark: re.Pattern[str], lines: Sequence[str]) -> tuple[str, ...]:
    """Split a block that is only a list; a list below a sentence belongs to the sentence."""
    items: list[list[str]] = []
    for line in lines:
        match = mark.match(line)
        if match:
            items.append([line[match.end() :]])
        elif items and (not line.strip() or line[:1] in " \t" or items[-1][-1].strip()):
            items[-1].append(line)
        elif line.strip():
            return ()
    return _whole("\n".join(each) for each in items) if len(items) > 1 else ()


def _a_line_each(lines: Sequence[str]) -> tuple[str, ...]:
    """Split adjacent lines if each ends like a sentence; wrapped text does not."""
    stripped = "\n".join(lines).strip().splitlines()
    is_each_whole = all(
        _SENTENCE.search(line[-_LONGEST_END:]) and not _LABELED.match(line) for line in stripped
    )
    return _whole(stripped) if len(stripped) > 1 and is_each_whole else ()


_SPLITS: Final[Sequence[Callable[[Sequence[str]], tuple[str, ...]]]] = (
    _fenced,
    _tabled,
    _recorded,
    partial(_begun_by, NUMBERED),
    partial(_begun_by, ANY_NUMBERED, least=2),
    partial(_begun_by, BRACKETED),
    partial(_begun_by, FILE, least=2),
    partial(_begun_by, RULE),
    partial(_listed, LISTED),
    partial(_listed, _BULLET),
    _a_line_each,
)
"""The first that divides a block counts."""


def _whole(passages: Iterable[str]) -> tuple[str, ...]:
    texts = [
        text
        for each in passages
        if _LETTER.search(
            text := _LAST_RULE.sub("", _MARKS.sub("", each) if "]" in each or ">" in each else each).strip()
        )
    ]
    said = [text for text in texts if not _FILE.fullmatch(text)]
    return tuple(said or texts)
