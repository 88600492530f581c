"""Read records from JSON lines, CSV or Parquet, and write one JSON line per record and metric.

`ragtrace._row_fields.RECORD_FIELDS` has the names of a row's fields: ragtrace's own, those of RAGAS, DeepEval
and promptfoo, and other usual ones, in any spelling (``actual_output``, ``actualOutput``, ``Actual output``).

``earlier_turns`` is a list of ``{"question", "answer"}``: the conversation before the question.

Contexts are a text, a document or a list of these; a document has its text, and perhaps an id, score and
metadata, under usual names. A text may be the written form of a list or of documents, as data frames leave it
in cells. A row needs at least one of a record's fields; other fields are ignored with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypedDict

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat
from pydantic_core import PydanticCustomError

from ragtrace._row_fields import RECORD_FIELDS, contexts_in
from ragtrace._row_files import STRICT, Row, RowNotices, clean_text, read_rows
from ragtrace._row_values import UnreadableValue, written_value
from ragtrace.errors import InputError
from ragtrace.escaping import one_json_line
from ragtrace.model import (
    ChunkVerdict,
    Compat,
    CompatStatus,
    EarlierTurn,
    Gap,
    Intermediate,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SentenceGrade,
    SkipReason,
    StepRun,
    Usage,
    Verdict,
    chunk_of,
)


def read_records(path: str | Path, *, notices: RowNotices = STRICT) -> Iterator[RagRecord]:
    """Yield the records of a file (JSON lines, one array, CSV or Parquet), or of standard input for ``-``.

    Empty lines are skipped. A row without an id gets one from its line (``line-7``, ``row-7``). Lone
    surrogates become U+FFFD. If ``notices`` does not raise, invalid rows are skipped.

    Raises:
        InputError: the file cannot be read, or, without ``notices``, a row is invalid. Names the file, the
            line and the field.
        ConfigError: the file is Parquet, and pyarrow is not installed.
    """
    records = RecordReader()
    for row in read_rows(path, RecordRow, RECORD_FIELDS, notices):
        try:
            record = records.record(row)
        except InputError as fault:
            notices.row_refused(fault)
            continue
        yield record


class RecordReader:
    """Makes records of the rows of one source: their ids must differ."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def record(self, row: Row[RecordRow]) -> RagRecord:
        """Return the record in a row.

        Raises:
            InputError: it has no part of a record, or the id of an earlier one.
        """
        _check_parts(row)
        record = record_of(row.form, row.place)
        if record.id in self._places:
            raise InputError(
                f"{row.where}: field `id`: {record.id!r} is already used at {self._places[record.id]}:"
                " ids must be unique"
            )
        self._places[record.id] = row.place.replace("-", " ")
        return record


def to_json_line(
    outcome: MetricOutcome, *, record_id: str, judge: JudgeIdentity, cost_usd: float | None = None
) -> str:
    """Serialize one metric outcome as a line of JSON, without the line break.

    ``status`` is ``ok``, ``skipped`` (with ``skip_reason``) or ``error`` (with ``error_type``); only ``ok``
    has a score. ``tokens`` is the sum of input and output, and ``usage`` has the parts. ``cost_usd`` is
    ``null`` if unknown; ``usage.unmetered_calls`` counts calls whose tokens nobody told, such as timeouts.
    Metrics that share a step each count it, and have it in ``steps``. ``reason`` is present if requested,
    ``intermediate`` (``truths``, ``questions``, ``similarities``, ``sentences``) if the metric has any. Under
    another tool's profile, ``compat_status`` (``ok``, ``nan``, ``error``, ``grader_error``) and
    ``compat_score`` hold the tool's own result.
    """
    line: dict[str, Any] = {"id": record_id, "metric": outcome.metric, "profile": outcome.profile}
    line |= _failed(outcome) if isinstance(outcome, MetricFailure) else _found(outcome)
    line |= _compat(outcome)
    line |= {
        "calls": outcome.usage.calls,
        "tokens": outcome.usage.input_tokens + outcome.usage.output_tokens,
        "usage": token_counts(outcome.usage),
        "cost_usd": cost_usd,
        "duration_ms": outcome.duration_ms,
        "steps": step_objects(outcome.steps),
        "judge": judge.name,
        "evaluator_version": outcome.evaluator_version,
    }
    return one_json_line(line)


