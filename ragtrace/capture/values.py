"""Read values of any shape, bounded: as JSON or text, and for the question and the answer in them.

Only the shape counts: no framework is imported. Of a reply, a result or an event of a stream, names of fields
tell the answer. Web frameworks: Starlette and FastAPI have a body of bytes, or a ``body_iterator``; Flask and
others on Werkzeug ``get_data()``, or an iterable ``response``. A tuple is Flask's ``(body, status,
headers)``.

Of a question, names are read by their parts, so that ``user_question`` asks and ``question_id`` does not.
Where a name says nothing, the value's look decides: a UUID, a path or a language code is no question. If no
rule is sure, there is no question.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from json import JSONEncoder
from json.encoder import encode_basestring, encode_basestring_ascii
from numbers import Number
from typing import Any, NamedTuple, TypeVar

from ragtrace.capture._guard import guarded, note_unread

V = TypeVar("V")
Text = Callable[[object], str | None]

CONTAINERS = (Mapping, list, tuple, set, frozenset)
INT64 = 2**63
MAX_DEPTH = 8
MAX_VALUES = 1_000
"""Per structure: a list that contains itself twice has 2**depth values."""

compact_json = JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class JsonValue(NamedTuple):
    """A value converted to JSON values."""

    value: object
    is_cut: bool
    """Some values were too deep, or beyond the first 1,000."""


def plain(value: object, text: Text, longest_number: int = INT64) -> JsonValue:
    """Return the value as JSON values; ``text`` converts all values but containers, numbers and booleans.

    An integer of ``longest_number`` or more becomes text, because JSON readers may lose digits.
    """
    room = _Room(longest_number)
    return JsonValue(_plain(value, text, room, 0), room.is_cut)


class _Room:
    __slots__ = ("is_cut", "left", "longest_number")

    def __init__(self, longest_number: int) -> None:
        self.longest_number = longest_number
        self.left = MAX_VALUES
        self.is_cut = False

    def first(self, values: Iterable[V]) -> Iterator[V]:
        for value in values:
            if self.left == 0:
                self.is_cut = True
                return
            self.left -= 1
            yield value


def _plain(value: object, text: Text, room: _Room, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < room.longest_number:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, CONTAINERS):
        return text(value)
    if depth == MAX_DEPTH:
        room.is_cut = True
        return None
    if isinstance(value, Mapping):
        pairs = room.first(value.items())
        return {str(text(key)): _plain(inner, text, room, depth + 1) for key, inner in pairs}
    return [_plain(inner, text, room, depth + 1) for inner in room.first(value)]


def json_string(text: str) -> str:
    """Return the text as JSON; the ASCII encoder is faster."""
    return encode_basestring_ascii(text) if text.isascii() else encode_basestring(text)


def cut(text: str, limit: int) -> tuple[str, int, bool]:
    """Return the longest prefix of at most ``limit`` bytes of UTF-8, its size, and whether it is shorter.

    The text holds no lone surrogates: see [`plain_text`][ragtrace.capture.values.plain_text].
    """
    if text.isascii():
        return (text, len(text), False) if len(text) <= limit else (text[:limit], limit, True)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text, len(encoded), False
    # Only the last character can be incomplete, and only that is what "ignore" drops.
    prefix = encoded[:limit].decode(errors="ignore")
    return prefix, len(prefix.encode()), True


def plain_text(value: object) -> str:
    """Return the value as text that every OTLP receiver accepts: no lone surrogates, no NUL.

    Protobuf refuses a whole batch because of one lone surrogate; some stores refuse NUL. Both become U+FFFD.
    """
    text = value if type(value) is str else _as_str(value) or ""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Encoding via UTF-16 rejoins two surrogates of one character that an escape had split.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@guarded
def _as_str(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, CONTAINERS):
        return compact_json(plain(value, plain_text).value)
    if type(value).__str__ is object.__str__ and not isinstance(value, Number):
        # A `repr` writes the whole value, and grows without end if the value contains itself.
        return f"<{type(value).__name__}>"
    return str(value)


def name(value: object, what: str) -> str | None:
    """Return a name, such as a model's. Only a string: the ``str`` of an object may reveal its content."""
    return _text(_name, value, what)


def identity(value: object, what: str) -> str | None:
    """Return an id as text, from a string or a value with a text form, such as a number or a UUID."""
    return _text(_identity, value, what)


