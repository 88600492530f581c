"""Judged answers as turns of a session: what is kept of them, and earlier turns as material."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace import semconv
from ragtrace.answers.rows import from_json, to_json
from ragtrace.answers.summary import base_name
from ragtrace.model import (
    EarlierTurn,
    Evaluation,
    Label,
    MetricResult,
    RagRecord,
    VerdictLabel,
)

_MINUTE_NS: Final = 60 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How sessions are judged."""

    idle_ns: int = 30 * _MINUTE_NS
    """A session is over when it has had no turn for so long."""
    keep_ns: int = 24 * 60 * _MINUTE_NS
    """A turn that comes so long after the last one begins another session under the same id."""
    max_turns: int = 1_000
    """Beyond them the oldest go."""
    context_turns: int = 0
    """So many turns of other traces are shown to the judge when it words an answer's claims."""
    tenant: str = semconv.TENANT
    """The attribute that names the tenant."""


MOST_CHARS: Final = 4_000
"""Of a question, and of an answer."""
MOST_CLAIMS: Final = 50
_MOST_CLAIM_CHARS: Final = 1_000
_WRONG: Final = frozenset({VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED})
_CLAIM_METRICS: Final = ("faithfulness", "groundedness", "hallucination")
_FAITHFUL_METRICS: Final = ("faithfulness", "groundedness")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnClaim:
    """A claim of a turn, with its verdict by the turn's own context."""

    text: str
    label: VerdictLabel
    start: int | None = None
    """Where its sentences begin in the answer, in characters."""
    end: int | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether its context contradicts it or does not mention it."""
        return self.label in _WRONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One judged answer of a session."""

    trace_id: str
    span_id: str
    start_ns: int
    """When the judged span began: turns are in this order, whenever they come."""
    carrier_span_id: str
    question: str | None
    answer: str
    is_faithful: bool | None
    """``None`` if that is not known: skipped, failed or undecided."""
    claims: tuple[TurnClaim, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Which answer it is: trace and span."""
        return self.trace_id, self.span_id

    @property
    def has_text(self) -> bool:
        """Whether its texts are known; without them its outcome is."""
        return bool(self.answer)

    def without_text(self) -> Turn:
        """Return what is left of it once its texts are deleted."""
        return replace(self, question=None, answer="", claims=())

    def to_json(self) -> bytes:
        """Serialize the turn; `turn_of_json` reads it."""
        return to_json(self)


def turn_of_json(text: bytes) -> Turn:
    """Read a turn.

    Raises:
        InputError: it is none, or of another version of ragtrace.
    """
    return from_json(Turn, text)


def turn_of(record: RagRecord, evaluation: Evaluation, *, carrier_span_id: str) -> Turn | None:
    """Return an evaluated answer as a turn; ``None`` without a trace or an answer, as of an empty turn."""
    target, answer = record.target, (record.answer or "").strip()
    if target is None or not answer:
        return None
    by_claims = (each for name in _CLAIM_METRICS for each in _results(evaluation, name) if each.verdicts)
    result = next(by_claims, None)
    return Turn(
        trace_id=target.trace_id,
        span_id=target.span_id,
        start_ns=target.start_ns,
        carrier_span_id=carrier_span_id,
        question=(record.question or "")[:MOST_CHARS] or None,
        answer=(record.answer or "")[:MOST_CHARS],
        is_faithful=_is_faithful(evaluation),
        claims=tuple(
            TurnClaim(
                text=each.claim.text[:_MOST_CLAIM_CHARS],
                label=each.label,
                start=each.claim.start,
                end=each.claim.end,
            )
            for each in (result.verdicts if result else ())[:MOST_CLAIMS]
        ),
    )


def in_order(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns in the order of their time."""
    return sorted(turns, key=lambda turn: (turn.start_ns, turn.trace_id, turn.span_id))


def digest_of(turn: Turn, earlier: Sequence[Turn]) -> str:
    """Digest what a check of a turn against earlier ones depends on: claims, and earlier answers in order."""
    said = [[claim.text for claim in turn.claims], [[one.trace_id, one.answer] for one in earlier]]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _results(evaluation: Evaluation, name: str) -> list[MetricResult]:
    return [result for result in evaluation.results if base_name(result.metric) == name]


def _is_faithful(evaluation: Evaluation) -> bool | None:
    found = (result for name in _FAITHFUL_METRICS for result in _results(evaluation, name))
    decided = (result.label is Label.PASS for result in found if result.label in (Label.PASS, Label.FAIL))
    return next(decided, None)


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
