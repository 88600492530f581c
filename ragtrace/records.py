"""Records in files: JSON lines in, one line a record and metric out.

A row may use our own field names, or those of RAGAS or DeepEval:

==============  ======================  =======================
ours            RAGAS                   DeepEval
==============  ======================  =======================
``id``
``question``    ``user_input``          ``input``
``contexts``    ``retrieved_contexts``  ``retrieval_context``
``answer``      ``response``            ``actual_output``
``reference``   ``reference``           ``expected_output``
==============  ======================  =======================

A context is a text, or ``{"id", "text", "score", "metadata"}``. A row needs one of
these fields; others are ignored.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypedDict

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, FiniteFloat, ValidationError

from ragtrace.errors import InputError
from ragtrace.model import (
    AttributeValue,
    Chunk,
    ChunkVerdict,
    Compat,
    CompatStatus,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Usage,
    Verdict,
)

__all__ = [
    "ChunkVerdictObject",
    "TokenCounts",
    "VerdictObject",
    "chunk_verdict_object",
    "one_json_line",
    "read_records",
    "to_json_line",
    "token_counts",
    "verdict_object",
]


def read_records(path: str | Path) -> Iterator[RagRecord]:
    """Read the records of a JSON-lines file, or of standard input for ``-``, one by one.

    Empty lines are skipped; a row without an id is named after its line (``line-7``); what has no UTF-8 form
    (lone surrogates) becomes U+FFFD.

    Raises:
        InputError: the file cannot be read, or a line is no record; names the file, the line and the field.
    """
    name = "standard input" if str(path) == "-" else str(path)
    first_lines: dict[str, int] = {}
    with _opened(path, name) as lines:
        for number, line in enumerate(lines, start=1):
            bare = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            if not bare.strip():
                continue
            record = _record(_parsed(bare, f"{name}, line {number}"), number)
            if record.id in first_lines:
                raise InputError(
                    f"{name}, line {number}: field `id`: {record.id!r} stands on line"
                    f" {first_lines[record.id]} already: ids must be unique"
                )
            first_lines[record.id] = number
            yield record


def to_json_line(
    outcome: MetricOutcome, *, record_id: str, judge: JudgeIdentity, cost_usd: float | None = None
) -> str:
    """Write what a metric found out about a record as one line of JSON, without the line break.

    ``status`` is ``ok``, ``skipped`` (with ``skip_reason``) or ``error`` (with ``error_type``); only ``ok``
    has a score. ``tokens`` counts input and output, ``usage`` has the parts; ``cost_usd`` is ``null`` where
    it is not known; metrics that share a step each count it. Under a profile of another tool,
    ``compat_status`` (``ok``, ``nan``, ``error``, ``grader_error``) and ``compat_score`` say what the tool
    itself reports.
    """
    line: dict[str, Any] = {"id": record_id, "metric": outcome.metric, "profile": outcome.profile}
    line |= _failed(outcome) if isinstance(outcome, MetricFailure) else _found(outcome)
    line |= _compat(outcome)
    line |= {
        "calls": outcome.usage.calls,
        "tokens": outcome.usage.input_tokens + outcome.usage.output_tokens,
        "usage": token_counts(outcome.usage),
        "cost_usd": cost_usd,
        "judge": f"{judge.provider}:{judge.model}",
        "evaluator_version": outcome.evaluator_version,
    }
    return one_json_line(line)


def one_json_line(value: Mapping[str, Any]) -> str:
    """Write an object as JSON that no reader takes for several lines; without the line break."""
    line = json.dumps(value, ensure_ascii=False)
    for mark in _LINE_ENDS:
        line = line.replace(mark, f"\\u{ord(mark):04x}")
    return line


class TokenCounts(TypedDict):
    """The tokens that judging took, as files have them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int


class VerdictObject(TypedDict):
    """A verdict, as files have it."""

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


class ChunkVerdictObject(TypedDict):
    """A verdict about a chunk, as files have it."""

    chunk_id: str
    rank: int
    label: str
    reason: str | None
    confidence: float | None