class TokenCounts(TypedDict):
    """Token counts in output files."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    unmetered_calls: int


class StepObject(TypedDict):
    """A judge step in output files."""

    step: str
    duration_ms: int
    calls: int
    usage: TokenCounts


class VerdictObject(TypedDict):
    """A verdict in output files."""

    claim: str
    label: str
    reason: str | None
    chunk_ids: list[str]
    quote: str | None
    quote_verified: bool
    start: int | None
    end: int | None
    kind: str
    confidence: float | None
    support: float | None
    decided_by: str | None
    """``screen`` or ``judge``, if the judge is a cascade."""


class ChunkVerdictObject(TypedDict):
    """A chunk verdict in output files."""

    chunk_id: str
    rank: int
    label: str
    reason: str | None
    confidence: float | None


class SentenceObject(TypedDict):
    """A sentence of a chunk with its grade in output files."""

    chunk_id: str
    start: int
    end: int
    label: str
    omitted: bool


class IntermediateObject(TypedDict):
    """A metric's intermediate results in output files."""

    truths: list[str]
    truths_limit: int | None
    questions: list[str]
    similarities: list[float | None]
    sentences: list[SentenceObject]


def intermediate_object(made: Intermediate) -> IntermediateObject:
    """Convert intermediate results to their output form."""
    return {
        "truths": list(made.truths),
        "truths_limit": made.truths_limit,
        "questions": list(made.questions),
        "similarities": list(made.similarities),
        "sentences": [_sentence_object(sentence) for sentence in made.sentences],
    }


def _sentence_object(sentence: SentenceGrade) -> SentenceObject:
    return {
        "chunk_id": sentence.chunk_id,
        "start": sentence.start,
        "end": sentence.end,
        "label": sentence.label.value,
        "omitted": sentence.omitted,
    }


