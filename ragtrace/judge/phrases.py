"""Sentences of an answer that state no fact about the world, recognised by their English wording."""

# ruff: noqa: RUF001  typographic marks are the subject here

from __future__ import annotations

import re

__all__ = ["is_meta", "is_refusal"]

_SOURCE = (
    r"(?:the |these |this |those |any |your |given |provided |supplied |retrieved |available |following "
    r"|above )*(?:passages?|contexts?|documents?|sources?|texts?|information|data|knowledge base"
    r"|search results?|excerpts?)"
)
_REFUSAL = re.compile(
    r"^(?:(?:i'm |i am |we are |we're )?(?:sorry|afraid|apologi[sz]e)\b.{0,40}?)?"
    r"(?:(?:i am |i'm |we are |it is )?(?:unable|not able|impossible) to (?:answer|determine|provide|find)"
    r"|(?:i|we) (?:cannot|can't|can not|could not|couldn't) (?:answer|determine|provide|say|find|help)"
    r"|(?:i|we) (?:do not|don't) (?:know|have (?:enough|sufficient|any))"
    r"|(?:the|this|your) question (?:cannot|can't|can not) be answered"
    r"|there is (?:not enough|no|insufficient) (?:information|context|data)\b"
    r"|(?:not enough|no|insufficient) (?:information|context|data)\b)",
    re.IGNORECASE,
)
_SILENT_SOURCE = re.compile(
    rf"^(?:(?:but|however|unfortunately|as)\W+)?(?:none of )?{_SOURCE} (?:\w+ ){{0,2}}?"
    r"(?:(?:do|does|did)(?: not|n't)|fails? to|lacks?|contains? no|makes? no|offers? no|gives? no)\b",
    re.IGNORECASE,
)
_META = re.compile(
    rf"^(?:(?:based on|according to|from|given|using|as per) {_SOURCE}\W*$"
    r"|(?:i hope|hope) (?:this|that|it) helps|(?:let me know|feel free|please (?:let|note that i|feel))\b"
    r"|here (?:is|are|'s) (?:a|an|the|some|my|your)\b[^.]{0,80}:$|here's (?:a|an|the|some)\b[^.]{0,80}:$"
    r"|(?:sure|certainly|of course)[!,.]|as an ai\b|in (?:summary|conclusion|short)\W*$)",
    re.IGNORECASE,
)


def is_refusal(sentence: str) -> bool:
    """Tell whether the sentence declines to answer: "Unable to answer based on given passages."."""
    return bool(_REFUSAL.match(_plain(sentence)))


def is_meta(sentence: str) -> bool:
    """Tell whether the sentence talks about the answer or its sources, asks, or announces what follows."""
    plain = _plain(sentence)
    announces = plain.endswith(":") and len(plain.split()) <= 25
    return announces or plain.endswith("?") or bool(_META.match(plain) or _SILENT_SOURCE.match(plain))


def _plain(sentence: str) -> str:
    return " ".join(sentence.replace("’", "'").replace("*", "").split())[:300]
