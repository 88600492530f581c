"""What prompts are made of: words for passages, question and answer, fields, tags, and blocks that divide.

The words, in the languages that prompts are written in, tell only that a prompt has passages; where they
begin and end is told by its structure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ragtrace.model import AttributeValue
from ragtrace.traces.extract._content import FoundValue, parse_loosely
from ragtrace.traces.extract._documents import chunk_of, documents_in_repr, is_document

_PASSAGES: Final = (
    # German
    r"kontext\w*|dokument\w*|quellen?\b|abschnitte?n?\b|ausz[uü]ge?n?\b|textstellen?\b|informationen|unterlagen"
    r"|wissensbasis|fundstellen?|suchergebnisse?n?"
    # French
    r"|contextes?\b|extraits?\b|informations\b|éléments\b|passages\b|résultats de recherche|connaissances"
    # Spanish
    r"|contextos?\b|fragmentos?\b|pasajes?\b|fuentes?\b|información|extractos?\b|resultados\b"
    # Portuguese
    r"|trechos?\b|passagens\b|fontes?\b|informaç(?:ão|ões)|excertos?\b"
    # Italian, Dutch, and what several share
    r"|contesto\b|documenti\b|estratti\b|brani\b|fonti\b|informazioni|documenten\b|fragmenten\b|bronnen\b"
    r"|documentos?\b|documents?\b|sources?\b"
    # Japanese
    r"|コンテキスト|文脈|参考(?:情報|資料|文献)|資料|文書|ドキュメント|抜粋|検索結果|情報|背景"
    # Chinese
    r"|上下文|参考(?:资料|内容|信息|文档)|资料|文档|已知(?:信息|内容)|知识库?|检索结果|引用|片段|材料|背景"
    r"|參考資料|文檔|已知資訊"
    # Korean, Russian
    r"|문맥|컨텍스트|문서|참고 ?자료|자료|검색 ?결과|정보|контекст\w*|документ\w*|источник\w*"
    r"|фрагмент\w*|отрыв\w*|информаци\w*"
    # English, Polish, Turkish, Swedish, Arabic
    r"|contexts?\b|information\b|excerpts\b|snippets\b|knowledge\b|fragment\w*|źródł\w*|bağlam\w*|belge\w*"
    r"|källor\w*|utdrag\w*|السياق|المستندات|المصادر"
)
_ANSWERS: Final = (
    r"antwort\w*|beantwort\w*|frage\b|répon\w+|question\b|respond\w*|contest(?:a|e|ar|es)\b|pregunta\b"
    r"|pergunta\b|rispond\w*|domanda\b|beantwoord\w*|antwoord\w*|vraag\b|答え|回答|質問|問い|解答|问题|問題|提问"
    r"|답변?|대답|질문|ответ\w*|вопрос\w*|odpowi\w+|pytani\w+|cevap\w*|soru\w*|svar\w*|fråg\w*|أجب|السؤال"
)
_QUESTIONS: Final = (
    r"(?:nutzer|benutzer|kunden)?frage|anfrage|question(?: de l'utilisateur)?"
    r"|pregunta(?: del usuario)?|consulta|pergunta(?: do usuário)?|domanda(?: dell'utente)?|vraag"
    r"|(?:ユーザーの)?質問|問い|(?:用户|用戶|我的)?(?:问题|問題|提问)(?:是|为)?|질문|вопрос(?: пользователя)?"
)
REPLY_ABROAD: Final = (
    r"(?:antwort|réponse|respuesta|resposta|risposta|antwoord|svar|odpowiedź|cevap|最终回答|最終回答|最终答案|回答"
    r"|答え|答案|최종 ?답변|답변|답|ответ)"
)
SOURCES_ABROAD: Final = (
    r"quellen?|fuentes?|fontes?|fonti|bronnen|références|参考(?:资料|文献)|出典|来源|引用|출처|источники"
)
_COLON: Final = r"[:\uff1a]"
_END: Final = r"[*_\u3011\uff09)\]]{0,4}"

NAMES_PASSAGES: Final = re.compile(rf"(?<![a-zà-ÿ])(?:{_PASSAGES})", re.IGNORECASE)
SAYS_TO_ANSWER: Final = re.compile(rf"(?<![a-zà-ÿ])(?:{_ANSWERS})", re.IGNORECASE)
ASKED_ABROAD: Final = re.compile(
    rf"[\W_]{{0,8}}(?:{_QUESTIONS})[ \u3000*_\u300d\u300f\u3011\]]{{0,4}}(?:{_COLON}|$)"
    r"[ \u3000*_\u300c\u300e]{0,4}(?P<text>.*)",
    re.IGNORECASE,
)
REPLIES_ABROAD: Final = re.compile(rf"[\W_]{{0,8}}{REPLY_ABROAD}[ *_\u3011]{{0,4}}{_COLON}", re.IGNORECASE)
HEADS_PASSAGES: Final = re.compile(
    rf"[^\n:\uff1a]{{0,160}}?(?<![a-zà-ÿ])(?:{_PASSAGES})[^\n:\uff1a]{{0,100}}{_END}{_COLON}"
    r"[ \u3000*_]{0,4}(?P<text>.*)",
    re.IGNORECASE,
)
BARE_HEAD_OF_PASSAGES: Final = re.compile(
    rf"(?:#{{1,6}} {{0,3}}|\*\*|={{2,}} ?|-{{3,}} ?|\u3010|\[)[^\n:\uff1a]{{0,40}}(?:{_PASSAGES})"
    r"[^\n:\uff1a]{0,40}[\s*=#\-\u3011\]]{0,9}",
    re.IGNORECASE,
)
HEADS_ELSE: Final = re.compile(
    r"[ \t]{0,3}(?:#{1,6} {0,3}|\*\*|={2,} ?|\u3010)(?!\d)[^\n]{1,60}"
    r"|[^\n:\uff1a.\u3002]{1,40}[:\uff1a][ \t]*"
)
"""A heading of something else, or a line that ends with a colon."""

OF_THE_CONVERSATION: Final = re.compile(
    r"\b(?:titles?|tags?|titel|titre|título|titolo|conversation|chat history|gespräch\w*|unterhaltung"
    r"|dialogue|conversación|conversa|conversazione|gesprek)\b|follow-?up question|标题|標題|对话|對話"
    r"|タイトル|会話|제목|대화|заголовок|беседы|разговора",
    re.IGNORECASE,
)
"""What a request for a title, tags, a summary or further questions speaks of."""

INSTRUCTS_ABROAD: Final = re.compile(
    r"[\W\d_]{0,6}(?:(?:wenn|falls) (?:du|sie|die antwort|der kontext|keine)\b|du (?:bist|sollst)\b"
    r"|sie sind\b|antworte\b|beantworte\b|erfinde\b|gib keine"
    r"|si (?:tu|vous) ne\b|si la réponse|si le contexte|tu es\b|vous êtes\b|réponds\b|répondez\b|n'invente"
    r"|si no (?:sabes|conoces|encuentras|está|hay)|si la respuesta|eres un|responde\b|contesta\b|no inventes"
    r"|se (?:não|você não)|se a resposta|você é\b|responda\b|não invente|se non|se la risposta|rispondi\b"
    r"|如果|若|你是|请|請|不要|回答(?!:|\uff1a)"
    r"|もし|わからない|分からない|あなたは|以下の指示|만약|если (?:ты|вы|ответ)|ответь)",
    re.IGNORECASE,
)


QUESTION_MARKS = ("?", "\uff1f", "\u061f")
LAST_LABEL = re.compile(r"\n[^\n]{1,60}[:\uff1a]\Z")
"""Below a question: ``Answer:``."""
_MARKUP = r"[\W_]{0,8}"
_BEHIND_LABEL = r"[ *_]{0,4}:[ *_]{0,4}"
ASKED = re.compile(
    rf"{_MARKUP}(?:(?:user|user's|human|customer) )?(?:question|query){_BEHIND_LABEL}(?P<text>.*)",
    re.IGNORECASE,
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
    rf"{_MARKUP}(?:\w{{1,20}} )?(?:answer|response|context|documents?|passages?|sources?){_BEHIND_LABEL}",
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
_LAST_RULE: Final = re.compile(
    r"\n[ \t]{0,3}(?:-{3,}|={3,}|\*{3,}|_{3,})\s*(?:[^\n]{0,60}\bquestion\b[^\n]{0,60}\s*)?\Z"
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
