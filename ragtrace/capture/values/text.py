"""Find the answer in values of any shape: replies, results, events of a stream. Only the shape counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from numbers import Number
from typing import TypeVar

from ragtrace.capture._guard import guarded
from ragtrace.capture.values.plain import CONTAINERS, plain_text

V = TypeVar("V")


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

MAX_DEPTH = 6
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
    rest = [value for value in values if not isinstance(value, str | bool | Number)]
    spoken = next((text for text in texts if is_spoken(text)), None)
    if spoken is not None:
        return decoded(spoken)
    lists = (_answer_of_list(value, way) for value in rest if isinstance(value, list))
    named = next(chain(way.each(_named_answer, rest), filter(None, lists)), None)
    if named is not None:
        return named
    word = next((text for text in texts if not is_opaque(text)), None)
    if word is not None:
        return decoded(word)
    found = next(way.each(_answer, (value for value in rest if not isinstance(value, list | tuple))), None)
    plain = (value for value in values if isinstance(value, Number | str) and not isinstance(value, bool))
    return found if found is not None else next(map(str, plain), None)


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
        if value is None or self.depth == MAX_DEPTH or self.visits >= MAX_VISITS:
            return None
        self.visits += 1
        self.depth += 1
        try:
            return search(value, self)
        finally:
            self.depth -= 1

    def each(self, search: Callable[[object, Way], V | None], values: Iterable[object]) -> Iterator[V]:
        """Yield what is found in these values, one level down."""
        if self.depth == MAX_DEPTH:
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
