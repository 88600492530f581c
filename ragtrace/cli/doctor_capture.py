"""What an application's spans hold for judging, for ``ragtrace doctor --app``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Any, Final

from ragtrace.capture.settings import resolve
from ragtrace.cli.doctor_application import AppRun
from ragtrace.cli.doctor_checks import Check
from ragtrace.cli.render import many, one_line
from ragtrace.model import MetricResult, RagRecord, SkipReason
from ragtrace.pipeline.evaluation import evaluate
from ragtrace.traces.extract import Extraction, extract_records
from ragtrace.traces.trace import Span, Trace

_NOTHING_TO_JUDGE: Final = frozenset(
    {
        SkipReason.NO_CONTENT,
        SkipReason.NO_RETRIEVAL,
        SkipReason.EMPTY_RETRIEVAL,
        SkipReason.REDACTED,
        SkipReason.TRUNCATED,
        SkipReason.INCOMPLETE,
        SkipReason.FAILED_CALL,
    }
)
"""Reasons in what was captured. Other reasons are in the answer or the judge."""
_SHOWN_CHARS: Final = 200
_ZERO_CODE: Final = (
    "call `ragtrace.instrument()` where the application starts; or, without touching it, "
    "pip install opentelemetry-distro and run it by `opentelemetry-instrument python app.py`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCall:
    """A RAG call of a trace, and whether it can be judged."""

    record: RagRecord
    reason: SkipReason | None
    """Why it will not be judged."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTrace:
    """A trace, and the RAG calls in it."""

    trace: Trace
    extraction: Extraction
    calls: tuple[CapturedCall, ...]

    @property
    def judged(self) -> int:
        """How many of the calls will be judged."""
        return sum(call.reason is None for call in self.calls)


async def captured_traces(run: AppRun) -> tuple[CapturedTrace, ...]:
    """Put the spans together by trace, in order of arrival, and find the RAG calls."""
    spans: dict[str, list[Span]] = {}
    for span in run.spans:
        spans.setdefault(span.trace_id, []).append(span)
    return tuple([await _captured(Trace.of(trace_id, members)) for trace_id, members in spans.items()])


async def _captured(trace: Trace) -> CapturedTrace:
    extraction = extract_records(trace)
    calls = tuple([await _call(record) for record in extraction.records])
    return CapturedTrace(trace=trace, extraction=extraction, calls=calls)


async def _call(record: RagRecord) -> CapturedCall:
    """Let the judge that needs no key have it: what it cannot be asked about, no judge can."""
    (outcome,) = (await evaluate(record)).outcomes
    if isinstance(outcome, MetricResult) and outcome.skip_reason in _NOTHING_TO_JUDGE:
        return CapturedCall(record=record, reason=outcome.skip_reason, detail=outcome.explanation or "")
    return CapturedCall(record=record, reason=None)


def check_run(command: str, run: AppRun) -> Check:
    """Say how the application ended."""
    after = f"after {run.seconds:.1f} s"
    name = f"app {one_line(command)}"
    if run.was_stopped:
        return Check(name=name, status="ok", found=f"was stopped {after}")
    if run.exit_code < 0:
        return Check(
            name=name, status="warn", found=f"was ended by {Signals(-run.exit_code).name} {after}: {_LOST}"
        )
    if run.exit_code:
        return Check(name=name, status="warn", found=f"ended with exit code {run.exit_code} {after}")
    return Check(name=name, status="ok", found=f"ended with exit code 0 {after}")


_LOST: Final = "spans of its last moment may be lost"


def check_capture(run: AppRun) -> Iterator[Check]:
    """Say who captures, what becomes of each library that was imported, and whether spans came."""
    yield _instrumented(run)
    libraries: dict[str, Mapping[str, Any]] = {
        each["name"]: each for each in run.journal if each["event"] == "library"
    }
    yield from (_library(name, found) for name, found in libraries.items())
    if run.unreadable:
        yield Check(name="requests", status="warn", found=f"{run.unreadable} could not be read as OTLP")
    if not run.spans and any(each["event"] == "on" for each in run.journal):
        yield Check(
            name="spans",
            status="fail",
            found="none came",
            advice="ask the application a question while it runs; mark its own code with @ragtrace.rag, "
            "@ragtrace.retrieval and ragtrace.generation (docs/instrument.md)",
        )


