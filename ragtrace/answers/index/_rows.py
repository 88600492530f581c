"""An answer's summary as a row with its scores, and back."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.answers.index._scope import Condition, clean
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary, first_faithfulness
from ragtrace.model import Direction, Label, VerdictCounts

POSITIONS: Final = 2**48
LATEST_NS: Final = 2**63 - 1
MOST_VERSIONS: Final = 256
"""Evaluations of an answer that are looked at."""
FEEDBACKS: Final = ("up", "down")

Seal = Callable[[bytes, str], bytes]
"""Encrypts a text for its place, or decrypts it; what cannot be decrypted is empty."""


def as_it_is(text: bytes, place: str) -> bytes:
    """Return a text, in a file without encryption."""
    return text


class IndexRow(NamedTuple):
    """A row of ``answer_row`` without its id."""

    time_ns: int
    judged_ns: int
    trace_id: str
    span_id: str
    tenant: str
    carrier: str
    supersedes: str
    stream: int
    session: str
    pipeline: str
    label: str
    reason: str
    blame: str
    judge: str
    evaluator: str
    rule: str
    supported: int
    contradicted: int
    unsupported: int
    unjudged: int
    relevant: int
    partly_relevant: int
    irrelevant: int
    unjudged_chunks: int
    probability: float | None
    cost_usd: float | None
    doubt: float
    suspicion: float | None
    feedback: str
    is_valid: int
    is_disputed: int
    position: int
    question: bytes | None
    """As `Seal` returns it."""

    @property
    def answer(self) -> Condition:
        """The condition to be an evaluation of the same answer."""
        return _of_answer(self.trace_id, self.span_id, self.tenant)


class Score(NamedTuple):
    """A row of ``answer_score`` without its answer."""

    metric: str
    label: str
    score: float | None
    is_lower_better: int


COLUMNS: Final = ", ".join(IndexRow._fields)
_JOINED: Final = ", ".join(f"answer_row.{name}" for name in IndexRow._fields)


def of_answer(key: AnswerKey) -> Condition:
    """Return the condition to be an evaluation of an answer.

    Raises:
        ValueError: an id of the key is not hexadecimal.
    """
    return _of_answer(hex_of(key.trace_id, 32), hex_of(key.span_id, 16), key.tenant)


def _of_answer(trace_id: str, span_id: str, tenant: str) -> Condition:
    return Condition(
        "position = ? AND trace_id = ? AND span_id = ? AND tenant = ?",
        (_position(trace_id, span_id), trace_id, span_id, tenant),
    )


def hex_of(text: str, digits: int) -> str:
    """Return an id in as many hexadecimal digits.

    Raises:
        ValueError: it is not hexadecimal.
    """
    return f"{int(text, 16) & 16**digits - 1:0{digits}x}"


def _position(trace_id: str, span_id: str) -> int:
    """Return an answer's place in the random order, which does not depend on when it came."""
    return int.from_bytes(hashlib.sha256(f"{trace_id}|{span_id}".encode()).digest()[:6])


