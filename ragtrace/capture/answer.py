"""Text that arrives whole or in pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ragtrace.capture.guard import guarded

__all__ = ["AnswerOf", "AnswerText", "answer_in"]

AnswerOf = Callable[[object], str | None]
"""Finds the answer's text in what a function returned, or the next piece of it in what it yielded."""


class AnswerText:
    """An answer under construction, of which no more is kept than may be recorded."""

    __slots__ = ("_kept", "_pieces", "_whole")

    def __init__(self) -> None:
        self._whole: object = None
        self._pieces: list[str] = []
        self._kept = 0

    def set(self, text: object) -> None:
        """Take the whole answer; it replaces what came before."""
        self._whole = text
        self._pieces.clear()

    def add(self, piece: str, limit: int) -> None:
        """Append a piece. A character is at least a byte: past ``limit`` characters nothing more is kept."""
        if piece and self._kept <= limit:
            self._pieces.append(piece)
            self._kept += len(piece)

    def value(self) -> object:
        """Return the answer, or ``None`` where there was none."""
        return "".join(self._pieces) if self._pieces else self._whole


@guarded
def answer_in(result: object, answer_of: AnswerOf | None) -> str | None:
    """Return the text in a result: by the hook, or a string itself, or what a mapping holds as ``answer``."""
    found = answer_of(result) if answer_of is not None else result
    if isinstance(found, Mapping):
        found = found.get("answer")
    return found if isinstance(found, str) else None
