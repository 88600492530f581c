"""Parts of an answer's page: folded passages, two evaluations compared, and the spans of its trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from ragtrace import semconv
from ragtrace.answers.carrier import is_carrier, is_held
from ragtrace.answers.port import OpenedAnswer
from ragtrace.answers.shown import MarkedText, ShownClaim, shown_answer
from ragtrace.model import (
    Direction,
    Evaluation,
    JudgedAnswer,
    Label,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    VerdictLabel,
)
from ragtrace.traces.trace import Lineage, Span, StatusCode, Trace

_MOST_MARKED: Final = 4_000
"""Shown characters of a marked passage; an unmarked one is folded from 2,000 on."""
_MOST_HIDDEN: Final = 1_000_000
"""Characters of a fold that are on the page at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldablePassages:
    """A text with its beginning shown, and the rest below a fold."""

    first: tuple[MarkedText, ...]
    rest: tuple[MarkedText, ...]
    rest_characters: int
    rest_claims: int
    """Claims that begin in the rest."""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read."""
        return not any(passage.text.strip() for passage in (*self.first, *self.rest))


def fold(pieces: Iterable[MarkedText], *, shown: int) -> FoldablePassages:
    """Fold a marked text after about ``shown`` characters, between two passages."""
    passages = tuple(_passages(pieces))
    end, room = 0, shown
    while end < len(passages) and (end == 0 or room > 0):
        room -= len(passages[end].text)
        end += 1
    rest = passages[end:]
    return FoldablePassages(
        first=passages[:end],
        rest=rest,
        rest_characters=sum(len(passage.text) + passage.left_out for passage in rest),
        rest_claims=len({number for passage in rest for number in passage.starts}),
    )


def _passages(pieces: Iterable[MarkedText]) -> Iterator[MarkedText]:
    begun: set[int] = set()
    for piece in pieces:
        for part in _parts(piece):
            starts = tuple(number for number in part.numbers if number not in begun)
            begun.update(starts)
            yield part._replace(starts=starts, hidden=part.hidden[:_MOST_HIDDEN])


def _parts(piece: MarkedText) -> Sequence[MarkedText]:
    """Part a long marked passage: its beginning, and its end with what is between in a fold."""
    half = _MOST_MARKED // 2
    if piece.label is None or len(piece.text) <= _MOST_MARKED:
        return [piece]
    hidden = piece.text[half:-half]
    return [
        piece._replace(text=piece.text[:half], ends=()),
        piece._replace(text=piece.text[-half:], hidden=hidden, left_out=len(hidden)),
    ]


MOST_CHANGES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """One metric in both."""

    metric: str
    before: float | None
    after: float | None
    label_before: Label | None
    """``None`` if the metric did not run."""
    label_after: Label | None
    is_lower_better: bool

    @property
    def is_better(self) -> bool:
        """Whether the score changed for the better."""
        return self.delta is not None and (self.delta < 0) == self.is_lower_better

    @property
    def delta(self) -> float | None:
        """By how much the score changed; ``None`` if one has none."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChange:
    """A claim that is not the same in both."""

    text: str
    before: VerdictLabel | None
    """``None`` if it is only in the later one."""
    after: VerdictLabel | None
    reason: str
    """Of the later verdict, or of the earlier one if there is no later."""


class VersionDifference:
    """What changed from one evaluation of an answer to another. Claims are matched by their text."""

    def __init__(self, before: JudgedAnswer, after: JudgedAnswer) -> None:
        earlier, later = _claims(before), _claims(after)
        changes = list(_changes(earlier, later))
        first, second = before.evaluation, after.evaluation
        self.scores = tuple(_scores(first, second))
        self.claims = changes[:MOST_CHANGES]
        self.more_claims = max(len(changes) - MOST_CHANGES, 0)
        """Changes that are not shown."""
        self.unchanged = sum(_label(later.get(key)) == _label(claim) for key, claim in earlier.items())
        """Claims with the same verdict in both."""
        self.evaluator_changed = first.evaluator_version != second.evaluator_version
        self.input_changed = first.input_sha256 != second.input_sha256


_ClaimKey: TypeAlias = tuple[str, str, int]


