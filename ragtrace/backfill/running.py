"""Back-fill: judge the RAG answers of traces that are stored already, and send the verdicts after them.

Read, extract, sample, judge, attach, send: the same steps and the same span ids as in the collector, so that
a second run, or a run beside a collector, makes no second opinion of the same evaluator.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ragtrace.clock import SystemClock
from ragtrace.errors import SendRejected, SendRetryable
from ragtrace.evaluation import evaluate, evaluator_set, evaluator_version
from ragtrace.in_order import map_in_order
from ragtrace.judge import ScriptedJudge
from ragtrace.model import Evaluation, RagRecord, Usage
from ragtrace.ports import Clock, Judge, Metric, SpanSink, TraceReader
from ragtrace.sampling import SamplingPlan, keeps
from ragtrace.traces.attach import AttachOptions, Sample, carrier, carrier_span_id, deserves_carrier
from ragtrace.traces.extract import AttributeMapping, extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Trace

__all__ = ["BackfillReport", "Selection", "SpanId", "backfill", "rehearse", "span_ids"]

_SEND_ATTEMPTS: Final = 6
_LONGEST_PAUSE_S: Final = 30.0


class SpanId(NamedTuple):
    """Names a span among all."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records of a source are judged."""

    trace_ids: tuple[str, ...] = ()
    """Empty: every trace of the source."""
    sampling: SamplingPlan = field(default_factory=SamplingPlan)
    """The share of answers, and rules that raise it; chosen as the collector chooses."""
    limit: int | None = None
    """Stop after so many records that were not judged before."""
    done: Collection[SpanId] = frozenset()
    """Spans that the destination has already, as `span_ids` finds them."""
    mapping: AttributeMapping | None = None
    """Attributes of the application's own that hold the parts of a RAG call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    """What became of every trace and every record: ``records`` is the sum of ``sampled_out``,
    ``already_evaluated``, ``judged``, ``skipped`` and ``failed``."""

    traces: int
    not_found: tuple[str, ...]
    """Trace ids that were asked for and that the source does not have."""
    unreadable: Mapping[str, int]
    """Traces whose spans broke the extraction, by the type of the error."""
    without_record: int
    """Traces that hold no RAG call."""
    records: int
    sampled_out: int
    already_evaluated: int
    """By the same evaluator version: their carrier stands in the source or the destination."""
    judged: int
    skipped: Mapping[str, int]
    """Records without a score because there was nothing to judge, by reason."""
    failed: Mapping[str, int]
    """Records the judge failed on, by type. Nothing was sent about them: a second run tries them again."""
    labels: Mapping[str, int]
    """``pass`` and ``fail`` of the metrics that scored."""
    sent: int
    rejected: Mapping[str, int]
    """Carriers that the destination will never take, by what it said."""
    usage: Usage

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed, was rejected or was not there."""
        return not (self.not_found or self.unreadable or self.failed or self.rejected)


