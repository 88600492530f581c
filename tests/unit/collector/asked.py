"""Answers that come in one after the other, as values: for tests of what sampling makes of many."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.model import AttributeValue, RagRecord, Target
from ragtrace.traces.trace import Resource, Span, Trace
from ragtrace_collector.sampling import Decision, EarlierDecision, Sampler

_SECOND_NS = 10**9
HOUR_NS = 3600 * _SECOND_NS
START_NS = 480_000 * HOUR_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An answer, its trace, and when it is decided about."""

    trace: Trace
    record: RagRecord
    now_ns: int


def asked(
    number: int,
    *,
    tenant: str = "acme",
    session: str | None = None,
    at_s: float = 0.0,
    **attributes: AttributeValue,
) -> Asked:
    """Return an answer of a trace of its own."""
    trace_id = f"{number + 1:032x}"
    span = Span(
        trace_id=trace_id,
        span_id="00000000000000a1",
        parent_span_id=None,
        name="ask",
        start_ns=1,
        end_ns=2,
        attributes=attributes,
        resource=Resource(attributes={"ragtrace.tenant": tenant}),
    )
    target = Target(trace_id=trace_id, span_id=span.span_id, start_ns=1, end_ns=2)
    record = RagRecord(id=trace_id, question="?", chunks=(), answer="!", target=target, session_id=session)
    trace = Trace(trace_id=trace_id, spans=(span,))
    return Asked(trace=trace, record=record, now_ns=START_NS + int(at_s * _SECOND_NS))


def decide(sampler: Sampler, each: Asked, *, before: Decision | None = None) -> Decision:
    """Decide about an answer, for the first time or again."""
    known = {before.span_id: EarlierDecision(before.left_out or "", before.sample)} if before else {}
    (decision,) = sampler.decide(each.trace, [each.record], known=known, now_ns=each.now_ns)
    return decision
