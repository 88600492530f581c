"""An answer in its session: the turns before it as material, and itself as a turn to keep."""

from __future__ import annotations

from ragtrace import semconv
from ragtrace.conversations.judging import placed_turn, session_of
from ragtrace.conversations.turns import turn_of_json, wants_earlier_turns, with_earlier_turns
from ragtrace.model import Evaluation, RagRecord
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.store.records import Job, KeptTurn
from ragtrace_collector.store.sessions import SessionTurns
from ragtrace_collector.store.trace_key import tenant_of


async def in_its_session(
    record: RagRecord, job: Job, config: CollectorConfig, store: SessionTurns
) -> RagRecord:
    """Return the record with the turns before it that the store knows, if `sessions.context_turns` asks so.

    Raises:
        StoreUnavailable: they could not be read.
    """
    settings = config.sessions.opened(tenant=config.sample.tenant)
    name = session_of(record, tenant=_tenant_of(job))
    if name is None or record.target is None or not wants_earlier_turns(record, settings):
        return record
    found = await store.before(
        name,
        start_ns=record.target.start_ns,
        trace_id=record.target.trace_id,
        span_id=record.target.span_id,
        limit=settings.context_turns,
    )
    return with_earlier_turns(record, map(turn_of_json, found), settings)


def kept_turn(job: Job, record: RagRecord, evaluation: Evaluation, carrier: Span) -> KeptTurn | None:
    """Return what to keep of an evaluated answer; ``None`` if it has no session or no answer."""
    placed = placed_turn(record, evaluation, carrier, tenant=_tenant_of(job))
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
    )


def _tenant_of(job: Job) -> str:
    return tenant_of(job.trace_id) or job.tenant
