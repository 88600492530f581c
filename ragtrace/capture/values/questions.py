"""Find the question: among the arguments of a call, in a request, or in the messages of a chat.

Names are read by their parts, so that ``user_question`` asks and ``question_id`` does not. Where a name says
nothing, the value's look decides: a UUID, a path or a language code is no question. If no rule is sure, there
is no question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from numbers import Number
from typing import NamedTuple

from ragtrace.capture._guard import guarded
from ragtrace.capture.values.text import (
    MAX_PARTS,
    MAX_VISITS,
    Way,
    decoded,
    field,
    fields_of,
    first_field,
    is_opaque,
    is_spoken,
    parts_of,
    words,
)

Named = tuple[str | None, object]
"""A value with its name, if it has one."""


class Asked(NamedTuple):
    """A question that was found."""

    text: str
    value: object
    """The string, message or list of messages that holds it."""
    rank: int
    """How sure it is, best first."""


_BY_NAME, _IN_CHAT, _BY_WEAK_NAME, _IN_FIELD, _BY_LOOK, _IN_OBJECT, _IN_PAST = range(7)

_ASKING = words("question query q utterance ask asked inquiry enquiry")
_TEXT = (
    *("message", "msg", "input", "inp", "prompt", "text", "txt", "content"),
    *("search", "transcript", "sentence", "phrase", "body"),
)
_FROM_THE_USER = words("user human customer new current latest last")
_SECOND = words(
    "previous prev old earlier rewritten rephrased condensed standalone expanded generated related sub"
)
"""What makes a question that is not the one asked, if there is another."""
_NEVER_A_TEXT = words(
    "id uid uuid guid sid cid pid tid key token secret password session sess user tenant org organization"
    " organisation account customer client owner author sender role name title label tag type kind mode model"
    " llm engine deployment provider vendor lang language locale region country timezone tz currency"
    " namespace collection index table database db schema bucket folder dir directory path file filename url"
    " uri link host hostname port endpoint address email mail phone ip domain version env environment"
    " temperature limit top format encoding mime status level date time timestamp hash digest cursor offset"
    " workspace project app application service channel room thread conversation conv chat trace span run"
    " correlation device agent bot assistant tool style tone chain retriever category department source"
    " option param parameter auth authorization bearer credential cookie company"
)
_NEVER = words(
    "config configuration configurable setting metadata meta header filter template"
    " system developer persona instruction context ctx document doc chunk passage example answer response"
    " reply expected reference kwarg callback history"
)
"""Not even a structure under these names asks, except a list of messages."""
_HISTORY = words("history memory past previous")

_FIELDS = (
    *("question", "query", "user_query", "user_input", "user_message", "q", "utterance"),
    *("input", "prompt", "message", "text", "query_str", "content", "messages", "parts"),
)
"""The fields that are read of an object whose class does not list its own."""
_REQUEST_FIELDS = ("_json", "_form", "query_params", "path_params")
"""Fields of a Starlette request. The body is available only after the application has read it."""
_ASKERS = ("user", "human")
_ANSWERERS = ("assistant", "ai", "model", "bot")
_ROLES = frozenset({*_ASKERS, *_ANSWERERS, "system", "developer", "tool", "function"})
_MAX_JSON = 1_048_576
_PAIR = 2


@guarded
def question_in(value: object) -> str | None:
    """Return the question in a string, a request that holds one, or the last user's message of a chat."""
    if type(value) is str:
        return value
    asked = _asked(value, Way())
    return None if asked is None else asked.text


def question_among(arguments: Iterable[Named]) -> Asked | None:
    """Return the question among the arguments of a call, or the sure one of a mapping's values."""
    return _chosen(arguments, Way(), by_look=True)


def is_request(value: object) -> bool:
    """Return whether the value is a Starlette request."""
    return getattr(value, "query_params", None) is not None


class _Name(NamedTuple):
    """What a name says about its value."""

    asks: bool = False
    text: int | None = None
    """Place among the usual names of a text."""
    order: int = 0
    """Of questions, which comes first."""
    never_text: bool = False
    never: bool = False


@lru_cache(maxsize=1_024)
def _read_name(name: str) -> _Name:
    """Read a name by its parts. The last part that is known is the head: ``user_message``, ``message_id``."""
    parts = [_singular(part) for part in parts_of(name)]
    material = not _NEVER.isdisjoint(parts) and not _ASKING.intersection(parts[-1:])
    order = len(_SECOND.intersection(parts))
    for part in reversed(parts):
        stem = part.removeprefix("user") or part
        if stem in _ASKING:
            return _Name(asks=True, order=order)
        if part in _NEVER or part in _HISTORY:
            return _Name(never=True)
        if stem in _TEXT:
            if material or "assistant" in parts or "bot" in parts:
                return _Name(never=True)
            if stem != part or not _FROM_THE_USER.isdisjoint(parts):
                return _Name(asks=True)
            asks = not _ASKING.isdisjoint(parts)
            return _Name(asks=asks, text=None if asks else _TEXT.index(stem))
        if part in _NEVER_A_TEXT or (part.endswith("id") and part[:-2] in _NEVER_A_TEXT | {"message", "doc"}):
            return _Name(never_text=True)
    return _Name()


def _singular(part: str) -> str:
    known = part in _NEVER_A_TEXT or part in _NEVER or part in _HISTORY or part in _SECOND
    if known or not part.endswith("s"):
        return part
    return part[:-3] + "y" if part.endswith("ies") else part[:-1]


