"""Judge a session, live or in back-fill, and write it as a span under its last judged answer."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from ragtrace import __version__, semconv
from ragtrace.answers.carrier import is_carrier, read_carrier
from ragtrace.conversations.findings import SessionFindings, TurnCheck, TurnFault, findings_of
from ragtrace.conversations.turns import Turn, in_order, turn_of
from ragtrace.model import AttributeValue, Evaluation, RagRecord
from ragtrace.traces.attach import AttachOptions, tenant_of
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, cut_utf8

_MOST_EVENTS: Final = 50
_LENGTH_NS: Final = 1_000_000
_EARLIER_TURNS: Final = 20
"""So many turns before it are what a turn is checked against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionName:
    """Which session: the same id of two tenants is two sessions."""

    session: str
    tenant: str = ""


def session_span(
    findings: SessionFindings,
    name: SessionName,
    *,
    last: Span,
    options: AttachOptions,
    now_ns: int,
    supersedes: str = "",
) -> Span:
    """Build the span of a session.

    ``last`` is the carrier of the last turn: the span gets its trace, parent and resource. The same turns
    with the same evaluations give the same span id, so that a re-send is the same span.
    """
    start_ns, end_ns = last.start_ns, last.end_ns
    if options.is_dated_now(end_ns, now_ns=now_ns):
        start_ns, end_ns = now_ns - _LENGTH_NS, now_ns
    span_id = session_span_id(findings, name)
    return Span(
        trace_id=last.trace_id,
        span_id=span_id,
        parent_span_id=last.parent_span_id,
        name=f"{semconv.SESSION_SPAN} {findings.label.value}",
        kind=SpanKind.INTERNAL,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=_attributes(findings, name, "" if supersedes == span_id else supersedes),
        events=tuple(islice(_events(findings, content=options.content, time_ns=end_ns), _MOST_EVENTS)),
        links=tuple(_links(findings, last)),
        flags=last.flags,
        trace_state=last.trace_state,
        resource=last.resource,
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=__version__),
    )


def session_span_id(findings: SessionFindings, name: SessionName) -> str:
    """Return the id of the span: of the session, and of the evaluations of its turns."""
    return span_id_of(name, findings.turns, unchecked=findings.unchecked)


def span_id_of(name: SessionName, turns: Iterable[Turn], *, unchecked: int) -> str:
    """Return the id that the span of these turns has, if so many of them could not be checked."""
    carriers = sorted(turn.carrier_span_id for turn in turns)
    told = "|".join(("session", name.tenant, name.session, str(unchecked), *carriers))
    return hashlib.sha256(told.encode("utf-8", "replace")).digest()[:8].hex()


def _links(findings: SessionFindings, last: Span) -> Iterator[SpanLink]:
    faults = (*findings.contradictions, *findings.repeated)
    linked = {(turn.trace_id, turn.span_id) for fault in faults for turn in (fault.earlier, fault.later)}
    for trace_id, span_id in sorted(linked)[:_MOST_EVENTS]:
        is_parent = (trace_id, span_id) == (last.trace_id, last.parent_span_id)
        yield SpanLink(
            trace_id=trace_id, span_id=span_id, attributes=semconv.LINK_TO_PARENT if is_parent else {}
        )


def _attributes(findings: SessionFindings, name: SessionName, supersedes: str) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue | None] = {
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.SESSION_ID: cut_utf8(name.session, semconv.SAFE_STRING_BYTES),
        semconv.SESSION_LABEL: findings.label.value,
        semconv.SESSION_TURNS: len(findings.turns),
        semconv.SESSION_DECIDED: findings.decided,
        semconv.SESSION_FAITHFUL: findings.faithful,
        semconv.SESSION_FAITHFUL_SHARE: findings.faithful_share,
        semconv.SESSION_CONTRADICTIONS: len(findings.contradictions),
        semconv.SESSION_CORRECTIONS: len(findings.corrections),
        semconv.SESSION_REPEATED: len(findings.repeated),
        semconv.SESSION_UNCHECKED: findings.unchecked,
        semconv.SESSION_SUPERSEDES: supersedes or None,
        semconv.JUDGE_CALLS: findings.usage.calls,
        semconv.JUDGE_INPUT_TOKENS: findings.usage.input_tokens,
        semconv.JUDGE_OUTPUT_TOKENS: findings.usage.output_tokens,
    }
    return {key: value for key, value in found.items() if value is not None}


