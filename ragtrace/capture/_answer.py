"""Recordings of spans with an answer, which arrives whole or streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ragtrace.capture._guard import guarded, note_unread
from ragtrace.capture._recording import Recording
from ragtrace.capture.values.event_stream import PieceReader
from ragtrace.capture.values.names import hook
from ragtrace.capture.values.responses import body_of
from ragtrace.capture.values.text import answer_in, stated_answer
from ragtrace.model import Part

if TYPE_CHECKING:
    from ragtrace.capture.privacy.policy import ContentFilter


AnswerOf = Callable[..., object]
"""Extracts the answer's text from a returned value, or the next piece from a yielded one."""


_ANSWER_OF = "function that finds the answer"


class AnsweredRecording(Recording):
    """Base class of the spans of RAG calls and generations."""

    _answer: object = None
    _answer_of: AnswerOf | None = None
    _pieces: list[str] | None = None
    _kept = 0
    _reader: PieceReader | None = None

    @property
    def answer(self) -> str | None:
        """The answer so far."""
        return "".join(self._pieces) if self._pieces else _text(self._answer)

    @answer.setter
    def answer(self, answer: object) -> None:
        self.set_answer(answer)

    def set_answer(self, answer: object) -> None:
        """Set the whole answer: a string, or a reply or structure that contains one."""
        self._answer = answer
        self._pieces = None

    @guarded
    def add_answer(self, piece: object) -> None:
        """Append the next piece of a streamed answer: a string, or an event that contains one."""
        text = answer_in(piece)
        if text is None or self._content_filter is None:
            return
        if not self._streaming:
            self._streaming = True
            self._on_first_piece()
        # A character has at least one byte, so a limit in characters is safe.
        if text and self._kept <= self._content_filter.policy.kept_answer_chars:
            self._keep(text)

    def expect(self, media_type: str) -> None:
        """Note the media type of the stream that a decorated function returned."""
        self._reader = PieceReader(media_type)

    @guarded
    def take(self, piece: object) -> None:
        """Note a streamed piece of a decorated function."""
        if self._reader is None:
            self._reader = PieceReader()
        find = hook(self._answer_of, _ANSWER_OF)
        found = self._reader.text(piece) if find is None else find(piece)
        self.add_answer("" if found is None else found)

    @guarded
    def conclude(self, result: object) -> None:
        """Note the return value of a decorated function."""
        find = hook(self._answer_of, _ANSWER_OF)
        if find is not None:
            self.set_answer(find(result))
            return
        body = body_of(result)
        text = answer_in(body)
        if text is None and body is not None:
            note_unread("answer", result)
        self.set_answer(text)

    def _keep(self, piece: str) -> None:
        if self._pieces is None:
            self._pieces = []
        self._pieces.append(piece)
        self._kept += len(piece)

    def _on_first_piece(self) -> None:
        """Note the start of a stream."""

    def _answer_within(self, content_filter: ContentFilter) -> str | None:
        """Return the answer after the content filter."""
        if self._reader is not None and (rest := self._reader.rest()):
            self._keep(rest)
        answer = "".join(self._pieces) if self._pieces else _stated(self._answer)
        return content_filter.text(answer, Part.ANSWER, content_filter.policy.max_answer_bytes)


@guarded
def _text(answer: object) -> str | None:
    return answer if isinstance(answer, str) else None


def _stated(answer: object) -> str | None:
    """Return the text of an answer that the application set; a structure without an answer becomes JSON."""
    if answer is None or type(answer) is str:
        return answer
    text = stated_answer(answer)
    if text is None:
        note_unread("answer", answer)
    return text
