"""Why an answer has a score or none: what store and configuration say about a trace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from ragtrace.answers.carrier import read_carrier
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import CodecError, InputError, ReadError
from ragtrace.model import Label, RagRecord, Verdict, VerdictLabel
from ragtrace.sampling import position_of
from ragtrace.traces.otlp import SpanRef, parse_request, split_by_trace
from ragtrace_collector.assemble import OpenTrace
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.ledger import AnswerStatus
from ragtrace_collector.sampling import Sampler
from ragtrace_collector.store.ledger import Reports
from ragtrace_collector.store.reader import StoreReader
from ragtrace_collector.store.records import (
    BEHIND_ID,
    StoredTrace,
    TraceReport,
    tenant_of,
    trace_id_of,
    trace_key,
)
from ragtrace_collector.store.store import Store

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_PREFIX: Final = re.compile(r"[0-9a-f]{4,32}")
_MOST_NAMED: Final = 5
_ID_DIGITS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpans:
    """The spans of an open trace, and the missing ones."""

    spans: int
    has_root: bool
    missing_parents: tuple[str, ...]
    """Spans that others name as their parent and that have not arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceState(StoredTrace):
    """A trace in the store, and what it waits for."""

    open_spans: OpenSpans | None = None
    """None if it is not open, or its spans cannot be decrypted."""
    ready_ns: int | None = None
    """When its decision is due if no more spans come; None without a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSampling:
    """The decision by the trace id alone, before any span is read."""

    position: float
    """Of the trace id, in [0, 1): a trace is kept if this is below the highest rate."""
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationStatus:
    """An evaluation that passes or fails an answer, or of which a metric failed, as the index has it."""

    summary: AnswerSummary
    """Without its question."""
    wrong: tuple[Verdict, ...] = ()
    """The wrong claims, if content was asked for and is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatus:
    """What is known about one trace."""

    trace_id: str
    now_ns: int
    trace: TraceState | None
    answers: tuple[AnswerStatus, ...]
    head_sampling: HeadSampling | None
    """None without a configuration."""
    evaluations: tuple[EvaluationStatus, ...] = ()
    """By answer, the valid ones first."""
    content_fault: str = ""
    """Why wrong claims have no texts though content was asked for; empty if nothing is wrong."""
    linger_s: float | None = None
    retention_s: float | None = None


def trace_id_in(text: str) -> str:
    """Return the trace id, or the beginning of one, in a trace id or a W3C ``traceparent``.

    ``@`` and a tenant may follow a whole id, because several tenants may use the same trace id.

    Raises:
        InputError: it is neither.
    """
    begin, at, tenant = text.strip().partition(BEHIND_ID)
    wanted = begin.lower()
    if match := _TRACEPARENT.fullmatch(wanted):
        return f"{match[1]}{at}{tenant}"
    if at and len(wanted) == _ID_DIGITS and _PREFIX.fullmatch(wanted):
        return f"{wanted}{at}{tenant}"
    if at or not _PREFIX.fullmatch(wanted):
        raise InputError(
            f"{text!r} is not a trace id: give 32 hex digits, the first 4 or more, or a traceparent"
        )
    return wanted


async def look_up(
    store: Store | Reports,
    index: AnswerIndex,
    wanted: str,
    *,
    config: CollectorConfig | None = None,
    sampler: Sampler | None = None,
    now_ns: int,
    tenant: str | None = None,
    content: StoreReader | None = None,
) -> TraceStatus:
    """Look a trace up by its id or a prefix of it. The collector may run meanwhile.

    With ``tenant``, only that tenant's traces are visible; with ``content``, wrong claims have their texts.
    With ``config``, the status says what the trace waits for; with ``sampler``, what head sampling decides.

    Raises:
        RagtraceError: the store cannot be read.
        InputError: several traces have this prefix, or none.
    """
    key = await _whole_key(store, wanted, tenant)
    report = await store.trace_report(key)
    trace_id = trace_id_of(key)
    evaluations, content_fault = await _evaluations(index, key, report.answers, content)
    status = TraceStatus(
        trace_id=trace_id,
        now_ns=now_ns,
        trace=TraceState(**asdict(report.trace), open_spans=_open_spans(report)) if report.trace else None,
        answers=report.answers,
        evaluations=evaluations,
        content_fault=content_fault,
        head_sampling=HeadSampling(position=position_of(trace_id), is_kept=sampler.may_keep(trace_id))
        if sampler
        else None,
    )
    return _with_config(status, config) if config else status