def _events(findings: SessionFindings, *, content: bool, time_ns: int) -> Iterator[SpanEvent]:
    told: dict[str, AttributeValue] = {
        semconv.EVALUATION_NAME: semconv.SESSION_METRIC,
        semconv.EVALUATION_LABEL: findings.label.value,
        semconv.EVALUATION_EXPLANATION: explanation(findings),
    }
    if findings.faithful_share is not None:
        told[semconv.EVALUATION_SCORE] = findings.faithful_share
    yield SpanEvent(name=semconv.EVALUATION_RESULT, time_ns=time_ns, attributes=told)
    numbers = {(turn.trace_id, turn.span_id): number for number, turn in enumerate(findings.turns, start=1)}
    for event, faults in (
        (semconv.SESSION_CONTRADICTION_EVENT, findings.contradictions),
        (semconv.SESSION_REPEATED_EVENT, findings.repeated),
        (semconv.SESSION_CORRECTION_EVENT, findings.corrections),
    ):
        for fault in faults[::-1]:
            attributes = dict(_about(fault, numbers, content=content))
            yield SpanEvent(name=event, time_ns=time_ns, attributes=attributes)


def _about(
    fault: TurnFault, numbers: dict[tuple[str, str], int], *, content: bool
) -> Iterator[tuple[str, AttributeValue]]:
    later, earlier = fault.later, fault.earlier
    yield semconv.SESSION_TURN, numbers[later.trace_id, later.span_id]
    yield semconv.SESSION_TURN_TRACE_ID, later.trace_id
    yield semconv.SESSION_TURN_SPAN_ID, later.span_id
    yield semconv.SESSION_EARLIER_TURN, numbers[earlier.trace_id, earlier.span_id]
    yield semconv.SESSION_EARLIER_TRACE_ID, earlier.trace_id
    yield semconv.SESSION_EARLIER_SPAN_ID, earlier.span_id
    if content:
        yield semconv.CLAIM_ASSERTION, cut_utf8(fault.text, semconv.SAFE_STRING_BYTES)
        yield semconv.CLAIM_QUOTE, cut_utf8(fault.quote, semconv.SAFE_STRING_BYTES)


def explanation(findings: SessionFindings) -> str:
    """Say what a session comes to, in one line without content."""
    parts = [f"{findings.faithful} of {findings.decided} decided answers are faithful"]
    if undecided := len(findings.turns) - findings.decided:
        parts.append(f"{undecided} undecided")
    for faults, noun in (
        (findings.contradictions, "contradiction between turns"),
        (findings.repeated, "repeated wrong claim"),
        (findings.corrections, "correction"),
    ):
        if faults:
            parts.append(f"{len(faults)} {noun if len(faults) == 1 else _plural(noun)}")
    if findings.unchecked:
        parts.append(f"{findings.unchecked} not checked against earlier turns")
    return ", ".join(parts)


def _plural(noun: str) -> str:
    first, _, rest = noun.partition(" ")
    return f"{first}s {rest}" if first == "contradiction" else f"{noun}s"


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


async def judge_session(turns: Sequence[Turn], ask: AskTurn) -> SessionFindings:
    """Put a session together, and have each of its turns checked against those before it.

    The order of the turns does not matter, only their times. A turn whose texts are deleted counts as not
    checked. What ``ask`` raises ends it.
    """
    ordered = in_order(turns)
    checks: dict[tuple[str, str], TurnCheck | None] = {}
    for number, turn in enumerate(ordered):
        before = ordered[max(0, number - _EARLIER_TURNS) : number]
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
