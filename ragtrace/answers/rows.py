"""Read answers back from the rows of a report: ``report.jsonl``, one line per answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from ragtrace import semconv
from ragtrace._row_files import clean_text
from ragtrace.answers.opened import AnswerVersion
from ragtrace.answers.summary import key_of
from ragtrace.errors import InputError
from ragtrace.model import (
    Blame,
    BlameClass,
    Chunk,
    ChunkVerdict,
    Claim,
    Compat,
    CompatStatus,
    DecidedBy,
    Diagnosis,
    Direction,
    Evaluation,
    Fault,
    Gap,
    Intermediate,
    JudgeIdentity,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SentenceGrade,
    SkipReason,
    StepRun,
    Target,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.outcomes import JudgedAnswer
from ragtrace.traces.attach import Sample

SCHEMA_VERSION: Final = 1
"""Increases if a field is removed or changes its meaning, but not for a new field."""


class _Tokens(BaseModel):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    unmetered_calls: int = 0

    def usage(self, calls: int) -> Usage:
        return Usage(calls=calls, **self.model_dump())


class _Chunk(BaseModel):
    id: str
    text: str | None = None
    rank: int = 0
    score: float | None = None
    truncated: bool = False


class _Gap(BaseModel):
    part: Part
    reason: SkipReason
    detail: str = ""


class _Sample(BaseModel):
    rule: str
    rate: float
    probability: float | None = None


class _Verdict(BaseModel):
    claim: str
    label: VerdictLabel
    reason: str | None = None
    chunk_ids: list[str] = []
    quote: str | None = None
    quote_verified: bool = False
    start: int | None = None
    end: int | None = None
    kind: str = "factual"
    confidence: float | None = None
    support: float | None = None
    decided_by: DecidedBy | None = None

    def verdict(self, index: int) -> Verdict:
        told = self.model_dump(exclude={"claim", "start", "end", "kind", "chunk_ids"})
        claim = Claim(index=index, text=self.claim, start=self.start, end=self.end, kind=self.kind)
        return Verdict(claim=claim, chunk_ids=tuple(self.chunk_ids), **told)


class _ChunkVerdict(BaseModel):
    chunk_id: str
    rank: int
    label: VerdictLabel
    reason: str | None = None
    confidence: float | None = None


class _Sentence(BaseModel):
    chunk_id: str
    start: int
    end: int
    label: VerdictLabel
    omitted: bool = False


class _Intermediate(BaseModel):
    truths: tuple[str, ...] = ()
    truths_limit: int | None = None
    questions: tuple[str, ...] = ()
    similarities: tuple[float | None, ...] = ()
    sentences: tuple[_Sentence, ...] = ()

    def intermediate(self) -> Intermediate:
        return Intermediate(
            truths=self.truths,
            truths_limit=self.truths_limit,
            questions=self.questions,
            similarities=self.similarities,
            sentences=tuple(SentenceGrade(**sentence.model_dump()) for sentence in self.sentences),
        )


class _Step(BaseModel):
    step: str
    duration_ms: int = 0
    calls: int = 0
    usage: _Tokens = _Tokens()

    def run(self) -> StepRun:
        return StepRun(step=self.step, duration_ms=self.duration_ms, usage=self.usage.usage(self.calls))


class _Fault(BaseModel):
    blame: BlameClass
    why: str = ""
    claim: int | None = None
    chunk_ids: tuple[str, ...] = ()
    span_id: str = ""
    quote: str = ""


class _Blame(BaseModel):
    faults: tuple[_Fault, ...] = ()
    missing: tuple[str, ...] = ()

    def blame(self) -> Blame:
        return Blame(faults=tuple(Fault(**row.model_dump()) for row in self.faults), missing=self.missing)


class _Metric(BaseModel):
    metric: str
    profile: str = "ragtrace"
    status: Literal["ok", "skipped", "error"]
    label: Label
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    threshold: FiniteFloat | None = None
    pass_when: str | None = None
    direction: Direction | None = None
    skip_reason: SkipReason | None = None
    error_type: str | None = None
    message: str | None = None
    explanation: str = ""
    reason: str | None = None
    diagnosis: Diagnosis | None = None
    details: dict[str, float | None] = {}
    intermediate: _Intermediate | None = None
    verdicts: list[_Verdict] = []
    chunk_verdicts: list[_ChunkVerdict] = []
    judge: str = ""
    evaluator_version: str = ""
    calls: int = 0
    usage: _Tokens = _Tokens()
    duration_ms: int = 0
    steps: tuple[_Step, ...] = ()
    compat_status: CompatStatus | None = None
    compat_score: float | None = None

    @property
    def compat(self) -> Compat | None:
        return Compat(status=self.compat_status, score=self.compat_score) if self.compat_status else None

    def outcome(self, judge: str) -> MetricOutcome:
        return self._failure() if self.status == "error" else self._result(judge)

    def _failure(self) -> MetricFailure:
        return MetricFailure(
            metric=self.metric,
            profile=self.profile,
            error_type=self.error_type or "unknown",
            message=self.message or "",
            evaluator_version=self.evaluator_version,
            usage=self.usage.usage(self.calls),
            compat=self.compat,
            duration_ms=self.duration_ms,
            steps=tuple(step.run() for step in self.steps),
        )

    def _result(self, judge: str) -> MetricResult:
        is_by_rule = self.score is not None and self.threshold is None
        made = self.intermediate
        return MetricResult(
            metric=self.metric,
            profile=self.profile,
            score=self.score,
            threshold=self.threshold,
            direction=self.direction or Direction.HIGHER_IS_BETTER,
            evaluator_version=self.evaluator_version,
            skip_reason=self.skip_reason,
            explanation=self.explanation,
            reason=self.reason,
            verdicts=tuple(row.verdict(index) for index, row in enumerate(self.verdicts)),
            chunk_verdicts=tuple(ChunkVerdict(**row.model_dump()) for row in self.chunk_verdicts),
            details={name: value for name, value in self.details.items() if value is not None},
            intermediate=made.intermediate() if made else None,
            usage=self.usage.usage(self.calls),
            compat=self.compat,
            diagnosis=self.diagnosis,
            pass_when=self.pass_when,
            passed=self.label is Label.PASS if is_by_rule else None,
            judge=None if self.judge in ("", judge) else _judge(self.judge),
            duration_ms=self.duration_ms,
            steps=tuple(step.run() for step in self.steps),
        )


class _Answer(BaseModel):
    version: int
    record_id: str
    trace_id: str | None = None
    span_id: str | None = None
    carrier_span_id: str | None = None
    service: str | None = None
    time: str | None = None
    model: str | None = None
    session_id: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    prompt_version: str | None = None
    question: str | None = None
    answer: str | None = None
    reference: str | None = None
    chunks: list[_Chunk] = []
    gaps: list[_Gap] = []
    metrics: list[_Metric]
    blame: _Blame = _Blame()
    judge: str = ""
    evaluator_set: str = ""
    evaluator_version: str = ""
    judged_at: str | None = None
    duration_ms: int = 0
    input_sha256: str = ""
    input_truncated: bool = False
    compromised: bool = False
    judge_card: str = ""
    calls: int = 0
    usage: _Tokens = _Tokens()
    cost_usd: float | None = None
    sample: _Sample | None = None

    def judged(self) -> JudgedAnswer:
        record = self._record()
        return JudgedAnswer(
            record=record,
            evaluation=Evaluation(
                record_id=record.id,
                outcomes=tuple(row.outcome(self.judge) for row in self.metrics),
                judge=_judge(self.judge),
                evaluator_set=self.evaluator_set,
                evaluator_version=self.evaluator_version,
                run_id="",
                started_at_ns=_nanoseconds(self.judged_at),
                duration_ms=self.duration_ms,
                input_sha256=self.input_sha256,
                input_truncated=self.input_truncated,
                usage=self.usage.usage(self.calls),
                compromised=self.compromised,
                judge_card=self.judge_card,
                blame=self.blame.blame(),
            ),
            sample=Sample(**self.sample.model_dump()) if self.sample else None,
            carrier_span_id=self.carrier_span_id,
            cost_usd=self.cost_usd,
        )

    def _record(self) -> RagRecord:
        return RagRecord(
            id=self.record_id,
            question=self.question,
            chunks=tuple(Chunk(**row.model_dump()) for row in self.chunks),
            answer=self.answer,
            reference=self.reference,
            target=self._target(),
            session_id=self.session_id,
            conversation_id=self.conversation_id,
            response_id=self.response_id,
            model=self.model,
            prompt_version=self.prompt_version,
            gaps=tuple(Gap(**row.model_dump()) for row in self.gaps),
        )

    def _target(self) -> Target | None:
        if self.trace_id is None or self.span_id is None:
            return None
        start_ns = _nanoseconds(self.time)
        resource = {semconv.SERVICE_NAME: self.service} if self.service is not None else {}
        return Target(
            trace_id=self.trace_id,
            span_id=self.span_id,
            start_ns=start_ns,
            end_ns=start_ns,
            resource=resource,
        )


class ReportLine(NamedTuple):
    """A line of a report, unparsed."""

    where: str
    """File and line, for messages."""
    text: bytes


def report_lines(path: Path) -> Iterator[ReportLine]:
    """Yield the lines of a report that are not empty.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield ReportLine(f"{path}, line {number}", line)
    except OSError as exc:
        raise InputError(f"{path} cannot be read: {exc.strerror or exc}") from exc