def whole_number(value: object, what: str) -> int | None:
    """Return a whole number that fits OTLP's 64 bits."""
    if value is None:
        return None
    number = _whole_number(value)
    if number is None:
        note_unread(what, value)
    return number


def finite(value: object) -> float | None:
    """Return a finite number of any class, or ``None``."""
    if value is None or isinstance(value, str | bytes | bool) or callable(value):
        return None  # a mock converts to any number
    try:
        number = float(value)  # type: ignore[arg-type]  # numpy and decimal numbers convert
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def hook(value: object, what: str) -> Callable[..., Any] | None:
    """Return a callable of the application."""
    if callable(value):
        return value
    if value is not None:
        note_unread(what, value)
    return None


def _text(read: Callable[[object], str | None], value: object, what: str) -> str | None:
    if value is None:
        return None
    if type(value) is str:  # nothing of the application's is called
        return plain_text(value)
    text = read(value)
    if text is None:
        note_unread(what, value)
    return text


@guarded
def _name(value: object) -> str | None:
    held = value.value if isinstance(value, Enum) else value
    return plain_text(held) if isinstance(held, str | bytes) else None


@guarded
def _identity(value: object) -> str | None:
    if isinstance(value, str | bytes):
        return plain_text(value)
    if callable(value) or isinstance(value, CONTAINERS) or type(value).__str__ is object.__str__:
        return plain_text(value) if isinstance(value, int | float) else None
    return plain_text(value)


@guarded
def _whole_number(value: object) -> int | None:
    if callable(value):  # a mock converts to any number
        return None
    number = int(value)  # type: ignore[call-overload]  # numpy's and others convert
    return number if abs(number) < INT64 else None


def words(listed: str) -> frozenset[str]:
    """Return the words of a list in one string."""
    return frozenset(listed.split())


_ANSWER_FIELDS = (
    *("delta", "answer", "output_text", "output", "response", "result", "text", "content", "token"),
    *("completion", "reply", "replies", "answers", "choices", "candidates", "generations", "outputs"),
    *("messages", "parts", "data", "message"),
)
_ONE_OF_MANY = dict.fromkeys(("choices", "candidates", "replies", "answers", "generations", "outputs"), 0)
_ONE_OF_MANY["messages"] = -1
_ANSWERING = ("assistant", "ai", "model", "bot")
_TEXTS = words(
    "text output response message msg content reply answer completion generation markdown md assistant bot"
    " speech say"
)
_OF_MODEL = words("final generated response bot assistant ai llm model output completion")
_WRAPPERS = words("data result results response output outputs body payload")
_NO_ANSWER = words(
    "question query prompt input user human context source sources document documents docs chunk chunks id"
    " ids score confidence type status code time latency length token tokens count url reference expected"
    " error usage metadata info thought thoughts reasoning language format model_name"
)
"""Words in the names of fields that describe an answer, or hold something else."""
_THOUGHTS = ("reasoning", "thinking", "tool_", "function_call")
_AGAIN = ("response.", "message_", "content_block_", "text-", "text_")
_PIECES = ("response.output_text.delta", "content_block_delta", "text-delta", "text_delta")

_DEEPEST = 6
MAX_PARTS = 100
MAX_VISITS = 500
"""Per value: objects can nest without end."""


@guarded
def answer_in(value: object) -> str | None:
    """Return the answer in a returned value, or its next piece in a yielded value.

    That is a string, a number, or a field whose name says answer, reply, output, content or the like, of a
    mapping or object: replies of the OpenAI and Anthropic SDKs, messages and results of LangChain,
    LlamaIndex, Haystack and pydantic-ai, and events of their streams. Of a tuple, it is the item that looks
    most like an answer.
    """
    if type(value) is str:
        return value
    if isinstance(value, Number) and not isinstance(value, bool):
        return str(value)
    way = Way()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return _answer_among(value, way)
    return _answer_of_list(value, way) if isinstance(value, list) else _answer(value, way)


def _answer_among(values: Sequence[object], way: Way) -> str | None:
    """Return the answer of several returned values, such as sources and a text."""
    values = values[:MAX_PARTS]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    lists = [value for value in values if isinstance(value, list)]
    others = [value for value in values if not isinstance(value, str | bool | Number | list | tuple)]
    found = chain(
        (decoded(text) for text in texts if is_spoken(text)),
        way.each(_named_answer, others),
        filter(None, (_answer_of_list(value, way) for value in lists)),
        (decoded(text) for text in texts if not is_opaque(text)),
        way.each(_answer, others),
        (str(value) for value in values if isinstance(value, Number | str) and not isinstance(value, bool)),
    )
    return next(found, None)