async def backfill(
    reader: TraceReader,
    sink: SpanSink,
    *,
    metrics: Sequence[Metric],
    judge: Judge,
    second_judge: Judge | None = None,
    selection: Selection | None = None,
    attach: AttachOptions | None = None,
    concurrency: int = 8,
    on_evaluated: Callable[[RagRecord, Evaluation], None] | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> BackfillReport:
    """Judge the selected records and send a carrier for each that has an outcome.

    ``on_evaluated`` is called in the order of the source. A record that the judge failed on gets no carrier,
    so that a second run tries it again; neither does a plain chat answer that never had a context.

    Raises:
        ReadError: the source could not be read.
        SendRetryable: the destination took nothing in several attempts; what was sent before stays sent.
    """
    selection, attach, clock = selection or Selection(), attach or AttachOptions(), clock or SystemClock()
    ledger = _Ledger()

    async def work(candidate: _Candidate) -> tuple[_Candidate, Evaluation]:
        evaluation = await evaluate(
            candidate.record, metrics=metrics, judge=judge, second_judge=second_judge, clock=clock
        )
        return candidate, evaluation

    async def deliver(pair: tuple[_Candidate, Evaluation]) -> None:
        (record, sample), evaluation = pair
        ledger.count(evaluation)
        if on_evaluated is not None:
            on_evaluated(record, evaluation)
        if evaluation.results and deserves_carrier(evaluation):
            span = carrier(
                evaluation, record, sample=sample, options=attach, now_ns=clock.now_ns(), mode="backfill"
            )
            await _send(sink, encode([span]), ledger, sleep=sleep)

    evaluator = _evaluator(metrics, judge, second_judge)
    candidates = _candidates(reader, selection, ledger, evaluator)
    await map_in_order(candidates, work, deliver, concurrency=concurrency)
    return ledger.report()


async def rehearse(
    reader: TraceReader,
    *,
    metrics: Sequence[Metric],
    judge: Judge,
    second_judge: Judge | None = None,
    selection: Selection | None = None,
    concurrency: int = 8,
) -> BackfillReport:
    """Say what a back-fill would do; the judge is not asked, and nothing is sent.

    ``judged`` counts the records that would be judged. ``usage`` is an estimate: one claim a sentence, a
    token for every four characters, and no question asked twice.

    Raises:
        ReadError: the source could not be read.
    """
    ledger, stand_in = _Ledger(), ScriptedJudge()

    async def work(candidate: _Candidate) -> Evaluation:
        return await evaluate(candidate.record, metrics=metrics, judge=stand_in)

    async def count(evaluation: Evaluation) -> None:
        stand_in.requests.clear()
        ledger.count(evaluation)

    evaluator = _evaluator(metrics, judge, second_judge)
    candidates = _candidates(reader, selection or Selection(), ledger, evaluator)
    await map_in_order(candidates, work, count, concurrency=concurrency)
    ledger.labels.clear()  # those of the stand-in
    return ledger.report()


async def span_ids(reader: TraceReader) -> frozenset[SpanId]:
    """Collect the spans that a source has.

    Raises:
        ReadError: it could not be read.
    """
    return frozenset(
        [SpanId(span.trace_id, span.span_id) async for trace in reader.traces() for span in trace.spans]
    )


def _evaluator(metrics: Sequence[Metric], judge: Judge, second_judge: Judge | None) -> Mapping[str, str]:
    version = evaluator_version(metrics, judge, second_judge=second_judge)
    return {"evaluator_set": evaluator_set(metrics), "evaluator_version": version}


class _Candidate(NamedTuple):
    """A record to judge, and how it was chosen."""

    record: RagRecord
    sample: Sample


async def _candidates(
    reader: TraceReader, selection: Selection, ledger: _Ledger, evaluator: Mapping[str, str]
) -> AsyncIterator[_Candidate]:
    """Yield the records to judge; the others are only counted."""
    taken = 0
    async for trace in _traces(reader, selection.trace_ids, ledger):
        present, plan = {span.span_id for span in trace.spans}, selection.sampling.of_trace(trace)
        for record in _records(trace, selection.mapping, ledger):
            assert record.target is not None
            carrier_id = carrier_span_id(trace_id=trace.trace_id, span_id=record.target.span_id, **evaluator)
            ledger.records += 1
            choice = plan.choose(record)
            if not keeps(trace.trace_id, choice.rate):
                ledger.sampled_out += 1
            elif carrier_id in present or SpanId(trace.trace_id, carrier_id) in selection.done:
                ledger.already_evaluated += 1
            else:
                sample = Sample(rule=choice.rule, rate=choice.rate, probability=choice.rate)
                yield _Candidate(record, sample)
                taken += 1
                if taken == selection.limit:
                    return


async def _traces(reader: TraceReader, trace_ids: Sequence[str], ledger: _Ledger) -> AsyncIterator[Trace]:
    if not trace_ids:
        async for trace in reader.traces():
            ledger.traces += 1
            yield trace
    for trace_id in dict.fromkeys(trace_ids):
        found = await reader.get(trace_id)
        if found is None:
            ledger.not_found.append(trace_id)
        else:
            ledger.traces += 1
            yield found


def _records(trace: Trace, mapping: AttributeMapping | None, ledger: _Ledger) -> tuple[RagRecord, ...]:
    try:
        records = extract_records(trace, mapping).records
    except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item: strangers' spans
        ledger.unreadable[type(exc).__name__] += 1
        return ()
    ledger.without_record += not records
    return records


async def _send(
    sink: SpanSink, payload: bytes, ledger: _Ledger, *, sleep: Callable[[float], Awaitable[None]]
) -> None:
    for attempt in range(_SEND_ATTEMPTS):
        try:
            await sink.send(payload)
        except SendRejected as exc:
            ledger.rejected[str(exc)] += 1
            return
        except SendRetryable as exc:
            if attempt == _SEND_ATTEMPTS - 1:
                raise _given_up(exc, ledger) from exc
            asked_for = exc.retry_after_s
            await sleep(min(0.5 * 2**attempt if asked_for is None else asked_for, _LONGEST_PAUSE_S))
        else:
            ledger.sent += 1
            return


def _given_up(exc: SendRetryable, ledger: _Ledger) -> SendRetryable:
    return SendRetryable(
        f"{exc} (tried {_SEND_ATTEMPTS} times; carriers sent before: {ledger.sent}). "
        "Run it again when the destination answers: the span ids will be the same"
    )


@dataclass(slots=True, kw_only=True)
class _Ledger:
    """The counts of a run under way."""

    traces: int = 0
    not_found: list[str] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)
    without_record: int = 0
    records: int = 0
    sampled_out: int = 0
    already_evaluated: int = 0
    judged: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)

    def count(self, evaluation: Evaluation) -> None:
        """Count what became of a record: judged where one metric scored, else failed, else skipped."""
        self.usage += evaluation.usage
        scored = [result for result in evaluation.results if result.score is not None]
        self.labels.update(str(result.label) for result in scored)
        if scored:
            self.judged += 1
        elif evaluation.failures:
            self.failed[evaluation.failures[0].error_type] += 1
        else:
            self.skipped[str(evaluation.results[0].skip_reason)] += 1

    def report(self) -> BackfillReport:
        """Return the counts as they stand."""
        return BackfillReport(
            traces=self.traces,
            not_found=tuple(self.not_found),
            unreadable=dict(self.unreadable),
            without_record=self.without_record,
            records=self.records,
            sampled_out=self.sampled_out,
            already_evaluated=self.already_evaluated,
            judged=self.judged,
            skipped=dict(self.skipped),
            failed=dict(self.failed),
            labels=dict(self.labels),
            sent=self.sent,
            rejected=dict(self.rejected),
            usage=self.usage,
        )
