"""The records of a selection: which answers are judged, and how they were chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ragtrace import semconv
from ragtrace.backfill._selection import Selection, SpanId
from ragtrace.backfill._trace_search import SearchedUpTo, find
from ragtrace.backfill.report import RunCounts
from ragtrace.backfill.resume import ResumableRun
from ragtrace.model import RagRecord
from ragtrace.pipeline.screening import suspicion_of
from ragtrace.ports import TraceReader
from ragtrace.sampling import keeps
from ragtrace.traces.attach import Sample, Screening, carrier_span_id, tenant_of
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.trace import Span, Trace


class SelectedRecord(NamedTuple):
    """A record to judge, and how it was sampled."""

    record: RagRecord
    sample: Sample
    earlier: tuple[Span, ...]
    """The carriers of other evaluators for the same record."""


Item = SelectedRecord | SearchedUpTo


async def choose(
    reader: TraceReader,
    selection: Selection,
    ledger: RunCounts,
    evaluator: Mapping[str, str],
    run: ResumableRun | None,
) -> AsyncIterator[Item]:
    """Yield the records to judge and the progress of the search; other records are only counted."""
    taken = 0
    if selection.limit == 0:
        return
    of_trace = partial(_of, selection=selection, ledger=ledger, evaluator=evaluator, run=run)
    async for found in find(reader, selection, ledger):
        items: Iterable[Item] = (found,) if isinstance(found, SearchedUpTo) else await of_trace(found)
        for item in items:
            if run is not None and run.stop.is_set():
                return
            yield item
            taken += isinstance(item, SelectedRecord)
            if taken == selection.limit:
                return


async def _of(
    trace: Trace,
    *,
    selection: Selection,
    ledger: RunCounts,
    evaluator: Mapping[str, str],
    run: ResumableRun | None,
) -> Sequence[SelectedRecord]:
    """Choose among the records of a trace."""
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
        else:
            screening = None if suspicion is None else Screening(suspicion, 1.0)
            sample = Sample(rule=choice.rule, rate=choice.rate, probability=choice.rate, screening=screening)
            earlier = present.about.get(record.target.span_id, ())
            chosen.append(SelectedRecord(record, sample, earlier))
    return chosen


class _Present(NamedTuple):
    """The carriers that a trace already has."""

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
