"""An answer's summary as a row with its scores, and back; where answers come from as small numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.answers.index._filter import Condition, clean
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary, first_faithfulness
from ragtrace.model import Direction, Label, VerdictCounts
from ragtrace.sql import Rows, Statements

OTHERS: Final = "(others)"
"""In place of all names of a kind beyond the bound."""
MOST_NAMES: Final = 1_000
"""Of a kind. Names that no answer has any more make room."""
MOST_STREAMS: Final = 5_000

_STREAM_NAMES: Final = ("tenant", "service", "model", "prompt_version", "service_version")
_KEY: Final = ", ".join(_STREAM_NAMES)
FIND_STREAM: Final = (
    f"SELECT id FROM answer_stream WHERE {' AND '.join(f'{name} = ?' for name in _STREAM_NAMES)}"
)


def names_of(summary: AnswerSummary) -> tuple[str, ...]:
    """Return the names of where an answer comes from, its tenant first."""
    given = (summary.key.tenant, summary.service, summary.model)
    return tuple(clean(text) for text in (*given, summary.prompt_version, summary.service_version))


def stream_of(db: Statements, names: tuple[str, ...], known: Rows) -> tuple[int, str]:
    """Return the number of where an answer comes from, which may be new, and the tenant under which it is.

    ``known`` has what `FIND_STREAM` found.
    """
    found = known.fetchone()
    if found is not None:
        return int(found[0]), names[0]
    tenant, *others = (_bounded(db, kind, text) for kind, text in zip(_STREAM_NAMES, names, strict=True))
    (streams,) = db.execute("SELECT count(*) FROM answer_stream").fetchone()
    if streams >= MOST_STREAMS:  # then it is told by its tenant alone, so that none sees another's answers
        others = [OTHERS, OTHERS, OTHERS, ""]
    # a name is set to itself, so that the row is returned though it is known
    ((number,),) = db.execute(
        f"INSERT INTO answer_stream ({_KEY}) VALUES (?, ?, ?, ?, ?)"
        f" ON CONFLICT ({_KEY}) DO UPDATE SET tenant = excluded.tenant RETURNING id",
        (tenant, *others),
    ).fetchall()
    return int(number), tenant


def tenant_in(db: Statements, tenant: str) -> str:
    """Return the tenant under which a tenant's answers are, if there are any."""
    return _bounded(db, "tenant", clean(tenant))


def _bounded(db: Statements, kind: str, text: str) -> str:
    if not text or db.execute(f"SELECT 1 FROM answer_stream WHERE {kind} = ? LIMIT 1", (text,)).fetchone():
        return text
    (names,) = db.execute(
        f"SELECT count(DISTINCT {kind}) FROM answer_stream WHERE {kind} != ?", (OTHERS,)
    ).fetchone()
    return text if names < MOST_NAMES else OTHERS


POSITIONS: Final = 2**48
LATEST_NS: Final = 2**63 - 1
MOST_VERSIONS: Final = 256
"""Evaluations of an answer that are looked at."""
FEEDBACKS: Final = ("up", "down")

_TEXTS: Final = ("session", "pipeline", "reason", "blame", "judge", "evaluator_version", "rule")
_NUMBERS: Final = ("probability", "cost_usd", "doubt", "suspicion")
_CLAIMS: Final = ("supported", "contradicted", "unsupported", "unjudged")
_CHUNKS: Final = ("relevant", "partly_relevant", "irrelevant")
_NAMES: Final = ("service", "service_version", "model", "prompt_version")
COLUMNS: Final = (
    *("time_ns", "judged_ns", "trace_id", "span_id", "tenant", "carrier", "supersedes", "stream", "label"),
    *(*_TEXTS, *_NUMBERS, *_CLAIMS, *_CHUNKS, "unjudged_chunks"),
    *("feedback", "is_valid", "is_disputed", "position", "question"),
)

Row = Mapping[str, Any]
"""A row of ``answer_row`` by column; its ``id``, if it is in the table."""
Seal = Callable[[bytes, str], bytes]
"""Encrypts a text for its place, or decrypts it; what cannot be decrypted is empty."""


def as_it_is(text: bytes, place: str) -> bytes:
    """Return a text, in a file without encryption."""
    return text


class Score(NamedTuple):
    """A row of ``answer_score`` without its answer."""

    metric: str
    label: str
    score: float | None
    is_lower_better: int


def of_answer(trace_id: str, span_id: str, tenant: str) -> Condition:
    """Return the condition to be an evaluation of an answer.

    Raises:
        ValueError: an id is not hexadecimal.
    """
    ids = hex_of(trace_id, 32), hex_of(span_id, 16)
    return Condition(
        "position = ? AND trace_id = ? AND span_id = ? AND tenant = ?", (_position(*ids), *ids, tenant)
    )


def of_row(row: Row) -> Condition:
    """Return the condition to be an evaluation of the same answer."""
    return of_answer(row["trace_id"], row["span_id"], row["tenant"])


def hex_of(text: str, digits: int) -> str:
    """Return an id in as many hexadecimal digits.

    Raises:
        ValueError: it is not hexadecimal.
    """
    return f"{int(text, 16) & 16**digits - 1:0{digits}x}"


