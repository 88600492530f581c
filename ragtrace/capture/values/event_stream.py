"""Read the pieces of a streamed body: text, bytes, server-sent events, JSON lines, or objects."""

from __future__ import annotations

import codecs
import json

from ragtrace.capture.values.text import answer_in

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
