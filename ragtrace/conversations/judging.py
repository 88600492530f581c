"""Judge a session: live traffic and back-fill take its turns and put it together here."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace import semconv
from ragtrace.answers.carrier import is_carrier, read_carrier
from ragtrace.conversations.checking import TurnCheck
from ragtrace.conversations.findings import SessionFindings, findings_of
from ragtrace.conversations.settings import SessionSettings
from ragtrace.conversations.span import SessionName
from ragtrace.conversations.turns import Turn, in_order, turn_of
from ragtrace.model import AttributeValue, Evaluation, RagRecord
from ragtrace.traces.attach import tenant_of
from ragtrace.traces.trace import Resource, Span

AskTurn = Callable[[Turn, Sequence[Turn]], Awaitable[TurnCheck | None]]
"""Checks a turn against earlier ones; ``None`` if that could not be done."""

_LONGEST_ID: Final = 256
_DIGEST_CHARS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTurn:
    """A judged answer as a turn of its session, and the place of its carrier in its trace."""

    name: SessionName
    turn: Turn
    place: Span
    """The carrier without attributes and events: where a session's span goes."""


def session_of(record: RagRecord, *, tenant: str) -> SessionName | None:
    """Return the session that a record names; the tenant of its application comes before ``tenant``."""
    session = record.session_id or record.conversation_id
    if not session:
        return None
    own = tenant_of(record.target) if record.target else ""
    return SessionName(session=bounded_id(session), tenant=own or tenant)


def placed_turn(
    record: RagRecord, evaluation: Evaluation, carrier: Span, *, tenant: str
) -> PlacedTurn | None:
    """Return an evaluated answer as a turn; ``None`` if it names no session or has no answer."""
    name = session_of(record, tenant=tenant)
    turn = turn_of(record, evaluation, carrier_span_id=carrier.span_id) if name else None
    return PlacedTurn(name=name, turn=turn, place=_bare(carrier)) if name and turn else None


def turn_on_carrier(record: RagRecord, carriers: Sequence[Span], *, tenant: str) -> PlacedTurn | None:
    """Read a turn from the valid carrier of an answer; ``None`` if there is none, or no session.

    A carrier without content gives a turn without texts. Claims beyond `AttachOptions.max_claims` are not on
    it.
    """
    carrier = _valid(carriers)
    if carrier is None:
        return None
    evaluation = read_carrier(carrier, record).judged.evaluation
    placed = placed_turn(record, evaluation, carrier, tenant=tenant)
    if placed is None or all(claim.text for claim in placed.turn.claims):
        return placed
    return replace(placed, turn=placed.turn.without_text())


def undecided_turn(record: RagRecord, carrier_span_id: str, *, tenant: str) -> PlacedTurn | None:
    """Return an answer whose verdict cannot be read as a turn of which nothing else is known."""
    name, target = session_of(record, tenant=tenant), record.target
    if name is None or target is None or not (record.answer or "").strip():
        return None
    turn = Turn(
        trace_id=target.trace_id,
        span_id=target.span_id,
        start_ns=target.start_ns,
        carrier_span_id=carrier_span_id,
        question=None,
        answer="",
        is_faithful=None,
    )
    place = Span(
        trace_id=target.trace_id,
        span_id=carrier_span_id,
        parent_span_id=target.span_id,
        name=semconv.CARRIER_NAME_PREFIX,
        start_ns=target.start_ns,
        end_ns=target.end_ns,
        flags=target.trace_flags,
        trace_state=target.trace_state,
        resource=Resource(attributes=target.resource, schema_url=target.resource_schema_url),
    )
    return PlacedTurn(name=name, turn=turn, place=place)


async def judge_session(turns: Sequence[Turn], ask: AskTurn, settings: SessionSettings) -> SessionFindings:
    """Put a session together, and have each of its turns checked against those before it.

    The order of the turns does not matter, only their times. A turn whose texts are deleted counts as not
    checked. What ``ask`` raises ends it.
    """
    ordered = in_order(turns)
    checks: dict[tuple[str, str], TurnCheck | None] = {}
    for number, turn in enumerate(ordered):
        before = ordered[max(0, number - settings.earlier_turns) : number]
        earlier = [one for one in before if one.has_text]
        if not turn.has_text:
            checks[turn.key] = None
        elif turn.claims and earlier:
            checks[turn.key] = await ask(turn, earlier)
    return findings_of(ordered, checks)


def bounded_id(session: str) -> str:
    """Return an id of bounded length: a longer one ends with its digest."""
    if len(session) <= _LONGEST_ID:
        return session.encode("utf-8", "replace").decode()
    digest = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    return f"{session[: _LONGEST_ID - _DIGEST_CHARS - 1].encode('utf-8', 'replace').decode()}~{digest}"


def _valid(carriers: Sequence[Span]) -> Span | None:
    evaluations = [span for span in carriers if is_carrier(span) and not _is_of_session(span)]
    replaced = {span.attributes.get(semconv.EVAL_SUPERSEDES) for span in evaluations}
    latest = [span for span in evaluations if span.span_id not in replaced]
    return max(latest, key=lambda span: str(span.attributes.get(semconv.EVAL_STARTED_AT, "")), default=None)


def _is_of_session(span: Span) -> bool:
    """Return whether it tells of a session; back ends that keep scores leave only the name of its metric."""
    named = {event.attributes.get(semconv.EVALUATION_NAME) for event in span.events}
    return semconv.SESSION_LABEL in span.attributes or semconv.SESSION_METRIC in named


def _bare(carrier: Span) -> Span:
    none: dict[str, AttributeValue] = {}
    return replace(carrier, attributes=none, events=(), links=())