def _position(trace_id: str, span_id: str) -> int:
    """Return an answer's place in the random order, which does not depend on when it came."""
    return int.from_bytes(hashlib.sha256(f"{trace_id}|{span_id}".encode()).digest()[:6])


def row_of(summary: AnswerSummary, *, tenant: str, stream: int, seal: Seal) -> Row:
    """Return a new, valid row.

    Raises:
        ValueError: an id of its key or its carrier is not hexadecimal.
    """
    trace_id, span_id = hex_of(summary.key.trace_id, 32), hex_of(summary.key.span_id, 16)
    carrier, question = hex_of(summary.carrier_span_id, 16), clean(summary.question)
    return {
        "time_ns": min(max(summary.time_ns, 0), LATEST_NS),
        "judged_ns": min(max(summary.judged_ns, 0), LATEST_NS),
        "trace_id": trace_id,
        "span_id": span_id,
        "tenant": tenant,
        "carrier": carrier,
        "supersedes": _superseded(summary.supersedes, carrier),
        "stream": stream,
        "label": summary.label.value,
        **{name: clean(getattr(summary, name)) for name in _TEXTS},
        **{name: getattr(summary, name) for name in _NUMBERS},
        **{name: getattr(summary.claims, name) for name in _CLAIMS},
        **{name: getattr(summary.chunks, name) for name in _CHUNKS},
        "unjudged_chunks": summary.chunks.unjudged,
        "feedback": summary.feedback if summary.feedback in FEEDBACKS else "",
        "is_valid": 1,
        "is_disputed": 0,
        "position": _position(trace_id, span_id),
        "question": seal(question.encode(), summary.key.trace_id) if question else None,
    }


def _superseded(named: str, carrier: str) -> str:
    try:
        superseded = hex_of(named, 16) if len(named) == 16 else ""
    except ValueError:
        return ""
    return "" if superseded == carrier else superseded


def scores_of(summary: AnswerSummary) -> list[Score]:
    """Return the scores of an answer, in order of their metrics."""
    found = {clean(metric.name): metric for metric in summary.metrics}
    return [
        Score(name, metric.label.value, metric.score, int(metric.direction is Direction.LOWER_IS_BETTER))
        for name, metric in sorted(found.items())
    ]


def rows_of(db: Statements, condition: Condition) -> list[Row]:
    """Return rows with their ids."""
    names = ("id", *COLUMNS)
    found = db.execute(f"SELECT {', '.join(names)} FROM answer_row WHERE {condition.sql}", condition.values)
    return [dict(zip(names, values, strict=True)) for values in found]


def scores_by_id(db: Statements, ids: Sequence[int]) -> dict[int, list[Score]]:
    """Return the scores of rows, in order of their metrics."""
    found: dict[int, list[Score]] = {number: [] for number in ids}
    rows = db.execute(
        f"SELECT answer, {', '.join(Score._fields)} FROM answer_score"
        f" WHERE answer IN ({', '.join('?' for _ in ids)}) ORDER BY answer, metric",
        (*ids,),
    )
    for number, *values in rows:
        found[number].append(Score(*values))
    return found


def summaries(db: Statements, ids: Sequence[int], unseal: Seal) -> list[AnswerSummary]:
    """Return what rows hold, in the order of their ids."""
    if not ids:
        return []
    names = ("id", *_NAMES, *COLUMNS)
    columns = ", ".join(f"answer_{'stream' if name in _NAMES else 'row'}.{name}" for name in names)
    found = db.execute(
        f"SELECT {columns} FROM answer_row JOIN answer_stream ON answer_stream.id = stream"
        f" WHERE answer_row.id IN ({', '.join('?' for _ in ids)})",
        (*ids,),
    )
    scores = scores_by_id(db, ids)
    told = {values[0]: _summary(dict(zip(names, values, strict=True)), scores, unseal) for values in found}
    return [told[number] for number in ids]


def _summary(row: Row, scores: Mapping[int, Sequence[Score]], unseal: Seal) -> AnswerSummary:
    metrics = [
        MetricSummary(
            name=found.metric,
            label=Label(found.label),
            score=found.score,
            direction=Direction.LOWER_IS_BETTER if found.is_lower_better else Direction.HIGHER_IS_BETTER,
        )
        for found in scores[row["id"]]
    ]
    as_they_are = ("time_ns", "judged_ns", "supersedes", "feedback", *_NAMES, *_TEXTS, *_NUMBERS)
    return AnswerSummary(
        key=AnswerKey(row["trace_id"], row["span_id"], row["tenant"]),
        carrier_span_id=row["carrier"],
        question=unseal(row["question"], row["trace_id"]).decode() if row["question"] else "",
        label=Label(row["label"]),
        metrics=tuple(sorted(metrics, key=lambda metric: first_faithfulness(metric.name))),
        claims=VerdictCounts(**{name: row[name] for name in _CLAIMS}),
        chunks=VerdictCounts(unjudged=row["unjudged_chunks"], **{name: row[name] for name in _CHUNKS}),
        is_disputed=row["is_disputed"] == 1 and row["is_valid"] == 1,
        **{name: row[name] for name in as_they_are},
    )