def row_of(summary: AnswerSummary, *, tenant: str, stream: int, seal: Seal) -> IndexRow:
    """Return a new, valid row.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    trace_id, span_id = hex_of(summary.key.trace_id, 32), hex_of(summary.key.span_id, 16)
    carrier = hex_of(summary.carrier_span_id, 16)
    claims, chunks, question = summary.claims, summary.chunks, clean(summary.question)
    return IndexRow(
        time_ns=_time(summary.time_ns),
        judged_ns=_time(summary.judged_ns),
        trace_id=trace_id,
        span_id=span_id,
        tenant=tenant,
        carrier=carrier,
        supersedes=_superseded(summary.supersedes, carrier),
        stream=stream,
        session=clean(summary.session),
        pipeline=clean(summary.pipeline),
        label=summary.label.value,
        reason=clean(summary.reason),
        blame=clean(summary.blame),
        judge=clean(summary.judge),
        evaluator=clean(summary.evaluator_version),
        rule=clean(summary.rule),
        supported=claims.supported,
        contradicted=claims.contradicted,
        unsupported=claims.unsupported,
        unjudged=claims.unjudged,
        relevant=chunks.relevant,
        partly_relevant=chunks.partly_relevant,
        irrelevant=chunks.irrelevant,
        unjudged_chunks=chunks.unjudged,
        probability=summary.probability,
        cost_usd=summary.cost_usd,
        doubt=summary.doubt,
        suspicion=summary.suspicion,
        feedback=summary.feedback if summary.feedback in FEEDBACKS else "",
        is_valid=1,
        is_disputed=0,
        position=_position(trace_id, span_id),
        question=seal(question.encode(), summary.key.trace_id) if question else None,
    )


def scores_of(summary: AnswerSummary) -> list[Score]:
    """Return the scores of an answer, in order of their metrics."""
    found = {
        clean(metric.name): Score(
            clean(metric.name),
            metric.label.value,
            metric.score,
            int(metric.direction is Direction.LOWER_IS_BETTER),
        )
        for metric in summary.metrics
    }
    return sorted(found.values())


def _time(time_ns: int) -> int:
    return min(max(time_ns, 0), LATEST_NS)


def _superseded(named: str, carrier: str) -> str:
    try:
        superseded = hex_of(named, 16) if len(named) == 16 else ""
    except ValueError:
        return ""
    return "" if superseded == carrier else superseded


def rows_of(db: sqlite3.Connection, condition: Condition) -> dict[int, IndexRow]:
    """Return rows by id."""
    found = db.execute(f"SELECT id, {COLUMNS} FROM answer_row WHERE {condition.sql}", condition.values)
    return {number: IndexRow(*values) for number, *values in found}


def scores_in(db: sqlite3.Connection, ids: Sequence[int]) -> dict[int, list[Score]]:
    """Return the scores of rows by id, in order of their metrics."""
    found: dict[int, list[Score]] = {number: [] for number in ids}
    marks = ", ".join("?" for _ in ids)
    names = ", ".join(Score._fields)
    rows = db.execute(
        f"SELECT answer, {names} FROM answer_score WHERE answer IN ({marks}) ORDER BY answer, metric", (*ids,)
    )
    for number, *values in rows:
        found[number].append(Score(*values))
    return found


def summaries(db: sqlite3.Connection, ids: Sequence[int], unseal: Seal) -> list[AnswerSummary]:
    """Return what rows hold, in the order of their ids."""
    marks = ", ".join("?" for _ in ids)
    found = db.execute(
        f"SELECT answer_row.id, service, service_version, model, prompt_version, {_JOINED}"
        f" FROM answer_row JOIN answer_stream ON answer_stream.id = stream WHERE answer_row.id IN ({marks})",
        (*ids,),
    )
    scores = scores_in(db, ids)
    told = {
        number: _summary(names, IndexRow(*values), scores[number], unseal)
        for number, names, values in _split(found)
    }
    return [told[number] for number in ids]


def _split(found: sqlite3.Cursor) -> list[tuple[int, Sequence[str], Sequence[Any]]]:
    return [(number, values[:4], values[4:]) for number, *values in found]


def _summary(names: Sequence[str], row: IndexRow, scores: Sequence[Score], unseal: Seal) -> AnswerSummary:
    service, service_version, model, prompt_version = names
    metrics = [
        MetricSummary(
            name=found.metric,
            label=Label(found.label),
            score=found.score,
            direction=Direction.LOWER_IS_BETTER if found.is_lower_better else Direction.HIGHER_IS_BETTER,
        )
        for found in scores
    ]
    return AnswerSummary(
        key=AnswerKey(row.trace_id, row.span_id, row.tenant),
        carrier_span_id=row.carrier,
        supersedes=row.supersedes,
        time_ns=row.time_ns,
        judged_ns=row.judged_ns,
        service=service,
        service_version=service_version,
        pipeline=row.pipeline,
        question=unseal(row.question, row.trace_id).decode() if row.question else "",
        model=model,
        prompt_version=prompt_version,
        session=row.session,
        label=Label(row.label),
        reason=row.reason,
        metrics=tuple(sorted(metrics, key=lambda metric: first_faithfulness(metric.name))),
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
        blame=row.blame,
        judge=row.judge,
        evaluator_version=row.evaluator,
        rule=row.rule,
        probability=row.probability,
        cost_usd=row.cost_usd,
        feedback=row.feedback,
        doubt=row.doubt,
        is_disputed=row.is_disputed == 1 and row.is_valid == 1,
        suspicion=row.suspicion,
    )
