"""Sentences of an answer that state no fact about the world, recognized by their English wording."""

# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

import re
from functools import lru_cache

SENTENCE_ENDS = ".!。！｡।"
"""What ends a statement in several scripts."""
_QUESTION_MARKS = ("?", "？", "؟")
_SOURCE = (
    r"(?:(?:the|these|this|those|any|all|your|given|provided|supplied|retrieved|available|following|above) )*"
    r"(?:passages?|contexts?|documents?|sources?|texts?|information|knowledge base|search results?|excerpts?)"
    r"(?: (?:provided|given|above|supplied|available))?(?: \d+(?:(?:,| and|, and) \d+)*)?"
)
_CANNOT = r"(?:unable|not able|not possible|impossible|cannot|can't|can not|could not|couldn't)"
_TELL = r"(?:answer|answered|determine|determined|provide|say|find|help|conclude|tell)"
_REFUSAL = re.compile(
    rf"^(?:(?:i'm |i am |we are |we're )?(?:sorry|afraid|apologi[sz]e)\b.{{0,40}}?)?"
    rf"(?:(?:i am |i'm |we are |it is )?{_CANNOT}(?: to)? {_TELL}\b|(?:i|we) {_CANNOT} {_TELL}\b"
    r"|(?:i|we) (?:do not|don't) (?:know|have (?:enough|sufficient|any))"
    rf"|(?:the|this|your) question {_CANNOT} be answered"
    r"|(?:there is )?(?:not enough|no|insufficient) (?:information|context|data)\b"
    rf"|[^.]{{0,80}}\b{_CANNOT}(?: to)?(?: be)? {_TELL}\b"
    rf"[^.]{{0,80}}\b(?:based on|from|using|with) {_SOURCE})",
    re.IGNORECASE,
)
_SILENT = re.compile(
    rf"^[^.]{{0,60}}?\b(?:none of )?{_SOURCE} (?:\w+ ){{0,2}}?"
    r"(?:(?:do|does|did)(?: not|n't)|fails? to|lacks?|contains? no|makes? no|offers? no|gives? no)\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"^(?:(?:i hope|hope) (?:this|that|it) helps|let me know\b|feel free\b|please (?:let|note that i|feel)\b"
    r"|(?:sure|certainly|of course)[!,.]|as an ai\b)",
    re.IGNORECASE,
)
_ARTEFACT = r"(?:summar(?:y|ies)|answers?|responses?|overviews?|recaps?|paraphrases?)"
_ANNOUNCED = re.compile(
    r"^(?:(?:sure|certainly|of course|okay|ok|absolutely)[,.!]* )?"
    r"(?:(?:based (?:up)?on|according to|using|given|from) [^,:]{1,60}, )?"
    r"(?:here(?:'s| is| are)|(?:the )?following is|below is|this is) (?:\w+[ -]){0,4}?"
    rf"{_ARTEFACT}\b[^:]{{0,120}}:$"
    r"|^\W*(?:word count|length): ?\d+(?: words)?\W*$|^\W*\d+ words\W*$",
    re.IGNORECASE,
)
_BASED_ON = re.compile(
    rf"^(?:(?:so|therefore|however|overall|thus)\W+)?"
    rf"(?:based (?:up)?on|according to|as per|from|given|per|in) (?:the )?(?:{_SOURCE})\W+",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"(?<!\s)\s*[(\[](?:from |see |source: )?(?:passages?|documents?|sources?|chunks?)[ \d,&and]+[)\]]"
    r"|\b(?:passages?|documents?|sources?|chunks?) \d+(?:(?:,| and|, and|&) \d+)*",
    re.IGNORECASE,
)

_MAY_CITE = re.compile(r"[\[\](【〔†{^]|https?:|<sup")
_LINK = re.compile(
    r"!?\[([^\[\]]{0,300})\]\((?:https?:|mailto:|/|#|\.)[^()\s]{0,2000}(?: \"[^\"]{0,200}\")?\)"
)
_PLACE = (
    r"(?:pp?|pages?|pg|S|Seiten?|páginas?|pág|pag|pagin[ae]|blz|str|стр|sect?(?:ion)?s?|Abschnitt"
    r"|Kap(?:itel)?|ch|§)\.?"
)
_SOURCES = (
    r"(?:sources?|src|docs?|documents?|passages?|chunks?|refs?|references?|quelle|dokument|fuente"
    r"|documento|fonte|bron|źródło|источник|kilde|källa|kaynak|出典|来源|來源|出处|参考|출처|المصدر)"
)
_CITATION = re.compile(
    r"\s{0,3}(?:(?<=et al\.) \((?:19|20)\d\d[a-z]?\)|\{\{\d{1,3}\}\}|\^\d{1,3}\^"
    r"|\[\[?\^?\s*\d{1,3}(?:\s*[-–,;]\s*\^?\d{1,3})*\s*\]?\](?:\([^()\s]{0,2000}\))?"
    r"|【[^【】]{0,200}】|〔[^〔〕]{0,200}〕"
    r"|<sup>[^<>]{0,40}</sup>|<?https?://[^\s<>()\[\]]{1,2000}>?"
    rf"|[(\[]\s*(?i:{_SOURCES})\s*[:#№]?\s*[^()\[\]]{{0,160}}[)\]]"
    rf"|[(\[]\s*(?i:see |siehe |vgl\. |voir |cf\. )?(?i:{_PLACE})\s*\d[^()\[\]]{{0,40}}[)\]]"
    r"|\((?:(?:see|e\.g\.,?|cf\.|vgl\.|siehe|voir) )?"
    r"(?!(?i:jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez|since|until|from|in|by"
    r"|version|q[1-4])\b[a-z]*)"
    r"[A-ZÀ-Þ][\w'’.-]{1,40}(?:,? (?:et al\.?|and|&|und|y|et|e|[A-ZÀ-Þ][\w'’.-]{0,40})){0,6},? (?:19"
    r"|20)\d\d[a-z]?"
    r"(?:[,;:] [^()]{0,120})?\))"
)
"""Marks of a source in an answer: ``[3]``, ``【4:0†policy.pdf】``, ``(Smith 2019)``, ``(p. 27)``, links."""
_STEP = re.compile(
    r"^\W*(?:(?:step|schritt|étape|etape|paso|passo|passaggio|stap|krok|шаг|крок|steg|trin|adım|vaihe"
    r"|pas)\s*\d{1,2}\s*[:.)–-]"
    r"|(?:步骤|步驟|手順|ステップ|단계)\s*\d{1,2}\s*[:：.、]|第\s*\d{1,2}\s*步\s*[:：,，、]?"
    r"|\d{1,2}\s*단계\s*[:：]?|(?:الخطوة|चरण)\s*\d{1,2}\s*[:：]?)\s*",
    re.IGNORECASE,
)


_KEPT = 1024
"""Sentences of an answer are looked at when claims are listed, and again with each pack of chunks."""


@lru_cache(maxsize=_KEPT)
def is_refusal(sentence: str) -> bool:
    """Return whether the sentence declines to answer: "Unable to answer based on given passages."."""
    return bool(_REFUSAL.match(_plain(sentence)))


@lru_cache(maxsize=_KEPT)
def is_meta(sentence: str) -> bool:
    """Return whether the sentence is about the answer or its sources, asks, or announces what follows."""
    plain = _plain(sentence)
    announces = plain.endswith((":", "：")) and len(plain.split()) <= 25
    return announces or plain.endswith(_QUESTION_MARKS) or bool(_ADDRESS.match(plain) or _SILENT.match(plain))


def announces_answer(sentence: str) -> bool:
    """Return whether the sentence is only about the answer: "Here's a summary in 92 words:".

    Narrower than `is_meta`: "Here are the steps to draw a cone:" says that there are such steps.
    """
    return bool(_ANNOUNCED.match(_plain(sentence)))


@lru_cache(maxsize=_KEPT)
def without_source(sentence: str) -> str:
    """Remove the parts that only name the source: "Based on the passages, water boils (Passage 2)."."""
    rest = _BASED_ON.sub("", sentence, count=1)
    begun = rest if rest == sentence else rest[:1].upper() + rest[1:]
    if _MAY_CITE.search(begun):
        begun = _CITATION.sub("", _LINK.sub(r"\1", begun))
    return _REFERENCE.sub("", _STEP.sub("", begun)).strip() or sentence


def _plain(sentence: str) -> str:
    return " ".join(sentence.replace("’", "'").replace("*", "").split())[:300]