def _chosen(named: Iterable[Named], way: Way, *, by_look: bool) -> Asked | None:
    """Return the surest question among these values; two that are equally sure by their look are none."""
    found: list[tuple[int, int, Asked]] = []
    looks: list[str] = []
    for name, value in named:
        if value is None or isinstance(value, Number):
            continue
        read = _Name() if name is None else _read_name(name)
        if isinstance(value, str | bytes | bytearray):
            text = decoded(value)
            if read.never or read.never_text or not text.strip():
                continue
            inner = None if read.asks else _in_json(text, way)
            if inner is not None:
                found.append((max(inner.rank, _IN_CHAT), 0, inner))
            elif read.asks:
                found.append((_BY_NAME, read.order, Asked(text, text, _BY_NAME)))
            elif read.text is not None:
                order = read.text + (0 if is_spoken(text) else len(_TEXT))
                found.append((_BY_WEAK_NAME, order, Asked(text, text, _BY_WEAK_NAME)))
            else:
                looks.append(text)
        elif (inner := way.down(_asked, value)) is not None:
            rank = inner.rank
            if read.asks:
                rank = _BY_NAME
            elif read.never and rank not in {_IN_CHAT, _IN_PAST}:
                continue
            elif read.never_text and rank > _IN_CHAT:
                rank = _IN_PAST
            else:
                rank = max(rank, _IN_CHAT)
            found.append((rank, read.order + (read.text or 0), inner._replace(rank=rank)))
    if by_look and (seen := _by_look(looks)) is not None:
        found.append((_BY_LOOK, 0, Asked(seen, seen, _BY_LOOK)))
    return min(found, key=lambda each: each[:2], default=(0, 0, None))[2]


def _by_look(texts: Sequence[str]) -> str | None:
    spoken = [text for text in texts if is_spoken(text)]
    if len(spoken) > 1:
        spoken = [text for text in spoken if text.rstrip().endswith(("?", "\uff1f", "\u061f"))]
        return spoken[0] if len(spoken) == 1 else None
    if spoken:
        return spoken[0]
    return texts[0] if len(texts) == 1 and not is_opaque(texts[0]) else None


def _asked(value: object, way: Way) -> Asked | None:
    if value is None or isinstance(value, Number):
        return None
    if isinstance(value, str | bytes | bytearray):
        text = decoded(value)
        return Asked(text, text, _IN_FIELD)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return _asked_in_list(value, way)
    if is_request(value):
        return next(way.each(_asked, (getattr(value, name, None) for name in _REQUEST_FIELDS)), None)
    if _role(value) is not None and (said := _text_of_message(value, way)) is not None:
        return Asked(said, value, _IN_CHAT)
    fields = list(fields_of(value))
    if fields or isinstance(value, Mapping):
        return _chosen(fields, way, by_look=False)
    asked = _chosen(((name, field(value, name)) for name in _FIELDS), way, by_look=False)
    if asked is None or asked.rank in {_BY_NAME, _IN_CHAT, _IN_PAST}:
        return asked
    return asked._replace(rank=_IN_OBJECT)


def _in_json(text: str, way: Way) -> Asked | None:
    if len(text) > _MAX_JSON or text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return way.down(_asked, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _asked_in_list(values: Sequence[object], way: Way) -> Asked | None:
    """Return the last user's message; without roles, the last value."""
    last = values[: -MAX_VISITS - 1 : -1]
    for place, message in enumerate(last):
        if _role(message) in _ASKERS and (text := way.down(_text_of_message, message)) is not None:
            answered = any(_role(later) in _ANSWERERS for later in last[:place])
            return Asked(text, values, _IN_PAST if answered else _IN_CHAT)
    if any(_role(message) is not None for message in last):
        return None
    if last and (exchange := _exchange(last[0])) is not None:
        said, answer = exchange
        return Asked(said, said, _IN_PAST if answer else _IN_CHAT)
    asked = way.down(_asked, last[0]) if last else None
    return asked and Asked(asked.text, values, max(asked.rank, _IN_FIELD))


def _exchange(value: object) -> tuple[str, object] | None:
    """Return what a user said and its answer, if this is such a pair. It may have no answer yet."""
    if isinstance(value, Mapping):
        said, answer = first_field(value, _ASKERS), first_field(value, _ANSWERERS)
        return (said, answer) if isinstance(said, str) else None
    if isinstance(value, list | tuple) and len(value) == _PAIR and isinstance(value[0], str):
        return value[0], value[1]
    return None


def _role(message: object) -> str | None:
    """Return the role of a message: of an object, a mapping, or a pair of a role and a text."""
    if isinstance(message, str | bytes | Number) or message is None:
        return None
    pair = message[:1] if isinstance(message, tuple | list) and len(message) == _PAIR else ()
    for role in pair or (field(message, key) for key in ("role", "type", "sender", "speaker", "author")):
        role = getattr(role, "value", role)
        if isinstance(role, str) and role.lower() in _ROLES:
            return role.lower()
    return None


def _text_of_message(message: object, way: Way) -> str | None:
    is_pair = isinstance(message, tuple | list)
    content = message[1] if is_pair else first_field(message, ("content", "parts", "text"))  # type: ignore[index]
    if isinstance(content, str | bytes | bytearray):
        return decoded(content)
    if content is None:
        return None
    parts = content if isinstance(content, list | tuple) else [content]
    texts = [text for text in map(_text_of_part, islice(parts, MAX_PARTS)) if text]
    return "\n".join(texts) or None


def _text_of_part(part: object) -> str | None:
    held = part if isinstance(part, str | bytes) else first_field(part, ("text", "content"))
    kind = None if held is part else field(part, "type")
    is_text = kind is None or (isinstance(kind, str) and "text" in kind)
    return decoded(held) if is_text and isinstance(held, str | bytes) else None
