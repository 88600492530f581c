"""Conversations judged as a whole: the turns of a session, what they say against each other, and its span.

- A turn is *faithful* as its own metric faithfulness decided.
- A *contradiction* is a claim of which an earlier answer says the opposite. If the later claim is supported
  by its own context and the earlier one was wrong, it is a *correction*, and no fault.
- A claim is *repeated* if it was wrong in an earlier turn and is made again while its own context still does
  not support it: word for word, or as the judge's quote of the earlier answer shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from ragtrace import __version__, semconv
from ragtrace.answers.carrier import is_carrier, read_carrier
from ragtrace.answers.rows import from_json, to_json
from ragtrace.answers.summary import base_name
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    AttributeValue,
    Chunk,
    Claim,
    EarlierTurn,
    Evaluation,
    Label,
    MetricResult,
    RagRecord,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.pipeline import Evaluator
from ragtrace.traces.attach import AttachOptions, tenant_of
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, cut_utf8

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLink:
    """What a claim of a later turn has to do with an earlier turn."""

    claim: int
    """Its place among the claims of the later turn."""
    trace_id: str
    """Of the earlier turn."""
    span_id: str
    quote: str
    """What the earlier answer says, word for word."""
    is_conflict: bool
    """It says the opposite; else it says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCheck:
    """The reply about one turn."""

    links: tuple[TurnLink, ...]
    usage: Usage = field(default_factory=Usage)

    def to_json(self) -> bytes:
        """Serialize the links; `check_of_json` reads them."""
        return to_json(replace(self, usage=Usage()))


def check_of_json(text: bytes) -> TurnCheck:
    """Read the links of a check.

    Raises:
        InputError: it is none, or of another version of ragtrace.
    """
    return from_json(TurnCheck, text)