def _answer_of_list(values: Sequence[object], way: Way) -> str | None:
    """Return the answer of a list of messages, or of the one result in a list."""
    last = values[-1] if values else None
    if isinstance(last, list | tuple) and len(last) == 2 and last[0] in _ANSWERING:
        return _answer(last[1], way)
    if first_field(last, ("role", "type")) in _ANSWERING:
        return _answer(last, way)
    return _named_answer(last, way) if len(values) == 1 else None


@guarded
def stated_answer(value: object) -> str | None:
    """Return the answer that an application sets itself; a structure without one becomes JSON."""
    found = answer_in(value)
    if found is not None or value is None or first_field(value, _ANSWER_FIELDS) is not None:
        return found
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        dumped = dump()
        return dumped if isinstance(dumped, str) else None
    return plain_text(value) if isinstance(value, CONTAINERS) else None


def first_field(value: object, names: Iterable[str]) -> object:
    """Return the first of these fields in the mapping or object, except methods."""
    if type(value) is dict and value.keys().isdisjoint(names):
        return None
    return next((held for name in names if (held := field(value, name)) is not None), None)


@guarded
def field(value: object, name: str) -> object:
    """Return a field of a mapping or an object, unless it is a method."""
    if type(value) is dict:  # the most frequent case; checking for a Mapping is slow
        held = value.get(name)
    else:
        held = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return None if callable(held) and not isinstance(held, str) else held


def fields_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield the names and values of a mapping, a data class, a pydantic model or a named tuple."""
    if isinstance(value, Mapping):
        yield from (item for item in islice(value.items(), MAX_PARTS) if isinstance(item[0], str))
        return
    for listed in ("__dataclass_fields__", "__pydantic_fields__", "_fields"):
        names = getattr(type(value), listed, None)
        if isinstance(names, Mapping | tuple):
            yield from ((name, field(value, name)) for name in islice(names, MAX_PARTS))
            return


def parts_of(name: str) -> Sequence[str]:
    """Split a name into its lower-case words: ``user_question``, ``userQuestion``."""
    return re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower())


def decoded(value: str | bytes | bytearray) -> str:
    """Return the text of a string or of bytes."""
    return str.__str__(value) if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def is_spoken(text: str) -> bool:
    """Return whether a text looks like language: two words, a question mark, or letters beyond ASCII."""
    return _SPOKEN.search(text) is not None


def is_opaque(text: str) -> bool:
    """Return whether a text is one token that is no word: a UUID, a key, a path, an address, a slug."""
    return _OPAQUE.fullmatch(text.strip()) is not None


_SPOKEN = re.compile(r"\w[^\S\n]+\w|[?\uff1f\u061f]\s*$|[^\W\d_a-zA-Z]{2}")
_OPAQUE = re.compile(r"\S*[\d_:/\\@=.{}<>-]\S*|\S{40,}")


class Way:
    """The bounds of a search inside a value."""

    __slots__ = ("depth", "visits")

    def __init__(self) -> None:
        self.depth = self.visits = 0

    def down(self, search: Callable[[object, Way], V | None], value: object) -> V | None:
        """Return what is found in this value, one level down."""
        if value is None or self.depth == _DEEPEST or self.visits >= MAX_VISITS:
            return None
        self.visits += 1
        self.depth += 1
        try:
            return search(value, self)
        finally:
            self.depth -= 1

    def each(self, search: Callable[[object, Way], V | None], values: Iterable[object]) -> Iterator[V]:
        """Yield what is found in these values, one level down."""
        if self.depth == _DEEPEST:
            return
        for value in values:
            if self.visits >= MAX_VISITS:
                return
            if (found := self.down(search, value)) is not None:
                yield found


def _answer(value: object, way: Way) -> str | None:
    if isinstance(value, str | bytes | bytearray):
        return decoded(value)
    if isinstance(value, Number):
        return None
    if isinstance(value, list | tuple):
        found = list(way.each(_answer, value[:MAX_VISITS]))
        return "".join(found) if found else None
    if _is_no_piece(value):
        return None
    named = _named_answer(value, way)
    if named is not None:
        return named
    weak = (held for name, held in fields_of(value) if (_grade(name) or 0) >= _WRAPPER)
    known = (_held(value, name) for name in _ANSWER_FIELDS)
    return next(way.each(_answer, chain(known, weak)), None) or _reply_of_part(value, way)


def _named_answer(value: object, way: Way) -> str | None:
    """Return the value under a name that surely means the answer, here or within a wrapper."""
    held_by = fields_of(value) if isinstance(value, Mapping) else chain(fields_of(value), _own_fields(value))
    fields = [(grade, name, held) for name, held in held_by if (grade := _grade(name)) is not None]
    for grade, _, held in sorted(fields, key=lambda each: (each[0], len(each[1]))):
        search = _answer if grade < _WRAPPER else _named_answer
        if grade <= _WRAPPER and (found := way.down(search, held)):
            return found
    return None


def _own_fields(value: object) -> Iterator[tuple[str, object]]:
    own = getattr(value, "__dict__", None)
    return islice(own.items(), MAX_PARTS) if type(own) is dict else iter(())


_SURE, _LIKELY, _SHORT, _WRAPPER, _WEAK = range(5)


@lru_cache(maxsize=1_024)
def _grade(name: str) -> int | None:
    """Return how surely a field of this name holds the answer; ``None`` if it does not."""
    parts = parts_of(name)
    if not parts or not _NO_ANSWER.isdisjoint(parts):
        return None
    if "answer" in parts:
        return _SURE
    last = parts[-1]
    is_of_model = len(parts) > 1 and last in _TEXTS and not _OF_MODEL.isdisjoint(parts)
    if is_of_model or last in {"reply", "completion", "final"}:
        return _LIKELY
    if "summary" in parts:
        return _SHORT
    if last in _WRAPPERS:
        return _WRAPPER
    return _WEAK if last in _TEXTS else None


def _is_no_piece(value: object) -> bool:
    """Return whether an event holds a thought, a tool's arguments, or a repetition of earlier pieces."""
    kind = field(value, "type")
    if not isinstance(kind, str):
        return False
    again = kind.startswith(_AGAIN) and kind not in _PIECES
    return again or kind.startswith(_THOUGHTS) or field(value, "snapshot") is not None


