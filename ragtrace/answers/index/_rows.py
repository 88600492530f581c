"""An answer's summary as a row, and back."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ragtrace.answers.index._words import Kind, Names, Stream, clean
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Direction, Label, VerdictCounts

HOUR_NS: Final = 3_600_000_000_000
SCORES: Final = 1_000_000
"""A score is kept in millionths, so that sums are exact."""
DOLLARS: Final = 1_000_000_000
"""A cost is kept in billionths of a US dollar."""
CERTAIN: Final = 100
"""Doubt is kept in hundredths."""
SURE: Final = 1_000
"""Suspicion is kept in thousandths."""
DISPUTED: Final = CERTAIN + 1
"""So much is added where evaluations disagree: these come first."""
POSITIONS: Final = 2**48
LABELS: Final = (Label.PASS, Label.FAIL, Label.ERROR, Label.SKIPPED)
FEEDBACKS: Final = ("", "up", "down")
_LATEST: Final = 2**63 - 1
_METRIC: Final = struct.Struct(">HBBH")
_HAS_SCORE: Final = 0x80
_IS_LOWER_BETTER: Final = 0x40


class IndexedMetric(NamedTuple):
    """The outcome of a metric in a row."""

    metric: int
    label: int
    score: int | None
    """In millionths."""
    is_lower_better: bool


class IndexRow(NamedTuple):
    """A row of ``answer_row``, in the order of its columns."""

    id: int | None
    time_ns: int
    judged_after_ns: int
    trace_high: int
    trace_low: int
    span: int
    carrier: int
    supersedes: int | None
    stream: int
    session: str | bytes | None
    session_hash: int | None
    label: int
    reason: int | None
    blame: int | None
    judge: int | None
    evaluator: int | None
    rule: int | None
    supported: int
    contradicted: int
    unsupported: int
    unjudged: int
    relevant: int
    partly_relevant: int
    irrelevant: int
    unjudged_chunks: int
    probability: float | None
    cost: int | None
    feedback: int
    is_valid: int
    is_alone: int
    position: int
    metrics: bytes
    doubt: int
    """In hundredths; more than 100 if valid evaluations of the answer disagree."""
    suspicion: int | None
    """In thousandths."""
    pipeline: int | None
    question: bytes | None
    """As `Seal` returns it."""

    @property
    def trace_id(self) -> str:
        """The trace id in hexadecimal."""
        return f"{_unsigned(self.trace_high):016x}{_unsigned(self.trace_low):016x}"

    @property
    def carrier_span_id(self) -> str:
        """The carrier's span id in hexadecimal."""
        return f"{_unsigned(self.carrier):016x}"

    @property
    def hour(self) -> int:
        """The hour since 1970 that it is counted in."""
        return self.time_ns // HOUR_NS


COLUMNS: Final = ", ".join(IndexRow._fields)

Seal = Callable[[bytes, str], bytes]
"""Encrypts a text for its place, or decrypts it; what cannot be decrypted is empty."""


def as_it_is(text: bytes, place: str) -> bytes:
    """Return a text, in a file without encryption."""
    return text


