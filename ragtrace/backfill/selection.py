"""Which stored answers are judged: the traces of a selection, their records, and how these were chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeGuard

from ragtrace import semconv
from ragtrace.backends.http_api import windows
from ragtrace.backfill.progress import KeptTurns, ResumableRun
from ragtrace.backfill.report import RunCounts
from ragtrace.conversations.judging import turn_on_carrier, undecided_turn
from ragtrace.conversations.turns import SessionSettings
from ragtrace.errors import ConfigError, ReadError
from ragtrace.model import RagRecord, Sample, Screening
from ragtrace.pipeline.evaluation import suspicion_of
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import TraceQuery, TraceReader, TraceSearch
from ragtrace.sampling import SamplingPlan, keeps
from ragtrace.traces.attach import carrier_span_id, tenant_of
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.trace import Span, Trace


class SpanId(NamedTuple):
    """The globally unique id of a span."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records of a source are judged."""

    trace_ids: tuple[str, ...] = ()
    """Only these traces."""
    query: TraceQuery | None = None
    """Only traces that it finds. Without a query and trace ids, every trace of the source; only files support
    that."""
    sampling: SamplingPlan = field(default_factory=SamplingPlan)
    """The share of answers and its rules; the choice is the same as the collector's."""
    limit: int | None = None
    """Stop after this many records that were not judged before."""
    only_unscored: bool = False
    """Skip answers that any ragtrace evaluator has judged; otherwise only those that this one has."""
    done: Collection[SpanId] = frozenset()
    """Spans that the destination already has, from `span_ids`."""
    rules: ExtractRules = field(default_factory=ExtractRules)
    """How RAG calls are extracted: custom attributes, and sources of context."""


_MOST_FAILURES: Final = 3
"""After this many unreadable traces in a row, the source counts as failed."""


class SearchedUpTo(NamedTuple):
    """Everything before this moment was found: a later run can resume here."""

    time_ns: int


async def find(
    reader: TraceReader, selection: Selection, ledger: RunCounts
) -> AsyncIterator[Trace | SearchedUpTo]:
    """Yield the traces of a selection; those of a search oldest first.

    If a source breaks off, the counts record why, and no more traces follow.

    Raises:
        ReadError: no trace of the source could be read.
        ConfigError: the source does not support the query.
    """
    try:
        async for found in _found(reader, selection, ledger):
            yield found
    except ReadError as exc:
        if not ledger.traces:
            raise
        ledger.broken_off = str(exc)


def matches(trace: Trace, query: TraceQuery) -> bool:
    """Return whether a trace began within the query's time and one of its spans matches all conditions.

    Raises:
        ConfigError: the query is written in TraceQL, which only Tempo understands.
    """
    if query.traceql is not None:
        raise ConfigError(
            "only Tempo takes TraceQL: give a service, an operation or tags to select from files"
        )
    return query.since_ns <= trace.spans[0].start_ns < query.until_ns and any(
        _span_matches(span, query) for span in trace.spans
    )


async def _found(
    reader: TraceReader, selection: Selection, ledger: RunCounts
) -> AsyncIterator[Trace | SearchedUpTo]:
    if selection.trace_ids:
        by_id = _ById(reader, ledger)
        for trace_id in dict.fromkeys(selection.trace_ids):
            if trace := await by_id.get(trace_id):
                yield trace
    elif selection.query is not None and _can_search(reader):
        async for found in _searched(reader, selection.query, ledger):
            yield found
    else:
        async for trace in _all(reader, selection.query):
            ledger.traces += 1
            yield trace


def _span_matches(span: Span, query: TraceQuery) -> bool:
    resource = span.resource.attributes
    return (
        query.service in (None, resource.get(semconv.SERVICE_NAME))
        and query.operation in (None, span.name)
        and all(
            _text(span.attributes.get(key, resource.get(key))) == value for key, value in query.tags.items()
        )
    )


def _text(value: object) -> str | None:
    """Return the text of a value as back ends compare it with a tag."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _all(reader: TraceReader, query: TraceQuery | None) -> AsyncIterator[Trace]:
    async for trace in reader.traces():
        if query is None or matches(trace, query):
            yield trace


async def _searched(
    reader: TraceSearch, query: TraceQuery, ledger: RunCounts
) -> AsyncIterator[Trace | SearchedUpTo]:
    by_id = _ById(reader, ledger)
    async for window in windows(reader, query):
        ledger.cut_windows += window.is_cut
        for trace_id, trace in window.found.items():
            if trace is not None:
                ledger.traces += 1
                yield trace
            elif got := await by_id.get(trace_id):
                yield got
        yield SearchedUpTo(window.until_ns)


class _ById:
    """Reads traces one by one; an unreadable one does not stop the others."""

    def __init__(self, reader: TraceReader, ledger: RunCounts) -> None:
        self._reader = reader
        self._ledger = ledger
        self._failed_in_a_row = 0

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace if it exists and can be read.

        Raises:
            ReadError: no trace could be read so far, or several in a row could not.
        """
        try:
            trace = await self._reader.get(trace_id)
        except ReadError:
            self._failed_in_a_row += 1
            if not self._ledger.traces or self._failed_in_a_row == _MOST_FAILURES:
                raise
            self._ledger.unread.append(trace_id)
            return None
        self._failed_in_a_row = 0
        if trace is None:
            self._ledger.not_found.append(trace_id)
        else:
            self._ledger.traces += 1
        return trace


def _can_search(reader: TraceReader) -> TypeGuard[TraceSearch]:
    return hasattr(reader, "search")


