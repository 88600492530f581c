"""Read the responses of web frameworks by their shape: no framework is imported.

Starlette and FastAPI: a body of bytes, or a ``body_iterator``. Flask and other WSGI frameworks on Werkzeug:
``get_data()``, or an iterable ``response``. A tuple is Flask's ``(body, status, headers)``.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterable, Callable, Generator, Iterable
from typing import Any, NamedTuple

from ragtrace.capture.values.text import answer_in

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
