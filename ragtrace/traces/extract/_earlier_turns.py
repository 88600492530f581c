"""Read the conversation before a question from the prompt that the model was given."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.model import EarlierTurn
from ragtrace.traces.extract._calls import Call
from ragtrace.traces.extract._content import clean, text_damage
from ragtrace.traces.extract._messages import ChatTurn, turns_of
from ragtrace.traces.extract._prompt_context import prompt_of
from ragtrace.traces.extract._prompts import asked_in
from ragtrace.traces.extract._span_reader import SpanReading


def earlier_turns(call: Call, generation: SpanReading | None, *, most: int) -> tuple[EarlierTurn, ...]:
    """Return the last turns before the question, the oldest first; redacted ones are left out."""
    _, prompt = prompt_of(call, generation) if most else (None, None)
    if prompt is None:
        return ()
    spoken = [turn for turn in turns_of(prompt.value or ()) if turn.role != "system"]
    last = max((place for place, turn in enumerate(spoken) if turn.role == "user"), default=0)
    return tuple(_pairs(spoken[:last]))[-most:]


def _pairs(spoken: Sequence[ChatTurn]) -> list[EarlierTurn]:
    found: list[EarlierTurn] = []
    question: str | None = None
    for turn in spoken:
        text = turn.text.strip()
        if not text or text_damage(text, ""):
            continue
        if turn.role == "user":
            question = clean(asked_in(text) or text)
        else:
            found.append(EarlierTurn.bounded(question, clean(text)))
            question = None
    return found