def token_counts(usage: Usage) -> TokenCounts:
    """Convert a usage to its token counts."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "unmetered_calls": usage.unmetered_calls,
    }


def step_objects(steps: Iterable[StepRun]) -> list[StepObject]:
    """Convert judge steps to their output form."""
    return [
        {
            "step": run.step,
            "duration_ms": run.duration_ms,
            "calls": run.usage.calls,
            "usage": token_counts(run.usage),
        }
        for run in steps
    ]


def verdict_object(verdict: Verdict) -> VerdictObject:
    """Convert a verdict to its output form."""
    return {
        "claim": verdict.claim.text,
        "label": verdict.label.value,
        "reason": verdict.reason,
        "chunk_ids": list(verdict.chunk_ids),
        "quote": verdict.quote,
        "quote_verified": verdict.quote_verified,
        "start": verdict.claim.start,
        "end": verdict.claim.end,
        "kind": verdict.claim.kind,
        "confidence": verdict.confidence,
        "support": verdict.support,
        "decided_by": verdict.decided_by,
    }


def chunk_verdict_object(verdict: ChunkVerdict) -> ChunkVerdictObject:
    """Convert a chunk verdict to its output form."""
    return {
        "chunk_id": verdict.chunk_id,
        "rank": verdict.rank,
        "label": verdict.label.value,
        "reason": verdict.reason,
        "confidence": verdict.confidence,
    }


def _failed(failure: MetricFailure) -> dict[str, Any]:
    return {
        "score": None,
        "status": "error",
        "label": failure.label.value,
        "verdicts": [],
        "error_type": failure.error_type,
        "message": failure.message,
        "retryable": failure.retryable,
    }


def _found(result: MetricResult) -> dict[str, Any]:
    return {
        "score": result.score,
        "status": "skipped" if result.skip_reason else "ok",
        "label": result.label.value,
        "verdicts": [verdict_object(verdict) for verdict in result.verdicts],
        "chunk_verdicts": [chunk_verdict_object(verdict) for verdict in result.chunk_verdicts],
        "skip_reason": result.skip_reason.value if result.skip_reason else None,
        "explanation": result.explanation,
        **({"reason": result.reason} if result.reason is not None else {}),
        "threshold": result.threshold,
        "pass_when": result.pass_when,
        "direction": result.direction.value,
        "details": dict(result.details),
        **({"intermediate": intermediate_object(made)} if (made := result.intermediate) else {}),
        **({"diagnosis": result.diagnosis.value} if result.diagnosis else {}),
    }


def _compat(outcome: MetricOutcome) -> dict[str, Any]:
    if outcome.compat is None and outcome.profile == _OWN_PROFILE:
        return {}
    compat = outcome.compat or Compat(status=CompatStatus.ERROR)
    return {"compat_status": compat.status.value, "compat_score": compat.score}


_OWN_PROFILE = "ragtrace"
_TRACES_HINT = "; for OTLP traces there are `ragtrace explain` and `ragtrace backfill`"
_PARTS = frozenset({"question", "contexts", "answer", "reference"})


def _name(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else clean_text(value)


def _one_context(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("said", "must be a string, or an object with a `text`")
    return value


def _all_contexts(value: Any) -> Any:
    try:
        found = contexts_in(value)
    except UnreadableValue as exc:
        raise PydanticCustomError("said", "{why}", {"why": str(exc)}) from None
    if found is not None and not isinstance(found, list):
        raise PydanticCustomError("said", "must be a string, or a list of strings")
    return found


def _reference(value: Any) -> Any:
    """Join the references of a list."""
    try:
        listed: Any = written_value(value) if isinstance(value, str) else value
    except UnreadableValue:
        return value
    is_list = isinstance(listed, list) and all(isinstance(each, str) for each in listed)
    return "\n".join(listed) or None if is_list else value


def _written_list(value: Any) -> Any:
    listed = written_value(value) if isinstance(value, str) else value
    return () if listed is None else listed


_Name: TypeAlias = Annotated[str, BeforeValidator(_name), Field(min_length=1)]
Text: TypeAlias = Annotated[str, BeforeValidator(clean_text)]
"""A string that UTF-8 can encode."""


class ContextRow(BaseModel):
    """A context in a row."""

    id: _Name | None = None
    text: Text | None
    score: FiniteFloat | None = None
    metadata: dict[str, Any] = {}


_Contexts: TypeAlias = list[Annotated[ContextRow, BeforeValidator(_one_context)]]
Contexts: TypeAlias = Annotated[_Contexts, BeforeValidator(_all_contexts)]
"""A list of contexts; a single context becomes a list of one."""


class TurnRow(BaseModel):
    """An earlier turn of the conversation in a row."""

    question: Text | None = None
    answer: Text


class RecordRow(BaseModel):
    """A record in a row."""

    id: _Name | None = None
    question: Text | None = None
    contexts: Annotated[_Contexts | None, BeforeValidator(_all_contexts)] = None
    answer: Text | None = None
    reference: Annotated[Text | None, BeforeValidator(_reference)] = None
    earlier_turns: Annotated[tuple[TurnRow, ...], BeforeValidator(_written_list)] = ()


def record_of(row: RecordRow, name: str) -> RagRecord:
    """Make a record from a row; ``name`` is its id if it has none."""
    return RagRecord(
        id=row.id or name,
        question=row.question or None,
        chunks=tuple(chunk_of(**dict(context), rank=rank) for rank, context in enumerate(row.contexts or ())),
        answer=_without_wrapping(row.answer, row.question),
        reference=row.reference,
        earlier_turns=tuple(
            EarlierTurn(question=turn.question or None, answer=turn.answer) for turn in row.earlier_turns
        ),
        gaps=() if row.contexts is not None else (_NO_CONTEXTS,),
    )


def _without_wrapping(answer: str | None, question: str | None) -> str | None:
    """Return the answer without the thoughts, the JSON or the tags around it, as it is read from a span."""
    if answer is None or not _MAY_BE_WRAPPED.search(answer):
        return answer
    from ragtrace.traces.extract import unwrap

    return unwrap(answer, question)[0]


_MAY_BE_WRAPPED: Final = re.compile(r"[<{\u25c1]|final answer", re.IGNORECASE)
_NO_CONTEXTS: Final = Gap(
    part=Part.CONTEXT, reason=SkipReason.NO_RETRIEVAL, detail="the record has no contexts"
)
"""An empty list means that the retrieval found nothing; no list means unknown."""


def _check_parts(row: Row[RecordRow]) -> None:
    if row.form.model_fields_set & _PARTS or not row.unknown:
        return
    raise InputError(
        f"{row.where}: is no record: it has none of the fields `question`, `contexts`, `answer`"
        f"{_TRACES_HINT if 'resourceSpans' in row.unknown else ''}"
    )
