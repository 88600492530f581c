"""A judged answer as a turn to keep."""

from __future__ import annotations

from ragtrace import semconv
from ragtrace.conversations.judging import placed_turn
from ragtrace.model import Evaluation, RagRecord
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.store.port import Job, KeptTurn
from ragtrace_collector.store.trace_key import tenant_of


def kept_turn(
    job: Job, record: RagRecord, evaluation: Evaluation, carrier: Span, *, most_turns: int
) -> KeptTurn | None:
    """Return what to keep of an evaluated answer; ``None`` if it has no session or no answer."""
    tenant = tenant_of(job.trace_id) or job.tenant
    placed = placed_turn(record, evaluation, carrier, tenant=tenant)
    if placed is None:
        return None
    supersedes = carrier.attributes.get(semconv.EVAL_SUPERSEDES)
    turn = placed.turn
    return KeptTurn(
        name=placed.name,
        trace_id=turn.trace_id,
        span_id=turn.span_id,
        start_ns=turn.start_ns,
        carrier_span_id=turn.carrier_span_id,
        supersedes=supersedes if isinstance(supersedes, str) else "",
        turn=turn.to_json(),
        place=encode([placed.place]),
        most_turns=most_turns,
    )