def _claims(judged: JudgedAnswer) -> Mapping[_ClaimKey, ShownClaim]:
    shown = shown_answer(judged)
    found: dict[_ClaimKey, ShownClaim] = {}
    repetitions: dict[tuple[str, str], int] = {}
    for claim in (*shown.claims, *shown.of_reference, *shown.criteria):
        key = (claim.verdict.claim.kind, " ".join(claim.verdict.claim.text.split()))
        repetitions[key] = repetitions.get(key, -1) + 1
        found[*key, repetitions[key]] = claim
    return found


def _changes(
    earlier: Mapping[_ClaimKey, ShownClaim], later: Mapping[_ClaimKey, ShownClaim]
) -> Iterator[ClaimChange]:
    for key in dict.fromkeys((*later, *earlier)):
        before, after = earlier.get(key), later.get(key)
        told = after or before
        if told is None or _label(before) == _label(after):
            continue
        yield ClaimChange(
            text=told.verdict.claim.text,
            before=_label(before),
            after=_label(after),
            reason=told.verdict.reason or "",
        )


def _label(claim: ShownClaim | None) -> VerdictLabel | None:
    return claim.verdict.label if claim else None


def _scores(first: Evaluation, second: Evaluation) -> Iterator[ScoreChange]:
    earlier, later = _by_metric(first), _by_metric(second)
    for name in dict.fromkeys((*later, *earlier)):
        before, after = earlier.get(name), later.get(name)
        yield ScoreChange(
            metric=name[0] if name[1] == "ragtrace" else f"{name[0]} ({name[1]})",
            before=_score(before),
            after=_score(after),
            label_before=before.label if before else None,
            label_after=after.label if after else None,
            is_lower_better=isinstance(after, MetricResult) and after.direction is Direction.LOWER_IS_BETTER,
        )


def _by_metric(evaluation: Evaluation) -> Mapping[tuple[str, str], MetricOutcome]:
    return {(outcome.metric, outcome.profile): outcome for outcome in evaluation.outcomes}


def _score(outcome: MetricOutcome | None) -> float | None:
    return outcome.score if isinstance(outcome, MetricResult) else None


MOST_SPANS: Final = 200
WIDTH: Final = 1_000
"""Units of the picture from the first start to the last end."""
_DEEPEST: Final = 8
_FEW: Final = 15
_NARROWEST: Final = 4
_OF_PEOPLE: Final = (semconv.FEEDBACK_PREFIX, semconv.REVIEW_PREFIX)


class SpanRole(StrEnum):
    """What a span is for this answer."""

    ANSWER = "judged answer"
    RETRIEVAL = "retrieval"
    GENERATION = "generation"
    EVALUATION = "evaluation"
    FEEDBACK = "feedback"


