"""A span that ends with an answer, which arrives whole or in pieces."""

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
"""Finds the answer's text in what a function returned, or the next piece of it in what it yielded."""


_ANSWER_OF = "function that finds the answer"


class AnsweredRecording(Recording):
    """What the spans of whole calls and of generations have in common."""

    _answer: object = None
    _answer_of: AnswerOf | None = None
    _pieces: list[str] | None = None
    _kept = 0
    _reader: PieceReader | None = None

    @property
    def answer(self) -> str | None:
        """The answer as given so far."""
        return "".join(self._pieces) if self._pieces else _text(self._answer)

    @answer.setter
    def answer(self, answer: object) -> None:
        self.set_answer(answer)

    def set_answer(self, answer: object) -> None:
        """Tell the answer, whole: a text, or a reply or structure that holds one."""
        self._answer = answer
        self._pieces = None

    @guarded
    def add_answer(self, piece: object) -> None:
        """Tell the next piece of a streamed answer: a text, or an event that holds one."""
        text = answer_in(piece)
        if text is None or self._content_filter is None:
            return
        if not self._streaming:
            self._streaming = True
            self._on_first_piece()
        # A character is at least a byte: past so many characters nothing more is kept.
        if text and self._kept <= self._content_filter.policy.kept_answer_chars:
            self._keep(text)

    def expect(self, media_type: str) -> None:
        """Note what kind of stream a decorated function returned."""
        self._reader = PieceReader(media_type)

    @guarded
    def take(self, piece: object) -> None:
        """Note a piece of what a decorated function streams."""
        if self._reader is None:
            self._reader = PieceReader()
        find = hook(self._answer_of, _ANSWER_OF)
        found = self._reader.text(piece) if find is None else find(piece)
        self.add_answer("" if found is None else found)

    @guarded
    def conclude(self, result: object) -> None:
        """Note what a decorated function returned."""
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
        """Note when a stream began."""

    def _answer_within(self, content_filter: ContentFilter) -> str | None:
        """Return the answer as it may be recorded."""
        if self._reader is not None and (rest := self._reader.rest()):
            self._keep(rest)
        answer = "".join(self._pieces) if self._pieces else _told(self._answer)
        return content_filter.text(answer, Part.ANSWER, content_filter.policy.max_answer_bytes)


@guarded
def _text(answer: object) -> str | None:
    return answer if isinstance(answer, str) else None


def _told(answer: object) -> str | None:
    """Return the text of an answer that the application told itself: a structure stands for itself."""
    if answer is None or type(answer) is str:
        return answer
    text = stated_answer(answer)
    if text is None:
        note_unread("answer", answer)
    return text