def token_counts(usage: Usage) -> TokenCounts:
    """Write the tokens of a usage as files have them."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def verdict_object(verdict: Verdict) -> VerdictObject:
    """Write a verdict as files have it."""
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
    }


def chunk_verdict_object(verdict: ChunkVerdict) -> ChunkVerdictObject:
    """Write a verdict about a chunk as files have it."""
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
        "threshold": result.threshold,
        "pass_when": result.pass_when,
        "direction": result.direction.value,
        "details": dict(result.details),
        **({"diagnosis": result.diagnosis.value} if result.diagnosis else {}),
    }


def _compat(outcome: MetricOutcome) -> dict[str, Any]:
    if outcome.compat is None and outcome.profile == _OWN_PROFILE:
        return {}
    compat = outcome.compat or Compat(status=CompatStatus.ERROR)
    return {"compat_status": compat.status.value, "compat_score": compat.score}


_OWN_PROFILE = "ragtrace"
_LINE_ENDS = "\x85\u2028\u2029"
_TRACES_HINT = "; for OTLP traces there are `ragtrace explain` and `ragtrace backfill`"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _clean(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _name(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _clean(value)


_Text: TypeAlias = Annotated[str, BeforeValidator(_clean)]
_Name: TypeAlias = Annotated[str, BeforeValidator(_name), Field(min_length=1)]


def _in_an_object(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


class _Context(BaseModel):
    id: _Name | None = None
    text: _Text | None
    score: FiniteFloat | None = None
    metadata: dict[str, Any] = {}


class _Row(BaseModel):
    id: _Name | None = None
    question: _Text | None = Field(None, validation_alias=AliasChoices("question", "user_input", "input"))
    contexts: list[Annotated[_Context, BeforeValidator(_in_an_object)]] | None = Field(
        None, validation_alias=AliasChoices("contexts", "retrieved_contexts", "retrieval_context")
    )
    answer: _Text | None = Field(None, validation_alias=AliasChoices("answer", "response", "actual_output"))
    reference: _Text | None = Field(None, validation_alias=AliasChoices("reference", "expected_output"))


@contextmanager
def _opened(path: str | Path, name: str) -> Iterator[Iterable[bytes]]:
    if str(path) == "-":
        yield _stdin()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  closed below: only opening it may fail like this
    except OSError as exc:
        raise InputError(f"{name} cannot be read: {exc.strerror}") from exc
    with file:
        yield file


def _stdin() -> Iterable[bytes]:
    # A reader of its own: where a daemon thread waits in that of `sys.stdin`, the interpreter cannot exit.
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, OSError):  # a stand-in without a descriptor
        return sys.stdin.buffer


def _parsed(line: bytes, where: str) -> _Row:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise InputError(f"{where}: is not UTF-8 (byte {exc.start + 1})") from exc
    except (ValueError, RecursionError) as exc:
        what = (
            f"{exc.msg} at column {exc.colno}"
            if isinstance(exc, json.JSONDecodeError)
            else "it nests too deep, or a number is too long"
        )
        raise InputError(f"{where}: is not JSON: {what}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: is not a JSON object")
    try:
        row = _Row.model_validate(value)
    except ValidationError as exc:
        # the message of the exception itself would quote the record
        fault = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(map(str, fault["loc"]))
        raise InputError(f"{where}: field `{field}`: {fault['msg']}") from None
    if value.keys() - {"id"} and not row.model_fields_set - {"id"}:
        raise InputError(
            f"{where}: is no record: it has none of the fields `question`, `contexts`, `answer`"
            f"{_TRACES_HINT if 'resourceSpans' in value else ''}"
        )
    return row


def _record(row: _Row, number: int) -> RagRecord:
    return RagRecord(
        id=row.id or f"line-{number}",
        question=row.question or None,
        chunks=tuple(_chunk(context, rank) for rank, context in enumerate(row.contexts or ())),
        answer=row.answer,
        reference=row.reference,
    )


def _chunk(context: _Context, rank: int) -> Chunk:
    return Chunk(
        id=context.id or hashlib.sha256((context.text or "").encode()).hexdigest()[:16],
        text=context.text,
        rank=rank,
        score=context.score,
        metadata={_clean(key): _attribute(value) for key, value in context.metadata.items()},
    )


def _attribute(value: Any) -> AttributeValue:
    if isinstance(value, Mapping):
        return {_clean(key): _attribute(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_attribute(item) for item in value)
    attribute: AttributeValue = _clean(value)
    return attribute