class TimelineSpan:
    """A row of the waterfall."""

    def __init__(self, span: Span, depth: int, role: SpanRole | None, start_ns: int, whole_ns: int) -> None:
        """``depth`` is its levels below the root, 8 at most; the picture is ``whole_ns`` long."""
        service = span.resource.attributes.get(semconv.SERVICE_NAME)
        self.span, self.depth, self.role = span, depth, role
        self.service = service if isinstance(service, str) else ""
        self.since_start_ns = span.start_ns - start_ns
        self.length_ns = max(span.end_ns - span.start_ns, 0)
        self.is_error = _is_error(span)
        self.is_outside = not 0 <= self.since_start_ns <= whole_ns
        """It was written before or after the time of the picture: an evaluation can be a day later."""
        self.x = min(max(WIDTH * self.since_start_ns // whole_ns, 0), WIDTH - _NARROWEST)
        width = max(WIDTH * self.length_ns // whole_ns, _NARROWEST)
        self.width = _NARROWEST if self.is_outside else min(width, WIDTH - self.x)

    @property
    def css(self) -> str:
        """The class of its bar."""
        return "error" if self.is_error else self.role.name.lower() if self.role else "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A trace as people look at it."""

    spans: tuple[TimelineSpan, ...]
    first: tuple[TimelineSpan, ...]
    """What to show without a click: all if there are few, else those with a role or an error."""
    more: int
    """Spans that are not shown."""
    length_ns: int
    errors: int


def timeline_of(opened: OpenedAnswer) -> Timeline | None:
    """Return the waterfall of the answer's trace; ``None`` without spans."""
    trace = opened.trace
    if trace is None or not trace.spans:
        return None
    roles = _roles(opened, trace)
    start_ns, end_ns = _range(trace, roles)
    shown = _most_telling(trace, roles, opened.key.span_id)
    rows = tuple(
        TimelineSpan(span, depth, roles.get(span.span_id), start_ns, max(end_ns - start_ns, 1))
        for span, depth in _in_order(trace)
        if span.span_id in shown
    )
    telling = tuple(row for row in rows if row.role or row.is_error or row.depth == 0)
    return Timeline(
        spans=rows,
        first=rows if len(rows) <= _FEW else telling[:_FEW],
        more=len(trace.spans) - len(rows),
        length_ns=end_ns - start_ns,
        errors=sum(_is_error(span) for span in trace.spans),
    )


def _roles(opened: OpenedAnswer, trace: Trace) -> Mapping[str, SpanRole]:
    feedback = {span.span_id for span in opened.feedback}
    sources = _sources(opened.record)
    return {
        span.span_id: role
        for span in trace.spans
        if (role := _role(span, opened.key.span_id, feedback, sources)) is not None
    }


def _role(span: Span, answer_id: str, feedback: set[str], sources: Mapping[str, SpanRole]) -> SpanRole | None:
    if span.span_id == answer_id:
        return SpanRole.ANSWER
    if is_carrier(span) and not is_held(span):
        return SpanRole.EVALUATION
    if span.span_id in feedback or any(key.startswith(_OF_PEOPLE) for key in span.attributes):
        return SpanRole.FEEDBACK
    return sources.get(span.span_id) or _by_kind(span)


def _sources(record: RagRecord) -> Mapping[str, SpanRole]:
    """Return the spans that the record was read from."""
    roles = {Part.CONTEXT: SpanRole.RETRIEVAL, Part.ANSWER: SpanRole.GENERATION}
    return {source.span_id: roles[source.part] for source in record.provenance if source.part in roles}


_KINDS: Final[Mapping[tuple[str, object], SpanRole]] = {
    (semconv.RAG_KIND, semconv.KIND_RETRIEVAL): SpanRole.RETRIEVAL,
    (semconv.RAG_KIND, semconv.KIND_GENERATION): SpanRole.GENERATION,
    (semconv.OI_KIND, semconv.OI_RETRIEVER): SpanRole.RETRIEVAL,
    (semconv.OI_KIND, semconv.OI_LLM): SpanRole.GENERATION,
    (semconv.OPERATION_NAME, semconv.OP_RETRIEVAL): SpanRole.RETRIEVAL,
    **{(semconv.OPERATION_NAME, name): SpanRole.GENERATION for name in semconv.GENERATION_OPERATIONS},
}


def _by_kind(span: Span) -> SpanRole | None:
    keys = (semconv.RAG_KIND, semconv.OI_KIND, semconv.OPERATION_NAME)
    told = ((key, span.attributes.get(key)) for key in keys)
    return next((_KINDS[pair] for pair in told if isinstance(pair[1], str) and pair in _KINDS), None)


_LATE: Final = frozenset({SpanRole.EVALUATION, SpanRole.FEEDBACK})


def _range(trace: Trace, roles: Mapping[str, SpanRole]) -> tuple[int, int]:
    """Return start and end of the application's spans: a verdict of tomorrow must not squeeze them."""
    own = [span for span in trace.spans if roles.get(span.span_id) not in _LATE] or trace.spans
    return min(span.start_ns for span in own), max(span.end_ns for span in own)


def _is_error(span: Span) -> bool:
    return span.status_code is StatusCode.ERROR


def _most_telling(trace: Trace, roles: Mapping[str, SpanRole], answer_id: str) -> set[str]:
    """Return the spans to show: those with a role, the way up from the answer, errors, then the first."""
    above = set(Lineage({span.span_id: span.parent_span_id for span in trace.spans}).line(answer_id))

    def rank(span: Span) -> int:
        important = (span.span_id in above, span.span_id in roles, _is_error(span))
        return important.index(True) if any(important) else len(important)

    return {span.span_id for span in sorted(trace.spans, key=rank)[:MOST_SPANS]}


def _in_order(trace: Trace) -> Iterator[tuple[Span, int]]:
    """Yield every span once, children below their parents, with its depth; spans of a cycle come last."""
    children, seen = trace.children(), set[str]()
    waiting = [(span, 0) for span in reversed(children.get(None, ()))]
    while waiting:
        span, depth = waiting.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        yield span, min(depth, _DEEPEST)
        waiting.extend((child, depth + 1) for child in reversed(children.get(span.span_id, ())))
    yield from ((span, 0) for span in trace.spans if span.span_id not in seen)