class SelectedRecord(NamedTuple):
    """A record to judge, and how it was sampled."""

    record: RagRecord
    sample: Sample
    earlier: tuple[Span, ...]
    """The carriers of other evaluators for the same record, and spans of its session."""
    tenant: str = ""
    """Whose session it is part of, if sessions are judged."""


Item = SelectedRecord | SearchedUpTo


@dataclass(frozen=True, kw_only=True)
class SessionTurns:
    """What becomes of records that are turns of sessions; `choose` tells it of those judged before."""

    kept: KeptTurns
    tenant: str
    """The attribute that names the tenant."""

    def tenant_of(self, trace: Trace, record: RagRecord) -> str:
        """Return the tenant of an answer, as the collector finds it."""
        return SamplingPlan(tenant=self.tenant).of_trace(trace).tenant_of(record)

    async def keep_known(
        self, trace: Trace, record: RagRecord, carriers: Sequence[Span], carrier_id: str
    ) -> None:
        """Keep a record that was judged before, as its carrier tells it.

        If the source has no carrier, the destination has: unless its turn is kept already, nothing is known
        of its verdict.
        """
        tenant = self.tenant_of(trace, record)
        placed = turn_on_carrier(record, carriers, tenant=tenant)
        if placed is not None:
            await self.kept.add(placed, carriers)
        elif undecided := undecided_turn(record, carrier_id, tenant=tenant):
            await self.kept.add_known(undecided)


def session_turns(
    run: ResumableRun | None, evaluator: Evaluator, sessions: SessionSettings | None
) -> SessionTurns | None:
    """Return what keeps turns in the progress file of a run; ``None`` if sessions are not judged.

    Raises:
        ConfigError: there is no run to keep them.
    """
    if sessions is None:
        return None
    if run is None:
        raise ConfigError("sessions are judged at the end of a run that keeps their turns: give `run`")
    kept = KeptTurns(progress=run.progress, evaluator=evaluator.version)
    return SessionTurns(kept=kept, tenant=sessions.tenant)


async def choose(
    reader: TraceReader,
    selection: Selection,
    ledger: RunCounts,
    evaluator: Mapping[str, str],
    run: ResumableRun | None,
    turns: SessionTurns | None = None,
) -> AsyncIterator[Item]:
    """Yield the records to judge and the progress of the search; other records are only counted.

    ``turns`` is told of the records that were judged before, which may be turns of sessions.
    """
    taken = 0
    if selection.limit == 0:
        return
    of_trace = partial(_of, selection=selection, ledger=ledger, evaluator=evaluator, run=run, turns=turns)
    async for found in find(reader, selection, ledger):
        items: Iterable[Item] = (found,) if isinstance(found, SearchedUpTo) else await of_trace(found)
        for item in items:
            if run is not None and run.stop.is_set():
                return
            yield item
            taken += isinstance(item, SelectedRecord)
            if taken == selection.limit:
                ledger.is_limited = True
                return


async def _of(
    trace: Trace,
    *,
    selection: Selection,
    ledger: RunCounts,
    evaluator: Mapping[str, str],
    run: ResumableRun | None,
    turns: SessionTurns | None,
) -> Sequence[SelectedRecord]:
    present, plan = _present(trace), selection.sampling.of_trace(trace)
    chosen = []
    for record in _records(trace, selection.rules, ledger):
        assert record.target is not None
        span_id = carrier_span_id(
            trace_id=trace.trace_id,
            span_id=record.target.span_id,
            tenant=tenant_of(record.target),
            **evaluator,
        )
        carrier_id = SpanId(trace.trace_id, span_id)
        ledger.records += 1
        suspicion = await suspicion_of(record) if plan.suspicion else None
        choice = plan.choose(record, suspicion)
        if not keeps(trace.trace_id, choice.rate):
            ledger.sampled_out += 1
        elif (
            span_id in present.carriers
            or (selection.only_unscored and record.target.span_id in present.about)
            or carrier_id in selection.done
            or (run is not None and run.progress.has(*carrier_id))
        ):
            ledger.already_evaluated += 1
            if turns is not None:
                await turns.keep_known(trace, record, present.about.get(record.target.span_id, ()), span_id)
        else:
            screening = None if suspicion is None else Screening(suspicion, 1.0)
            sample = Sample(rule=choice.rule, rate=choice.rate, probability=choice.rate, screening=screening)
            earlier = present.about.get(record.target.span_id, ())
            tenant = turns.tenant_of(trace, record) if turns else ""
            chosen.append(SelectedRecord(record, sample, earlier, tenant))
    return chosen


class _Present(NamedTuple):
    carriers: frozenset[str]
    """Span ids of carriers."""
    about: Mapping[str | None, tuple[Span, ...]]
    """Carriers by the span of their answer."""


def _present(trace: Trace) -> _Present:
    carriers = [span for span in trace.spans if span.scope.name == semconv.SCOPE_EVALUATION]
    about: dict[str | None, tuple[Span, ...]] = {}
    for span in carriers:
        about[span.parent_span_id] = (*about.get(span.parent_span_id, ()), span)
    return _Present(carriers=frozenset(span.span_id for span in carriers), about=about)


def _records(trace: Trace, rules: ExtractRules, ledger: RunCounts) -> tuple[RagRecord, ...]:
    try:
        records = extract_records(trace, rules).records
    except Exception as exc:  # noqa: BLE001 -- one trace must not end the run: spans come from any application
        ledger.unreadable[type(exc).__name__] += 1
        return ()
    ledger.without_record += not records
    return records
