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
    return _REFERENCE.sub("", begun).strip() or sentence


def _plain(sentence: str) -> str:
    return " ".join(sentence.replace("’", "'").replace("*", "").split())[:300]
