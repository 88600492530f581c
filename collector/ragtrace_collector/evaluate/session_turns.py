"""A judged answer as a turn to keep."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final

from ragtrace import semconv
from ragtrace.conversations.span import SessionName
from ragtrace.conversations.turns import turn_of
from ragtrace.model import AttributeValue, Evaluation, RagRecord
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.store.port import Job, KeptTurn
from ragtrace_collector.store.trace_key import tenant_of

_LONGEST_ID: Final = 256
_DIGEST_CHARS: Final = 16


def kept_turn(
    job: Job, record: RagRecord, evaluation: Evaluation, carrier: Span, *, most_turns: int
) -> KeptTurn | None:
    """Return what to keep of an evaluated answer; ``None`` if it has no session or no answer."""
    session = record.session_id or record.conversation_id
    turn = turn_of(record, evaluation, carrier_span_id=carrier.span_id) if session else None
    if turn is None:
        return None
    supersedes = carrier.attributes.get(semconv.EVAL_SUPERSEDES)
    return KeptTurn(
        name=SessionName(session=bounded_id(session or ""), tenant=tenant_of(job.trace_id) or job.tenant),
        trace_id=turn.trace_id,
        span_id=turn.span_id,
        start_ns=turn.start_ns,
        carrier_span_id=turn.carrier_span_id,
        supersedes=supersedes if isinstance(supersedes, str) else "",
        turn=turn.to_json(),
        place=encode([_bare(carrier)]),
        most_turns=most_turns,
    )


def bounded_id(session: str) -> str:
    """Return an id of bounded length: a longer one ends with its digest."""
    if len(session) <= _LONGEST_ID:
        return session.encode("utf-8", "replace").decode()
    digest = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    return f"{session[: _LONGEST_ID - _DIGEST_CHARS - 1].encode('utf-8', 'replace').decode()}~{digest}"


def _bare(carrier: Span) -> Span:
    none: dict[str, AttributeValue] = {}
    return replace(carrier, attributes=none, events=(), links=())