def row_of(summary: AnswerSummary, names: Names, seal: Seal = as_it_is) -> IndexRow:
    """Return a new, valid row; new names get their numbers."""
    time_ns = min(summary.time_ns, _LATEST)
    trace_high, trace_low = trace_numbers(summary.key.trace_id)

    def word(kind: Kind, text: str) -> int | None:
        return names.number(kind, text) or None

    session = packed_session(summary.session)
    claims, chunks = summary.claims, summary.chunks
    return IndexRow(
        id=None,
        time_ns=time_ns,
        judged_after_ns=min(summary.judged_ns, _LATEST) - time_ns,
        trace_high=trace_high,
        trace_low=trace_low,
        span=signed(int(summary.key.span_id, 16)),
        carrier=signed(int(summary.carrier_span_id, 16)),
        supersedes=_superseded(summary),
        stream=names.stream(summary),
        session=session,
        session_hash=None if session is None else session_hash(summary.session),
        label=LABELS.index(summary.label),
        reason=word(Kind.REASON, summary.reason),
        blame=word(Kind.BLAME, summary.blame),
        judge=word(Kind.JUDGE, summary.judge),
        evaluator=word(Kind.EVALUATOR, summary.evaluator_version),
        rule=word(Kind.RULE, summary.rule),
        supported=claims.supported,
        contradicted=claims.contradicted,
        unsupported=claims.unsupported,
        unjudged=claims.unjudged,
        relevant=chunks.relevant,
        partly_relevant=chunks.partly_relevant,
        irrelevant=chunks.irrelevant,
        unjudged_chunks=chunks.unjudged,
        probability=summary.probability,
        cost=None if summary.cost_usd is None else min(round(summary.cost_usd * DOLLARS), 2**50),
        feedback=feedback_number(summary.feedback),
        is_valid=1,
        is_alone=0,
        position=position_of(summary.key),
        metrics=b"".join(_packed_metric(names, metric) for metric in summary.metrics),
        doubt=round(summary.doubt * CERTAIN),
        suspicion=None if summary.suspicion is None else round(summary.suspicion * SURE),
        pipeline=word(Kind.PIPELINE, summary.pipeline),
        question=seal(clean(summary.question).encode(), summary.key.trace_id) if summary.question else None,
    )


def hour_of(summary: AnswerSummary) -> int:
    """Return the hour since 1970 that an answer is counted in."""
    return min(summary.time_ns, _LATEST) // HOUR_NS


def summary_of_row(
    row: IndexRow, names: Mapping[int, str], streams: Mapping[int, Stream], unseal: Seal
) -> AnswerSummary:
    """Return what a row holds."""
    stream = streams.get(row.stream, Stream(0, 0, 0, 0, 0))

    def name(number: int | None) -> str:
        return names.get(number or 0, "")

    return AnswerSummary(
        key=AnswerKey(
            row.trace_id,
            f"{_unsigned(row.span):016x}",
            name(stream.tenant),
        ),
        carrier_span_id=row.carrier_span_id,
        supersedes="" if row.supersedes is None else f"{_unsigned(row.supersedes):016x}",
        time_ns=row.time_ns,
        judged_ns=row.time_ns + row.judged_after_ns,
        service=name(stream.service),
        service_version=name(stream.service_version),
        pipeline=name(row.pipeline),
        question=unseal(row.question, row.trace_id).decode() if row.question else "",
        model=name(stream.model),
        prompt_version=name(stream.prompt_version),
        session=unpacked_session(row.session),
        label=LABELS[row.label],
        reason=name(row.reason),
        metrics=tuple(
            MetricSummary(
                name=name(metric.metric),
                label=LABELS[metric.label],
                score=None if metric.score is None else metric.score / SCORES,
                direction=Direction.LOWER_IS_BETTER if metric.is_lower_better else Direction.HIGHER_IS_BETTER,
            )
            for metric in metrics_in(row.metrics)
        ),
        claims=VerdictCounts(
            supported=row.supported,
            contradicted=row.contradicted,
            unsupported=row.unsupported,
            unjudged=row.unjudged,
        ),
        chunks=VerdictCounts(
            relevant=row.relevant,
            partly_relevant=row.partly_relevant,
            irrelevant=row.irrelevant,
            unjudged=row.unjudged_chunks,
        ),
        blame=name(row.blame),
        judge=name(row.judge),
        evaluator_version=name(row.evaluator),
        rule=name(row.rule),
        probability=row.probability,
        cost_usd=None if row.cost is None else row.cost / DOLLARS,
        feedback=FEEDBACKS[row.feedback],
        doubt=row.doubt % DISPUTED / CERTAIN,
        is_disputed=row.doubt >= DISPUTED and row.is_valid == 1,
        suspicion=None if row.suspicion is None else row.suspicion / SURE,
    )


def metrics_in(packed: bytes) -> Iterator[IndexedMetric]:
    """Yield the outcomes of a row's metrics."""
    for number, flags, high, low in _METRIC.iter_unpack(packed):
        score = (high << 16) + low if flags & _HAS_SCORE else None
        yield IndexedMetric(number, flags & 0x0F, score, bool(flags & _IS_LOWER_BETTER))


