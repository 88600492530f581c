"""Find the text in values of any shape: questions in requests, answers in replies. Only the shape counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from numbers import Number

from ragtrace.capture._guard import guarded
from ragtrace.capture.privacy.policy import plain_text
from ragtrace.capture.values.plain import CONTAINERS

ASKING_NAMES = ("question", "query", "user_query", "user_input", "q")
QUESTION_NAMES = (*ASKING_NAMES, "input", "prompt", "message", "text")
_QUESTION_FIELDS = (*QUESTION_NAMES, "query_str", "content", "messages", "parts")
_REQUEST_FIELDS = ("_json", "_form", "query_params", "path_params")
"""Fields of a Starlette request. The body is available only after the application has read it."""
_ANSWER_FIELDS = (
    *("delta", "answer", "output_text", "output", "response", "result", "text", "content", "token"),
    *("completion", "reply", "replies", "answers", "choices", "message", "messages", "parts", "data"),
)
_ONE_OF_MANY = {"choices": 0, "replies": 0, "answers": 0, "messages": -1}
_THOUGHTS = ("reasoning", "thinking", "tool_", "function_call")
_AGAIN = ("response.", "message_", "content_block_", "text-", "text_")
_PIECES = ("response.output_text.delta", "content_block_delta", "text-delta", "text_delta")

MAX_DEPTH = 6
MAX_PARTS = 100
MAX_VISITS = 500
"""Per value: objects can nest without end."""


@guarded
def question_in(value: object) -> str | None:
    """Return the question in a string, a request that holds one, or the last user's message of a chat."""
    return value if type(value) is str else _question(value, _Way())


@guarded
def answer_in(value: object) -> str | None:
    """Return the answer in a returned value, or its next piece in a yielded value.

    That is a string, a number, the first item of a tuple, or the field ``answer``, ``output``, ``content`` or
    similar of a mapping or object: replies of the OpenAI and Anthropic SDKs, messages and results of
    LangChain, LlamaIndex, Haystack and pydantic-ai, and events of their streams.
    """
    if type(value) is str:
        return value
    if isinstance(value, Number) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, tuple) and value and not isinstance(value[0], list | tuple):
        return answer_in(value[0])
    return None if isinstance(value, list | tuple) else _answer(value, _Way())


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


def is_request(value: object) -> bool:
    """Return whether the value is a Starlette request."""
    return getattr(value, "query_params", None) is not None


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


class _Way:
    """The bounds of a search inside a value."""

    __slots__ = ("depth", "visits")

    def __init__(self) -> None:
        self.depth = self.visits = 0

    def first(self, search: Callable[[object, _Way], str | None], values: Iterable[object]) -> str | None:
        """Return the first text in these values, one level down."""
        return next(self.each(search, values), None)

    def each(self, search: Callable[[object, _Way], str | None], values: Iterable[object]) -> Iterator[str]:
        """Yield the texts in these values, one level down."""
        if self.depth == MAX_DEPTH:
            return
        for value in values:
            if self.visits >= MAX_VISITS:
                return
            if value is None:
                continue
            self.visits += 1
            self.depth += 1
            found = search(value, self)
            self.depth -= 1
            if found is not None:
                yield found


def _question(value: object, way: _Way) -> str | None:
    if isinstance(value, str | bytes | bytearray):
        return _decoded(value)
    if isinstance(value, Number):
        return None
    if isinstance(value, list | tuple):
        return way.first(_question, _asked_last(value))
    if is_request(value):
        return way.first(_question, (getattr(value, name, None) for name in _REQUEST_FIELDS))
    return way.first(_question, (field(value, name) for name in _QUESTION_FIELDS))


def _asked_last(messages: Sequence[object]) -> Sequence[object]:
    """Return the user messages, last first; without any, the last message."""
    last = messages[: -MAX_VISITS - 1 : -1]
    return [message for message in last if _role(message) in {"user", "human"}] or last[:1]


def _role(message: object) -> object:
    role = None if isinstance(message, str | bytes) else first_field(message, ("role", "type"))
    role = getattr(role, "value", role)
    return role if isinstance(role, str) else None


def _answer(value: object, way: _Way) -> str | None:
    if isinstance(value, str | bytes | bytearray):
        return _decoded(value)
    if isinstance(value, Number):
        return None
    if isinstance(value, list | tuple):
        found = list(way.each(_answer, value[:MAX_VISITS]))
        return "".join(found) if found else None
    if _is_no_piece(value):
        return None
    return way.first(_answer, (_held(value, name) for name in _ANSWER_FIELDS)) or _reply_of_part(value, way)


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


def _reply_of_part(value: object, way: _Way) -> str | None:
    """Search the reply of a pipeline's component, as Haystack and LangGraph name them."""
    if way.depth or not isinstance(value, Mapping):
        return None
    parts = (part for part in islice(value.values(), MAX_PARTS) if isinstance(part, Mapping))
    return way.first(_answer, (_held(part, name) for part in parts for name in _ONE_OF_MANY))


def _decoded(value: str | bytes | bytearray) -> str:
    return str.__str__(value) if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
