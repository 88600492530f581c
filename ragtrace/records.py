"""Read records from JSON lines, CSV or Parquet, and write one JSON line per record and metric.

`ragtrace._row_fields.RECORD_FIELDS` has the names of a row's fields: ragtrace's own, those of RAGAS, DeepEval
and promptfoo, and other usual ones, in any spelling (``actual_output``, ``actualOutput``, ``Actual output``).

``reference_chunk_ids`` names the chunks that should be retrieved.

``provider_citations`` is a list of ``{"start", "end", "chunk_ids"}``: what the model's provider returned
beside the answer, in characters of the answer from 0.
``earlier_turns`` is a list of ``{"question", "answer"}``: the conversation before the question.
``prompt_version`` and ``model`` say which version answered: `ragtrace report` and `compare` group by them.

Contexts are a text, a document or a list of these; a document has its text, and perhaps an id, score and
metadata, under usual names. A text may be the written form of a list or of documents, as data frames leave it
in cells. A row needs at least one of a record's fields; other fields are ignored with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat
from pydantic_core import PydanticCustomError

from ragtrace._row_fields import RECORD_FIELDS, UnreadableValue, contexts_in, ids_in, written_value
from ragtrace._row_files import STRICT, Row, RowNotices, clean_text, read_rows
from ragtrace.errors import InputError
from ragtrace.model import (
    Citation,
    Compat,
    CompatStatus,
    EarlierTurn,
    Gap,
    JudgeIdentity,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    chunk_of,
)
from ragtrace.text import one_json_line


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
    outcome: MetricOutcome, *, record_id: str, judge: JudgeIdentity, further: Mapping[str, Any]
) -> str:
    """Serialize one metric outcome as a line of JSON, without the line break.

    ``status`` is ``ok``, ``skipped`` (with ``skip_reason``) or ``error`` (with ``error_type``); only ``ok``
    has a score, and ``explanation`` says why the others have none. ``tokens`` is the sum of input and output,
    and ``usage`` has the parts; ``usage.unmetered_calls`` counts calls whose tokens nobody told, such as
    timeouts. ``further`` are fields of the record.
    Metrics that share a step each count it, and have it in ``steps``. ``reason`` is present if requested,
    ``intermediate`` (``truths``, ``questions``, ``similarities``) if the metric has any. Under
    another tool's profile, ``compat_status`` (``ok``, ``nan``, ``error``, ``grader_error``) and
    ``compat_score`` hold the tool's own result.
    """
    usage, told = outcome.usage, asdict(outcome)
    line: dict[str, Any] = {"id": record_id, "metric": outcome.metric, "profile": outcome.profile}
    if isinstance(outcome, MetricResult):
        line |= {"score": outcome.score, "status": "skipped" if outcome.skip_reason else "ok"}
        line |= {"label": outcome.label, "verdicts": list(map(_verdict, outcome.verdicts))}
        line["chunk_verdicts"] = [_without(asdict(each), "omitted") for each in outcome.chunk_verdicts]
        line |= {name: told[name] for name in _OF_RESULT}
        line |= {name: told[name] for name in _IF_THERE if told[name] is not None}
    else:
        line |= {"score": None, "status": "error", "label": outcome.label, "verdicts": []}
        line |= {name: told[name] for name in _OF_FAILURE} | {"explanation": outcome.message}
    if outcome.compat is not None or outcome.profile != _OWN_PROFILE:
        compat = outcome.compat or Compat(status=CompatStatus.ERROR)
        line |= {"compat_status": compat.status, "compat_score": compat.score}
    line |= {
        "calls": usage.calls,
        "tokens": usage.input_tokens + usage.output_tokens,
        "usage": _without(asdict(usage), "calls"),
        **further,
        "duration_ms": outcome.duration_ms,
        "steps": [
            {
                "step": run.step,
                "duration_ms": run.duration_ms,
                "calls": run.usage.calls,
                "usage": _without(asdict(run.usage), "calls"),
            }
            for run in outcome.steps
        ],
        "judge": judge.name,
        "evaluator_version": outcome.evaluator_version,
    }
    return one_json_line(line)


_OF_RESULT: Final = ("skip_reason", "explanation", "threshold", "pass_when", "direction", "details")
_IF_THERE: Final = ("reason", "intermediate", "diagnosis")
_OF_FAILURE: Final = ("error_type", "retryable")


def _verdict(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    place = {"start": claim.start, "end": claim.end, "kind": claim.kind}
    return {**_without(asdict(verdict), "omitted"), "claim": claim.text, **place}


def _without(told: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != name}


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


def _ids(value: Any) -> Any:
    try:
        return tuple(map(clean_text, ids_in(value)))
    except UnreadableValue as exc:
        raise PydanticCustomError("said", "{why}", {"why": str(exc)}) from None


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


class CitationRow(BaseModel):
    """A citation in a row."""

    start: int | None
    end: int | None
    chunk_ids: Annotated[tuple[str, ...], BeforeValidator(_ids)] = ()
    source: Text = ""


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
    reference_chunk_ids: Annotated[tuple[str, ...], BeforeValidator(_ids)] = ()
    provider_citations: Annotated[tuple[CitationRow, ...], BeforeValidator(_written_list)] = ()
    earlier_turns: Annotated[tuple[TurnRow, ...], BeforeValidator(_written_list)] = ()
    prompt_version: _Name | None = None
    model: _Name | None = None


def record_of(row: RecordRow, name: str) -> RagRecord:
    """Make a record from a row; ``name`` is its id if it has none."""
    answer = _without_wrapping(row.answer, row.question)
    unwrapped = row.answer.find(answer) if row.answer and answer else 0
    return RagRecord(
        id=row.id or name,
        question=row.question or None,
        chunks=tuple(chunk_of(**dict(context), rank=rank) for rank, context in enumerate(row.contexts or ())),
        answer=answer,
        reference=row.reference,
        reference_chunk_ids=row.reference_chunk_ids,
        provider_citations=tuple(
            Citation(
                start=None if each.start is None else each.start - unwrapped,
                end=None if each.end is None else each.end - unwrapped,
                chunk_ids=each.chunk_ids,
                source=each.source,
            )
            for each in row.provider_citations
        ),
        earlier_turns=tuple(
            EarlierTurn(question=turn.question or None, answer=turn.answer) for turn in row.earlier_turns
        ),
        prompt_version=row.prompt_version,
        model=row.model,
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
