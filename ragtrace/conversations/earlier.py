"""Earlier turns of a session as material: what "it" and "there" mean in an answer of another trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ragtrace.conversations.settings import SessionSettings
from ragtrace.conversations.turns import Turn, in_order
from ragtrace.model import EarlierTurn, RagRecord


def wants_earlier_turns(record: RagRecord, settings: SessionSettings) -> bool:
    """Return whether turns of other traces are shown: not if the record's own prompt has the conversation."""
    return settings.context_turns > 0 and not record.earlier_turns and record.target is not None


def with_earlier_turns(record: RagRecord, turns: Iterable[Turn], settings: SessionSettings) -> RagRecord:
    """Return the record with the last turns before it, the oldest first.

    Only times count, not the order of ``turns``. Turns without texts, those from after the record, and those
    of an earlier session under the same id are left out.
    """
    if record.target is None:
        return record
    own = (record.target.start_ns, record.target.trace_id, record.target.span_id)
    before = [turn for turn in in_order(list(turns)) if (turn.start_ns, *turn.key) < own]
    shown: list[EarlierTurn] = []
    next_ns = own[0]
    for turn in reversed(before):
        if next_ns - turn.start_ns > settings.keep_ns or len(shown) == settings.context_turns:
            break
        next_ns = turn.start_ns
        if turn.has_text:
            shown.append(EarlierTurn.bounded(turn.question or None, turn.answer))
    return replace(record, earlier_turns=tuple(reversed(shown)))
