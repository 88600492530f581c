"""What the span of a session tells: its numbers and faults, without a text; and the texts apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ragtrace import semconv
from ragtrace.answers.summary import AnswerKey
from ragtrace.model import Label
from ragtrace.traces.carrier_table import Attributes, integer_of, text_of
from ragtrace.traces.trace import Span

_MOST: Final = 1_000_000
_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_SPAN_ID: Final = re.compile("[0-9a-f]{16}")
_LABELS: Final = frozenset((Label.PASS, Label.FAIL, Label.SKIPPED))


class FaultKind(StrEnum):
    """What a claim of a later turn has to do with an earlier one."""

    CONTRADICTION = "contradiction"
    REPEATED = "repeated"
    CORRECTION = "correction"
    """No fault: the earlier claim was wrong, and this one is supported."""


_KINDS: Final[Mapping[str, FaultKind]] = {
    semconv.SESSION_CONTRADICTION_EVENT: FaultKind.CONTRADICTION,
    semconv.SESSION_REPEATED_EVENT: FaultKind.REPEATED,
    semconv.SESSION_CORRECTION_EVENT: FaultKind.CORRECTION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFault:
    """A claim of a later turn, and the earlier turn that it has to do with."""

    kind: FaultKind
    turn: int
    """Its number, from 1."""
    answer: AnswerKey
    earlier_turn: int
    earlier: AnswerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A judged session, as its span tells it. It holds no text under judgment."""

    session: str
    tenant: str = ""
    trace_id: str
    """Of its last answer, as the next."""
    answer_span_id: str
    span_id: str
    """Of the session's span."""
    supersedes: str = ""
    time_ns: int
    """When its span ends; Unix time in nanoseconds."""
    label: Label
    turns: int
    decided: int
    faithful: int
    contradictions: int = 0
    repeated: int = 0
    corrections: int = 0
    unchecked: int = 0
    faults: tuple[SessionFault, ...] = ()
    """The latest of each kind first, as many as the span has."""

    @property
    def faithful_share(self) -> float | None:
        """Faithful / decided; ``None`` if none is decided."""
        return min(1.0, self.faithful / self.decided) if self.decided else None

    @property
    def last(self) -> AnswerKey:
        """The last answer."""
        return AnswerKey(self.trace_id, self.answer_span_id, self.tenant)


def session_summary_of(span: Span, *, tenant: str = "") -> SessionSummary | None:
    """Read the summary of a session from its span; ``None`` if it is no such span, or under no answer.

    Faults that name no answer are left out.
    ``tenant`` is by default that of the span's resource.
    """
    told = span.attributes
    session, label = text_of(told, semconv.SESSION_ID), text_of(told, semconv.SESSION_LABEL)
    if span.scope.name != semconv.SCOPE_EVALUATION or not session or not span.parent_span_id:
        return None
    if label is None or label not in _LABELS:
        return None
    owner = tenant or text_of(span.resource.attributes, semconv.TENANT) or ""
    return SessionSummary(
        session=session,
        tenant=owner,
        trace_id=span.trace_id,
        answer_span_id=span.parent_span_id,
        span_id=span.span_id,
        supersedes=text_of(told, semconv.SESSION_SUPERSEDES) or "",
        time_ns=span.end_ns,
        label=Label(label),
        turns=_count(told, semconv.SESSION_TURNS),
        decided=_count(told, semconv.SESSION_DECIDED),
        faithful=_count(told, semconv.SESSION_FAITHFUL),
        contradictions=_count(told, semconv.SESSION_CONTRADICTIONS),
        repeated=_count(told, semconv.SESSION_REPEATED),
        corrections=_count(told, semconv.SESSION_CORRECTIONS),
        unchecked=_count(told, semconv.SESSION_UNCHECKED),
        faults=tuple(fault for fault, _ in _faults(span, owner)),
    )


def fault_texts(span: Span, *, tenant: str = "") -> Mapping[SessionFault, tuple[tuple[str, str], ...]]:
    """Return claim and quote of each fault of a session's span, if it was written with content."""
    found: dict[SessionFault, tuple[tuple[str, str], ...]] = {}
    for fault, told in _faults(span, tenant):
        claim, quote = text_of(told, semconv.CLAIM_ASSERTION), text_of(told, semconv.CLAIM_QUOTE)
        if claim and quote:
            found[fault] = (*found.get(fault, ()), (claim, quote))
    return found


def _faults(span: Span, tenant: str) -> Iterator[tuple[SessionFault, Attributes]]:
    for event in span.events:
        kind, told = _KINDS.get(event.name), event.attributes
        answer = _key(told, semconv.SESSION_TURN_TRACE_ID, semconv.SESSION_TURN_SPAN_ID, tenant)
        earlier = _key(told, semconv.SESSION_EARLIER_TRACE_ID, semconv.SESSION_EARLIER_SPAN_ID, tenant)
        if kind is not None and answer is not None and earlier is not None:
            fault = SessionFault(
                kind=kind,
                turn=_count(told, semconv.SESSION_TURN),
                answer=answer,
                earlier_turn=_count(told, semconv.SESSION_EARLIER_TURN),
                earlier=earlier,
            )
            yield fault, told


def _key(told: Attributes, trace_id: str, span_id: str, tenant: str) -> AnswerKey | None:
    trace, span = text_of(told, trace_id) or "", text_of(told, span_id) or ""
    is_key = _TRACE_ID.fullmatch(trace) and _SPAN_ID.fullmatch(span)
    return AnswerKey(trace, span, tenant) if is_key else None


def _count(told: Attributes, key: str) -> int:
    return min(max(integer_of(told, key) or 0, 0), _MOST)