def metric_in(packed: bytes, number: int) -> IndexedMetric | None:
    """Return the outcome of one metric of a row."""
    return next((metric for metric in metrics_in(packed) if metric.metric == number), None)


def _packed_metric(names: Names, metric: MetricSummary) -> bytes:
    is_lower_better = metric.direction is Direction.LOWER_IS_BETTER
    flags = LABELS.index(metric.label) | (_IS_LOWER_BETTER if is_lower_better else 0)
    if metric.score is None:
        return _METRIC.pack(names.number(Kind.METRIC, metric.name), flags, 0, 0)
    number = names.metric(metric.name, is_lower_better=is_lower_better)
    score = round(metric.score * SCORES)
    return _METRIC.pack(number, flags | _HAS_SCORE, score >> 16, score & 0xFFFF)


def trace_numbers(trace_id: str) -> tuple[int, int]:
    """Return the two halves of a trace id.

    Raises:
        ValueError: it is not hexadecimal.
    """
    number = int(trace_id, 16)
    return signed(number >> 64 & 0xFFFF_FFFF_FFFF_FFFF), signed(number & 0xFFFF_FFFF_FFFF_FFFF)


def signed(number: int) -> int:
    """Return 64 bits as SQLite keeps them."""
    return number - 2**64 if number >= 2**63 else number


def _unsigned(number: int) -> int:
    return number & 0xFFFF_FFFF_FFFF_FFFF


def _superseded(summary: AnswerSummary) -> int | None:
    try:
        number = signed(int(summary.supersedes, 16)) if len(summary.supersedes) == 16 else None
    except ValueError:
        return None
    return None if summary.supersedes == summary.carrier_span_id else number


def position_of(key: AnswerKey) -> int:
    """Return an answer's place in the random order, which does not depend on when it came."""
    return int.from_bytes(_digest(key.trace_id, key.span_id)[:6])


def session_hash(session: str) -> int:
    """Return a short number of a session, by which it is found."""
    return int.from_bytes(_digest(session)[:4])


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("|".join(parts).encode("utf-8", "replace")).digest()


def packed_session(session: str) -> str | bytes | None:
    """Return a session in few bytes: most are UUIDs."""
    if not session:
        return None
    try:
        identifier = UUID(session)
    except ValueError:
        return clean(session)
    return identifier.bytes if str(identifier) == session else clean(session)


def unpacked_session(session: str | bytes | None) -> str:
    """Return the session of `packed_session`."""
    if isinstance(session, bytes):
        return str(UUID(bytes=session))
    return session or ""


def feedback_number(feedback: str) -> int:
    """Return feedback as a number; what is neither up nor down is none."""
    return FEEDBACKS.index(feedback) if feedback in FEEDBACKS else 0


def select(condition: str) -> str:
    """Return a query for whole rows."""
    return f"SELECT {COLUMNS} FROM answer_row WHERE {condition}"


def rows_of(found: Iterable[tuple[object, ...]]) -> list[IndexRow]:
    """Return rows of a query made by `select`."""
    return [IndexRow(*values) for values in found]  # type: ignore[arg-type]


MOST_VERSIONS: Final = 256


def versions_of(db: sqlite3.Connection, key: AnswerKey, *, tenant: int) -> list[IndexRow]:
    """Return the evaluations of one answer, at most `MOST_VERSIONS`; the tenant is a word's number.

    Raises:
        ValueError: an id of the key is not hexadecimal.
    """
    trace_high, trace_low = trace_numbers(key.trace_id)
    condition = (
        "position = ? AND trace_low = ? AND trace_high = ? AND span = ?"
        " AND (SELECT tenant FROM answer_stream WHERE id = stream) = ? LIMIT ?"
    )
    span = signed(int(key.span_id, 16))
    places = (position_of(key), trace_low, trace_high, span, tenant, MOST_VERSIONS)
    return rows_of(db.execute(select(condition), places))