def _held(value: object, name: str) -> object:
    held = field(value, name)
    if name in _ONE_OF_MANY and isinstance(held, list | tuple):
        return held[_ONE_OF_MANY[name]] if held else None
    return held


def _reply_of_part(value: object, way: Way) -> str | None:
    """Search the reply of a pipeline's component, as Haystack and LangGraph name them."""
    if way.depth or not isinstance(value, Mapping):
        return None
    parts = (part for part in islice(value.values(), MAX_PARTS) if isinstance(part, Mapping))
    return next(way.each(_answer, (_held(part, name) for part in parts for name in _ONE_OF_MANY)), None)


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
    if last and (exchange := _exchange(last[0])) is not None:
        said, answer = exchange
        return Asked(said, said, _IN_PAST if answer else _IN_CHAT)
    if any(_role(message) is not None for message in last):
        return None
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


MAX_BODY = 4_194_304
"""The largest body, in bytes, that is searched for an answer."""
_FIRST_ERROR = 400


class StreamedBody(NamedTuple):
    """The body of a response that is not sent yet."""

    media_type: str
    pieces: Iterable[Any] | AsyncIterable[Any]
    replaced: Callable[[Any], Any]
    """Replaces the body with a generator and returns the response."""


def streamed_body(result: object) -> StreamedBody | None:
    """Return the streamed body of a response, ``None`` for anything else."""
    if type(result) is tuple and result:
        return _streamed_first(result)
    if not _is_response(result):
        return None
    for name in ("body_iterator", "response"):
        pieces = getattr(result, name, None)
        if isinstance(pieces, AsyncIterable) or (isinstance(pieces, Iterable) and _is_streamed(result)):
            return StreamedBody(_media_type(result), pieces, _replacing(result, name))
    return None