def _instrumented(run: AppRun) -> Check:
    name, events = "ragtrace.instrument()", {each["event"]: each for each in run.journal}
    if "on" in events:
        return Check(name=name, status="ok", found=f"was called: {_destination(events['on'])}")
    if "disabled" in events:
        return Check(
            name=name,
            status="fail",
            found="was called, and does nothing",
            advice="unset RAGTRACE_DISABLED and OTEL_SDK_DISABLED",
        )
    if run.spans:
        return Check(name=name, status="ok", found="was not called: other code writes the spans")
    return Check(name=name, status="fail", found="was never called, and no spans came", advice=_ZERO_CODE)


def _destination(on: Mapping[str, Any]) -> str:
    """Say where spans go when nobody looks."""
    if on["by"] == "code":
        return f"without the doctor, spans go to {on['target']}"
    if on["joined"]:
        return "it joined the application's tracer provider; without the doctor, spans go where that exports"
    settings = resolve(os.environ)
    named = "" if settings.target_by == "environment" else ", the default, as no endpoint was named"
    return f"without the doctor, spans go to {settings.target}{named}"


def _library(name: str, found: Mapping[str, Any]) -> Check:
    title = f"library {name}"
    match found["state"]:
        case "missing" if found["by"]:
            return Check(
                name=title, status="ok", found=f"is traced if {found['by']} calls it, but not on its own"
            )
        case "missing":
            return Check(
                name=title,
                status="fail",
                found="is imported, but its calls are not traced",
                advice=f"pip install {found['package']}",
            )
        case "traced":
            return Check(name=title, status="ok", found=f"is traced: spans by {found['by']}")
        case "left":
            return Check(name=title, status="ok", found=f"{found['by']} traces it already")
    package = found["package"]
    return Check(
        name=title,
        status="fail",
        found=f"is imported, but its calls are not traced: {package or 'what traces it'} does not fit it",
        advice=f"pip install --upgrade {package}" if package else f"upgrade {name}",
    )


def check_trace(captured: CapturedTrace, *, show_content: bool) -> Check:
    """Say what a trace is made of, what was found in it, and what will come of that."""
    scopes = Counter(span.scope.name or "(no name)" for span in captured.trace.spans)
    made_of = ", ".join(f"{one_line(name)} {number}" for name, number in scopes.items())
    lines = [f"{many(len(captured.trace.spans), 'span')}: {made_of}"]
    for call in captured.calls:
        lines += _call_lines(call, show_content=show_content)
    notes = [note.text for note in captured.extraction.notes if note.span_id is None]
    reasons = [f"{call.reason}: {one_line(call.detail)}" for call in captured.calls if call.reason]
    if not captured.calls:
        lines.append("no RAG call")
    return Check(
        name=f"trace {captured.trace.trace_id}",
        status="ok" if captured.judged else "fail",
        found="\n".join(lines),
        advice="\n".join(dict.fromkeys([*reasons, *map(one_line, notes)])) or None,
    )


def _call_lines(call: CapturedCall, *, show_content: bool) -> Iterator[str]:
    record = call.record
    target = record.target
    yield f"RAG call{f' {one_line(target.name)!r}' if target else ''}"
    texts = [chunk.text or "" for chunk in record.chunks]
    chunks = f"{many(len(texts), 'chunk')}, {_length(''.join(texts))}" if texts else "missing"
    yield f"  question  {_shown(record.question, show_content=show_content)}"
    yield f"  context   {chunks}"
    if show_content:
        yield from (f"    - {_shown(text, show_content=True)}" for text in texts)
    yield f"  answer    {_shown(record.answer, show_content=show_content)}"
    yield "  this will be judged" if call.reason is None else f"  not judged: {call.reason}"


def _shown(text: str | None, *, show_content: bool) -> str:
    if text is None:
        return "missing"
    if not show_content:
        return _length(text)
    line = one_line(text)
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}… ({_length(text)})"


def _length(text: str) -> str:
    return many(len(text), "character")


def calls_json(captured: CapturedTrace, *, show_content: bool) -> Sequence[Mapping[str, object]]:
    """Return the calls of a trace for machines; texts only if they are asked for."""
    return [_call_json(call, show_content=show_content) for call in captured.calls]


def _call_json(call: CapturedCall, *, show_content: bool) -> Mapping[str, object]:
    record, texts = call.record, [chunk.text for chunk in call.record.chunks]
    lengths = {
        "question_chars": None if record.question is None else len(record.question),
        "context_chars": [None if text is None else len(text) for text in texts],
        "answer_chars": None if record.answer is None else len(record.answer),
    }
    content = {"question": record.question, "contexts": texts, "answer": record.answer}
    return {
        "span": record.target.name if record.target else None,
        **lengths,
        **(content if show_content else {}),
        "judged": call.reason is None,
        "reason": None if call.reason is None else str(call.reason),
        "detail": call.detail or None,
    }
