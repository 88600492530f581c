"""The records of a selection: which answers are judged, and how they were chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ragtrace import semconv
from ragtrace.backfill._kept_turns import KeptTurns
from ragtrace.backfill._selection import Selection, SpanId
from ragtrace.backfill._trace_search import SearchedUpTo, find
from ragtrace.backfill.report import RunCounts
from ragtrace.backfill.resume import ResumableRun
from ragtrace.conversations.judging import turn_on_carrier, undecided_turn
from ragtrace.conversations.turns import SessionSettings
from ragtrace.errors import ConfigError
from ragtrace.model import RagRecord, Sample, Screening
from ragtrace.pipeline.evaluation import suspicion_of
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import TraceReader
from ragtrace.sampling import SamplingPlan, keeps
from ragtrace.traces.attach import carrier_span_id, tenant_of
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.trace import Span, Trace

if TYPE_CHECKING:
    from ragtrace.backfill._earlier_turns import EarlierTurns


class SelectedRecord(NamedTuple):
    """A record to judge, and how it was sampled."""

    record: RagRecord
    sample: Sample
    earlier: tuple[Span, ...]
    """The carriers of other evaluators for the same record, and spans of its session."""
    tenant: str = ""
    """Whose session it is part of, if sessions are judged."""


Item = SelectedRecord | SearchedUpTo


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurns:
    """What becomes of records that are turns of sessions."""

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
    turns: SessionTurns | EarlierTurns | None = None,
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
    turns: SessionTurns | EarlierTurns | None,
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