async def _evaluations(
    index: AnswerIndex, key: str, answers: Sequence[AnswerStatus], content: StoreReader | None
) -> tuple[tuple[EvaluationStatus, ...], str]:
    """Return the evaluations of the answers, and why their texts cannot be read."""
    found: list[EvaluationStatus] = []
    fault = ""
    for answer in answers:
        owner = tenant_of(key) or answer.tenant
        wanted = AnswerKey(answer.trace_id, answer.span_id, owner)
        versions = await index.versions(wanted)
        wrong: Mapping[str, tuple[Verdict, ...]] = {}
        try:
            wrong = await _wrong_claims(content, wanted) if content and versions else {}
        except ReadError as exc:
            fault = str(exc)
        found.extend(
            EvaluationStatus(summary=replace(one, question=""), wrong=wrong.get(one.carrier_span_id, ()))
            for one in versions
            if one.label is not Label.SKIPPED
        )
    return tuple(found), fault


async def _wrong_claims(content: StoreReader, key: AnswerKey) -> Mapping[str, tuple[Verdict, ...]]:
    """Return the wrong claims by carrier.

    Raises:
        ReadError: what is kept of the answer is damaged, or encrypted with a key that was not given.
    """
    kept = await content.kept(key)
    record = kept.record or RagRecord(id="", question=None, chunks=(), answer=None)
    found: dict[str, tuple[Verdict, ...]] = {}
    for carrier in kept.carriers:
        version = read_carrier(carrier, record)
        verdicts = {
            verdict.claim.index: verdict
            for result in version.judged.evaluation.results
            for verdict in result.verdicts
            if verdict.label in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
        }
        found[version.evaluation_id] = tuple(verdicts.values())
    return found


async def _whole_key(store: Store | Reports, wanted: str, tenant: str | None) -> str:
    """Return the key of the one trace that matches. An unknown whole id is its own key."""
    trace_id = trace_id_of(wanted)
    if BEHIND_ID in wanted:
        return trace_key(trace_id, tenant_of(wanted) if tenant is None else tenant)
    found = await store.find_traces(trace_id, limit=_MOST_NAMED + 1, tenant=tenant)
    if len(found) == 1:
        return found[0]
    is_whole = len(trace_id) == _ID_DIGITS
    if not found and is_whole:
        return trace_key(trace_id, tenant)
    if not found:
        raise InputError(f"no trace in the store begins with {wanted}: give the whole id to see more")
    more = " and others" if len(found) > _MOST_NAMED else ""
    named = [f"{trace_id_of(key)}{BEHIND_ID}{tenant_of(key)}" if is_whole else key for key in found]
    what = f"several tenants have a trace {wanted}" if is_whole else f"several traces begin with {wanted}"
    raise InputError(f"{what}: {', '.join(named[:_MOST_NAMED])}{more}")


def _open_spans(report: TraceReport) -> OpenSpans | None:
    if report.trace is None or not report.trace.is_open or report.payloads is None:
        return None
    trace = OpenTrace(last_arrival_ns=0)
    try:
        for payload in report.payloads:
            trace.add(_refs(payload), 0)
    except CodecError:  # encrypted, and no key is configured
        return None
    return OpenSpans(
        spans=trace.number_of_spans, has_root=trace.has_root, missing_parents=trace.missing_parents
    )


def _refs(payload: bytes) -> tuple[SpanRef, ...]:
    request = parse_request(payload, encoding="protobuf")
    return tuple(ref for part in split_by_trace(request, body=payload).slices for ref in part.spans)


def _with_config(status: TraceStatus, config: CollectorConfig) -> TraceStatus:
    trace = status.trace
    return replace(
        status,
        trace=replace(trace, ready_ns=_ready_ns(trace, config)) if trace else None,
        linger_s=config.assemble.linger.total_seconds(),
        retention_s=config.store.retention.total_seconds(),
    )


def _ready_ns(trace: TraceState, config: CollectorConfig) -> int | None:
    if trace.open_spans is None:
        return None
    is_complete = trace.open_spans.has_root and not trace.open_spans.missing_parents
    wait = config.assemble.quiet_period if is_complete else config.assemble.deadline
    return trace.last_arrival_ns + int(wait.total_seconds() * 1e9)
