"""Reading replies as deepeval reads those of a model without structured output.

Source: deepeval 3.9.9 and 4.3.1, run side by side with this module. Neither repairs a reply nor asks again.
Where they raise, `DeepEvalUnreadable` is raised here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pydantic import JsonValue

JsonObject: TypeAlias = dict[str, JsonValue]

_TRAILING_COMMA = re.compile(r",\s*([\]}])")
_LEADING_WORD = re.compile(r"[a-z]+")


class DeepEvalUnreadable(Exception):
    """deepeval raises on this reply. The message says what is wrong with it, without its text."""


class Word(StrEnum):
    """What deepeval's judges may say."""

    YES = "yes"
    NO = "no"
    BORDERLINE = "borderline"
    """``idk`` in deepeval 3."""


BINARY = frozenset({Word.YES, Word.NO})
TERNARY = frozenset(Word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a list of verdicts."""

    word: Word | None
    """``None`` where the word is outside the vocabulary and deepeval drops the entry."""
    reason: str | None = None
    statement: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictForm:
    """What a metric demands of an entry."""

    words: frozenset[Word]
    reason_required: bool = False
    statement_required: bool = False
    free_word: Callable[[str], str] | None = None
    """deepeval 3: any word passes, and after this only ``yes`` counts; ``None`` where the word is checked."""
    list_required: bool = False
    """deepeval 3: the list is checked by its schema, so that no other empty value passes for one."""


def read_object(text: str, *, commas_first: bool) -> JsonObject:
    """Read the text between the first ``{`` and the last ``}``.

    Trailing commas are taken out: at once in deepeval 3 (``commas_first``), after a first failure in 4.

    Raises:
        Unreadable: that is no JSON object.
    """
    start, end = text.find("{"), text.rfind("}") + 1
    piece = "" if start < 0 else text[start:end] if end else text[start:] + "}"
    repaired = _TRAILING_COMMA.sub(r"\1", piece)
    for candidate in (repaired,) if commas_first else (piece, repaired):
        try:
            value: JsonObject = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return value
    raise DeepEvalUnreadable("it holds no JSON object")


def field_of(found: JsonObject, name: str) -> JsonValue:
    """Return a field that must be there.

    Raises:
        Unreadable: it is not.
    """
    if name not in found:
        raise DeepEvalUnreadable(f"it has no field `{name}`")
    return found[name]


def read_verdicts_4(form: VerdictForm, found: JsonObject) -> tuple[Item, ...]:
    """Read a list of verdicts as deepeval 4 does: by the leading word of each, whatever its case.

    An absent list is an empty one. Entries with a word outside the vocabulary are dropped before anything
    else of them is looked at.

    Raises:
        Unreadable: an entry is no object, or lacks what the metric demands.
    """
    return tuple(_item_4(entry, form) for entry in _entries(found.get("verdicts") or []))


def read_verdicts_3(form: VerdictForm, found: JsonObject) -> tuple[Item, ...]:
    """Read a list of verdicts as deepeval 3 does: a word is checked as it is, or is a no unless ``yes``.

    Raises:
        Unreadable: the list is absent, an entry is no object, lacks what the metric demands, or has a word
            outside the vocabulary.
    """
    listed = field_of(found, "verdicts")
    if form.list_required and not isinstance(listed, list):
        raise DeepEvalUnreadable("its field `verdicts` is no list")
    return tuple(_item_3(entry, form) for entry in _entries(listed))


def _entries(listed: JsonValue) -> Sequence[JsonValue]:
    if isinstance(listed, list):
        return listed
    if isinstance(listed, (dict, str)) and not listed:
        return []
    raise DeepEvalUnreadable("its field `verdicts` is no list")


def _item_4(entry: JsonValue, form: VerdictForm) -> Item:
    fields = _object(entry)
    word = _leading_word(fields.get("verdict"))
    if word not in form.words:
        return Item(word=None)
    return _checked(fields, form, word)


def _item_3(entry: JsonValue, form: VerdictForm) -> Item:
    fields = _object(entry)
    said = _text(fields, "verdict", required=True) or ""
    if form.free_word is not None:
        return _checked(fields, form, Word.YES if form.free_word(said) == Word.YES else Word.NO)
    word = _WORDS_3.get(said)
    if word not in form.words:
        raise DeepEvalUnreadable("a verdict is not in the vocabulary")
    return _checked(fields, form, word)


def _checked(fields: JsonObject, form: VerdictForm, word: Word | None) -> Item:
    return Item(
        word=word,
        reason=_text(fields, "reason", required=form.reason_required),
        statement=_text(fields, "statement", required=True) if form.statement_required else None,
    )


_WORDS_3 = {"yes": Word.YES, "no": Word.NO, "idk": Word.BORDERLINE}
_WORDS_4 = {word.value: word for word in Word} | {"idk": Word.BORDERLINE}


def _leading_word(raw: JsonValue) -> Word | None:
    match = _LEADING_WORD.match(raw.strip().lower()) if isinstance(raw, str) else None
    return _WORDS_4.get(match[0]) if match else None


def _object(entry: JsonValue) -> JsonObject:
    if not isinstance(entry, dict):
        raise DeepEvalUnreadable("an entry of `verdicts` is no object")
    return entry


def _text(fields: JsonObject, name: str, *, required: bool) -> str | None:
    value = fields.get(name)
    if isinstance(value, str) or (value is None and not required):
        return value
    raise DeepEvalUnreadable(f"an entry of `verdicts` has no text as `{name}`")