def body_of(result: object) -> object:
    """Return a response's body, with JSON parsed, or ``None``; return any other value unchanged."""
    status = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    if isinstance(result, tuple) and result and (type(status) is int or _is_response(result[0])):
        return None if type(status) is int and status >= _FIRST_ERROR else body_of(result[0])
    if not _is_response(result):
        return result
    body = None if _is_streamed(result) else _bytes_of(result)
    if not body or len(body) > MAX_BODY or getattr(result, "status_code", 0) >= _FIRST_ERROR:
        return None
    text = body.decode("utf-8", "replace")
    return json.loads(text) if "json" in _media_type(result) else text


def _is_response(result: object) -> bool:
    # a mock has every attribute, and would store the replacement
    if not isinstance(getattr(result, "status_code", None), int) or getattr(result, "headers", None) is None:
        return False
    return any(hasattr(result, name) for name in ("body", "body_iterator", "get_data"))


def _is_streamed(response: object) -> bool:
    # a file that the server sends itself is not an answer
    return bool(getattr(response, "is_streamed", False)) and not getattr(
        response, "direct_passthrough", False
    )


def _bytes_of(response: object) -> bytes | None:
    read = getattr(response, "get_data", None)
    body = read() if callable(read) else getattr(response, "body", None)
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else None


def _media_type(response: Any) -> str:
    return str(response.headers.get("content-type") or getattr(response, "media_type", None) or "")


def _replacing(response: object, name: str) -> Callable[[Any], Any]:
    def replaced(generator: Any) -> Any:
        setattr(response, name, generator)
        return response

    return replaced


def _streamed_first(result: tuple[Any, ...]) -> StreamedBody | None:
    """Find a streamed body, or a bare generator, in ``(body, status, headers)``."""
    first, *rest = result
    if isinstance(first, Generator):
        return StreamedBody("", first, lambda generator: (generator, *rest))
    body = streamed_body(first)
    return body and body._replace(replaced=lambda generator: (body.replaced(generator), *rest))


MAX_LINE = 1_048_576
"""In characters: a longer line is not kept."""
_EVENTS = "text/event-stream"
_LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines", "application/json-seq")
_FIRST_OF_EVENTS = ("data:", "event:", "id:", "retry:", ":")
_NAMES_OF_TEXT = frozenset({"", "message", "token", "delta", "answer", "chunk", "text", "content", "data"})
"""Other event names carry sources, errors and the like, unless their data contain an answer."""


class PieceReader:
    """Extracts the answer's text piece by piece.

    It takes the response's media type, if any. Otherwise the first piece shows whether it is an event stream
    (WHATWG HTML, 9.2: server-sent events).
    """

    __slots__ = ("_data", "_decoder", "_event", "_events", "_framed", "_line", "_lines")

    def __init__(self, media_type: str = "") -> None:
        kind = media_type.partition(";")[0].strip().lower()
        self._lines = kind in _LINES
        self._framed: bool | None = True if self._lines else None
        self._events = kind == _EVENTS
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._event = ""
        self._data: list[str] = []

    def text(self, piece: object) -> str | None:
        """Return the piece's part of the answer, ``None`` if it has no text."""
        if isinstance(piece, bytes | bytearray):
            piece = self._decoder.decode(piece)
            self._events = True  # not model tokens, which may contain "data:"
        if not isinstance(piece, str):
            return answer_in(piece)
        if self._framed is None:
            self._framed = piece.startswith(_FIRST_OF_EVENTS) and (self._events or "\n" in piece)
        return self._of_lines(piece) if self._framed else piece

    def rest(self) -> str:
        """Return the text after the last line end, once the stream has ended."""
        line, self._line = self._line, ""
        return self._of_line(line) + self._dispatched()

    def _of_lines(self, piece: str) -> str:
        *complete, self._line = (self._line + piece).replace("\r\n", "\n").split("\n")
        self._line = self._line[:MAX_LINE]
        return "".join(map(self._of_line, complete))

    def _of_line(self, line: str) -> str:
        if self._lines:
            return _of_data(line, named=False)
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
        elif field == "event":
            self._event = value.strip()
        elif not line:
            return self._dispatched()
        return ""

    def _dispatched(self) -> str:
        data, name = "\n".join(self._data), self._event
        self._data.clear()
        self._event = ""
        return _of_data(data, named=name not in _NAMES_OF_TEXT)


def _of_data(data: str, *, named: bool) -> str:
    if data.lstrip()[:1] in {"{", '"'}:
        try:
            return answer_in(json.loads(data)) or ""
        except ValueError:
            pass  # text that only looks like JSON
    return "" if named or data == "[DONE]" else data