async def check_turn(turn: Turn, earlier: Sequence[Turn], evaluator: Evaluator) -> TurnCheck:
    """Ask which claims of a turn the earlier answers contradict, and which they make too.

    It is the step ``verify`` of faithfulness, with the earlier answers in place of chunks: quotes are
    checked, and a chunk that does not exist is refused. A verdict without a checked quote is no link. Without
    a claim or an earlier answer nobody is asked.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    if not turn.claims or not earlier:
        return TurnCheck(links=())
    chunks = tuple(Chunk(id=str(place), text=one.answer, rank=place) for place, one in enumerate(earlier))
    record = RagRecord(id=turn.span_id, question=turn.question, chunks=chunks, answer=turn.answer)
    steps = StepSession(
        record,
        evaluator.judge,
        prompts=evaluator.prompts,
        limits=evaluator.limits,
        second_judge=evaluator.second_judge,
    )
    await steps.take_claims(
        [
            Claim(index=index, text=claim.text, start=claim.start, end=claim.end)
            for index, claim in enumerate(turn.claims)
        ]
    )
    verdicts = (await steps.verify()).verdicts
    return TurnCheck(
        links=tuple(_link(verdict, earlier) for verdict in verdicts if _is_link(verdict)), usage=steps.usage
    )


def _is_link(verdict: Verdict) -> bool:
    is_about_it = verdict.label in (VerdictLabel.CONTRADICTED, VerdictLabel.SUPPORTED)
    return is_about_it and bool(verdict.chunk_ids) and bool(verdict.quote)


def _link(verdict: Verdict, earlier: Sequence[Turn]) -> TurnLink:
    named = earlier[int(verdict.chunk_ids[0])]
    return TurnLink(
        claim=verdict.claim.index,
        trace_id=named.trace_id,
        span_id=named.span_id,
        quote=verdict.quote or "",
        is_conflict=verdict.label is VerdictLabel.CONTRADICTED,
    )


_NOT_WORDS: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFault:
    """A claim of a later turn, and what it has to do with an earlier one."""

    later: Turn
    claim: int
    """Its place among the claims of the later turn."""
    earlier: Turn
    quote: str
    """What the earlier answer says."""

    @property
    def text(self) -> str:
        """The claim."""
        return self.later.claims[self.claim].text


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFindings:
    """A session in numbers, with the evidence."""

    turns: tuple[Turn, ...]
    """In order."""
    contradictions: tuple[TurnFault, ...] = ()
    corrections: tuple[TurnFault, ...] = ()
    repeated: tuple[TurnFault, ...] = ()
    unchecked: int = 0
    """Turns that could not be checked against earlier ones: their contradictions are not known."""
    usage: Usage = field(default_factory=Usage)
    """Of the judge, for the checks that were made for this."""

    @property
    def faithful(self) -> int:
        """Turns whose answers are faithful."""
        return sum(turn.is_faithful is True for turn in self.turns)

    @property
    def decided(self) -> int:
        """Turns of which faithfulness is known."""
        return sum(turn.is_faithful is not None for turn in self.turns)

    @property
    def faithful_share(self) -> float | None:
        """Faithful turns / decided turns; ``None`` if none is decided."""
        return self.faithful / self.decided if self.decided else None

    @property
    def label(self) -> Label:
        """Fail with a fault; pass if all is decided and checked without one; else skipped."""
        if self.faithful < self.decided or self.contradictions or self.repeated:
            return Label.FAIL
        is_known = self.decided == len(self.turns) and not self.unchecked
        return Label.PASS if is_known and self.turns else Label.SKIPPED


def findings_of(turns: Sequence[Turn], checks: Mapping[tuple[str, str], TurnCheck | None]) -> SessionFindings:
    """Put a session together. Checks are by trace and span of the later turn; ``None`` is a failed one.

    The order of the turns does not matter, only their times.
    """
    ordered = in_order(turns)
    by_key = {turn.key: turn for turn in ordered}
    place = {key: number for number, key in enumerate(by_key)}
    conflicts: list[TurnFault] = []
    corrections: list[TurnFault] = []
    repeated: list[TurnFault] = []
    for key, turn in by_key.items():
        check = checks.get(key)
        found = [
            (link, by_key[link.trace_id, link.span_id])
            for link in (check.links if check else ())
            if place.get((link.trace_id, link.span_id), len(place)) < place[key]
            and link.claim < len(turn.claims)
        ]
        for link, earlier in found:
            if link.is_conflict:
                fault = TurnFault(later=turn, claim=link.claim, earlier=earlier, quote=link.quote)
                (corrections if _corrects(turn, earlier, link) else conflicts).append(fault)
        repeated += _repeated(turn, ordered[: place[key]], found)
    return SessionFindings(
        turns=tuple(ordered),
        contradictions=tuple(conflicts),
        corrections=tuple(corrections),
        repeated=tuple(repeated),
        unchecked=sum(key in checks and checks[key] is None for key in by_key),
        usage=sum((check.usage for check in checks.values() if check), Usage()),
    )


def _corrects(turn: Turn, earlier: Turn, link: TurnLink) -> bool:
    is_supported = turn.claims[link.claim].label is VerdictLabel.SUPPORTED
    return is_supported and any(claim.is_wrong for claim in _quoted(earlier, link.quote))


def _repeated(
    turn: Turn, before: Sequence[Turn], links: Sequence[tuple[TurnLink, Turn]]
) -> Iterator[TurnFault]:
    """Yield each wrong claim that was wrong before, with the last turn that made it."""
    wrong = {
        _bare_words(claim.text): (one, claim) for one in before for claim in one.claims if claim.is_wrong
    }
    same = {link.claim: (link, earlier) for link, earlier in links if not link.is_conflict}
    for number, claim in enumerate(turn.claims):
        if claim.label is VerdictLabel.SUPPORTED:
            continue
        said = wrong.get(_bare_words(claim.text))
        link, earlier = same.get(number, (None, None))
        if said is not None:
            yield TurnFault(later=turn, claim=number, earlier=said[0], quote=said[1].text)
        elif link and earlier and any(one.is_wrong for one in _quoted(earlier, link.quote)):
            yield TurnFault(later=turn, claim=number, earlier=earlier, quote=link.quote)


def _quoted(turn: Turn, quote: str) -> list[TurnClaim]:
    """Return the claims of a turn in whose sentences a quote is."""
    start = turn.answer.find(quote)
    if start < 0:
        return []
    end = start + len(quote)
    return [
        claim
        for claim in turn.claims
        if claim.start is not None and claim.end is not None and claim.start < end and start < claim.end
    ]


def _bare_words(text: str) -> str:
    return _NOT_WORDS.sub(" ", text).strip().casefold()


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
    span_id = span_id_of(name, findings.turns, unchecked=findings.unchecked)
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
    for faults, one, several in (
        (findings.contradictions, "contradiction between turns", "contradictions between turns"),
        (findings.repeated, "repeated wrong claim", "repeated wrong claims"),
        (findings.corrections, "correction", "corrections"),
    ):
        if faults:
            parts.append(f"{len(faults)} {one if len(faults) == 1 else several}")
    if findings.unchecked:
        parts.append(f"{findings.unchecked} not checked against earlier turns")
    return ", ".join(parts)


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
    return PlacedTurn(name=name, turn=turn, place=_place_of(carrier)) if name and turn else None


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


def _place_of(carrier: Span) -> Span:
    none: dict[str, AttributeValue] = {}
    return replace(carrier, attributes=none, events=(), links=())