def is_report(line: bytes) -> bool:
    """Return whether a file that begins with this line is a report."""
    return line.lstrip().startswith(b'{"version":') and b'"record_id":' in line


def trace_ids_in(line: bytes) -> list[str]:
    """Return the trace id of a line; without a trace, that of the key made from the record's id."""
    if found := _TRACE_ID.search(line):
        return [found[1].decode()]
    try:
        return [key_of(read_line(ReportLine("", line)).judged.record).trace_id]
    except InputError:
        return []


_TRACE_ID: Final = re.compile(rb'"trace_id"\s*:\s*"([^"\\]+)"')


def read_line(line: ReportLine) -> AnswerVersion:
    """Read one answer of a report.

    A report has what a carrier has, and no limits. It leaves out the run, the trace, and the metadata of
    chunks.

    Raises:
        InputError: the line is no answer of a report; names file, line and field, and quotes nothing.
    """
    row = _parsed(line)
    judged = row.judged()
    is_newer = row.version > SCHEMA_VERSION
    return AnswerVersion(
        judged=judged,
        evaluation_id=judged.carrier_span_id or "",
        notices=(_newer(row.version),) if is_newer else (),
    )


def _parsed(line: ReportLine) -> _Answer:
    try:
        tree: Any = json.loads(line.text)
    except (ValueError, RecursionError):
        raise InputError(f"{line.where}: is not JSON: was the report written to its end?") from None
    try:
        return _Answer.model_validate(_cleaned(tree) if _ESCAPED in line.text else tree)
    except ValidationError as exc:
        # the exception's own message would quote the row
        fault = exc.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, fault["loc"])) or "it"
        raise InputError(f"{line.where}: is no answer of a report: `{field}`: {fault['type']}") from None


_ESCAPED: Final = b"\\u"


def _cleaned(value: Any) -> Any:
    """Replace lone surrogates, which no page can show. In JSON, they are escapes."""
    match value:
        case list():
            return [_cleaned(member) for member in value]
        case dict():
            return {clean_text(key): _cleaned(member) for key, member in value.items()}
        case _:
            return clean_text(value)


def _newer(version: int) -> str:
    return (
        f"A newer ragtrace wrote this report (version {version}, and this one reads {SCHEMA_VERSION}): what"
        " is new in it is not shown"
    )


def _judge(name: str) -> JudgeIdentity:
    return JudgeIdentity.of_name(name)


def _nanoseconds(moment: str | None) -> int:
    try:
        found = datetime.fromisoformat(moment or "")
    except ValueError:
        return 0
    since = found.astimezone(UTC) - datetime.fromtimestamp(0, UTC)
    return since // timedelta(microseconds=1) * 1_000
