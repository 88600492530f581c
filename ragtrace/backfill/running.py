"""The run: from stored traces to carriers at their destination."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.backends.web import Sleep
from ragtrace.backfill.finding import SearchedUpTo, find
from ragtrace.backfill.progress import Progress
from ragtrace.backfill.report import BackfillReport, Ledger
from ragtrace.backfill.selection import Selection, SpanId
from ragtrace.clock import SystemClock
from ragtrace.errors import JudgeOverBudget, SendRejected, SendRetryable
from ragtrace.evaluation import evaluate, evaluator_set, evaluator_version
from ragtrace.in_order import map_in_order
from ragtrace.judge import ScriptedJudge
from ragtrace.model import Evaluation, RagRecord
from ragtrace.ports import Clock, Judge, Metric, SpanSink, TraceReader
from ragtrace.sampling import keeps
from ragtrace.traces.attach import AttachOptions, Sample, carrier, carrier_span_id, deserves_carrier
from ragtrace.traces.extract import AttributeMapping, extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span, Trace

__all__ = ["Run", "backfill", "rehearse", "span_ids"]

_SEND_ATTEMPTS: Final = 6
_LONGEST_PAUSE_S: Final = 30.0


async def _at_once() -> None:
    """Wait for nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What makes a run one that can be stopped and gone on with."""

    progress: Progress
    name: str = ""
    """Of a search: whose reached time is noted, and gone on from."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Once it is set, what is under way is finished and nothing new begun."""
    turn: Callable[[], Awaitable[None]] = _at_once
    """Waited for before each answer is begun, so that others can go first. It ends when ``stop`` is set."""


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
    run: Run | None = None,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
) -> BackfillReport:
    """Judge the selected records and send a carrier for each that has an outcome.

    ``on_evaluated`` is called in the order of the source. A record that the judge failed on gets no carrier,
    so that a second run tries it again; neither does a plain chat answer that never had a context. Once a
    judge raises ``JudgeOverBudget``, nothing new is begun, and what remains is only counted. With
    ``run``, a carrier is on disk as soon as it is made, and what an earlier run left there is sent first.

    Raises:
        ReadError: no trace of the source could be read. One that breaks off later is told in the report.
        SendRetryable: the destination took nothing in several attempts; what was sent before stays sent.
    """
    selection, attach, clock = selection or Selection(), attach or AttachOptions(), clock or SystemClock()
    ledger = Ledger()
    delivery = _Delivery(sink=sink, ledger=ledger, run=run, sleep=sleep)

    async def work(item: _Item) -> _Judged | SearchedUpTo | None:
        if isinstance(item, SearchedUpTo):
            return item
        if not await _may_begin(run, ledger):
            return None
        record, sample, earlier = item
        evaluation = await evaluate(
            record, metrics=metrics, judge=judge, second_judge=second_judge, clock=clock
        )
        if refusal := _refusal(evaluation):
            ledger.over_budget = ledger.over_budget or refusal
            return _Judged(record, evaluation, None)
        if not (evaluation.results and deserves_carrier(evaluation)):
            return _Judged(record, evaluation, None)
        make = partial(
            carrier, evaluation, record, sample=sample, options=attach, now_ns=clock.now_ns(), mode="backfill"
        )
        span = make()
        if replaced := _superseded(span, earlier):
            span = make(supersedes=replaced)
        parcel = _Parcel(span.trace_id, span.span_id, encode([span]))
        await delivery.keep(parcel)
        return _Judged(record, evaluation, parcel)

    async def deliver(done: _Judged | SearchedUpTo | None) -> None:
        if done is None:
            ledger.left += 1
            return
        if isinstance(done, SearchedUpTo):
            await delivery.reached(done)
            return
        if _refusal(done.evaluation):
            ledger.leave(done.evaluation)
            return
        ledger.count(done.evaluation)
        if on_evaluated is not None:
            on_evaluated(done.record, done.evaluation)
        if done.parcel is not None:
            await delivery.send(done.parcel)

    await delivery.send_what_waits()
    chosen = _chosen(reader, selection, ledger, _evaluator(metrics, judge, second_judge), run)
    await map_in_order(chosen, work, deliver, concurrency=concurrency)
    ledger.is_stopped = run is not None and run.stop.is_set()
    return ledger.report()


async def rehearse(
    reader: TraceReader,
    *,
    metrics: Sequence[Metric],
    judge: Judge,
    second_judge: Judge | None = None,
    selection: Selection | None = None,
    concurrency: int = 8,
    run: Run | None = None,
) -> BackfillReport:
    """Say what a back-fill would do; the judge is not asked, and nothing is sent.

    ``judged`` counts the records that would be judged. ``usage`` is an estimate: one claim a sentence, a
    token for every four characters, and no question asked twice.

    Raises:
        ReadError: the source could not be read.
    """
    ledger, stand_in = Ledger(), ScriptedJudge()

    async def work(item: _Item) -> Evaluation | None:
        if isinstance(item, SearchedUpTo):
            return None
        return await evaluate(item.record, metrics=metrics, judge=stand_in)

    async def count(evaluation: Evaluation | None) -> None:
        stand_in.requests.clear()
        if evaluation is not None:
            ledger.count(evaluation)

    evaluator = _evaluator(metrics, judge, second_judge)
    chosen = _chosen(reader, selection or Selection(), ledger, evaluator, run)
    await map_in_order(chosen, work, count, concurrency=concurrency)
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


class _Candidate(NamedTuple):
    """A record to judge, and how it was chosen."""

    record: RagRecord
    sample: Sample
    earlier: tuple[Span, ...]
    """The carriers of other evaluators about it."""


_Item = _Candidate | SearchedUpTo


class _Parcel(NamedTuple):
    """A carrier on its way."""

    trace_id: str
    span_id: str
    payload: bytes


class _Judged(NamedTuple):
    """What became of a candidate."""

    record: RagRecord
    evaluation: Evaluation
    parcel: _Parcel | None


def _evaluator(metrics: Sequence[Metric], judge: Judge, second_judge: Judge | None) -> Mapping[str, str]:
    version = evaluator_version(metrics, judge, second_judge=second_judge)
    return {"evaluator_set": evaluator_set(metrics), "evaluator_version": version}


async def _chosen(
    reader: TraceReader,
    selection: Selection,
    ledger: Ledger,
    evaluator: Mapping[str, str],
    run: Run | None,
) -> AsyncIterator[_Item]:
    """Yield the records to judge, and how far they were searched for; the others are only counted."""
    taken = 0
    choose = partial(_of, selection=selection, ledger=ledger, evaluator=evaluator, run=run)
    async for found in find(reader, selection, ledger):
        items: Iterable[_Item] = (found,) if isinstance(found, SearchedUpTo) else choose(found)
        for item in items:
            if run is not None and run.stop.is_set():
                return
            yield item
            taken += isinstance(item, _Candidate)
            if taken == selection.limit:
                return


def _of(
    trace: Trace, *, selection: Selection, ledger: Ledger, evaluator: Mapping[str, str], run: Run | None
) -> Iterator[_Candidate]:
    """Choose among the records of a trace."""
    present, plan = _present(trace), selection.sampling.of_trace(trace)
    for record in _records(trace, selection.mapping, ledger):
        assert record.target is not None
        span_id = carrier_span_id(trace_id=trace.trace_id, span_id=record.target.span_id, **evaluator)
        carrier_id = SpanId(trace.trace_id, span_id)
        ledger.records += 1
        choice = plan.choose(record)
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
            sample = Sample(rule=choice.rule, rate=choice.rate, probability=choice.rate)
            yield _Candidate(record, sample, present.about.get(record.target.span_id, ()))


async def _may_begin(run: Run | None, ledger: Ledger) -> bool:
    """Wait for the turn of an answer; say whether it may be judged then."""
    if run is None:
        return not ledger.over_budget
    if not (run.stop.is_set() or ledger.over_budget):
        await run.turn()
    return not (run.stop.is_set() or ledger.over_budget)


def _refusal(evaluation: Evaluation) -> str:
    """Say which limit to spending kept a record from being judged, if one did."""
    kind = JudgeOverBudget.error_type
    return next((each.message for each in evaluation.failures if each.error_type == kind), "")


class _Present(NamedTuple):
    """What ragtrace wrote into a trace before."""

    carriers: frozenset[str]
    """Span ids of carriers."""
    about: Mapping[str | None, tuple[Span, ...]]
    """Carriers by the span of the answer they are about."""


def _present(trace: Trace) -> _Present:
    carriers = [span for span in trace.spans if span.scope.name == semconv.SCOPE_EVALUATION]
    about: dict[str | None, tuple[Span, ...]] = {}
    for span in carriers:
        about[span.parent_span_id] = (*about.get(span.parent_span_id, ()), span)
    return _Present(carriers=frozenset(span.span_id for span in carriers), about=about)


def _superseded(span: Span, earlier: Iterable[Span]) -> str | None:
    """Return the id of the carrier that this one takes the place of: the last that tells the same metrics."""
    rivals = [each for each in earlier if _metrics_told(each) == _metrics_told(span)]
    replaced = {each.attributes.get(semconv.EVAL_SUPERSEDES) for each in rivals}
    in_force = [each for each in rivals if each.span_id not in replaced]
    last = max(in_force, key=lambda each: str(each.attributes.get(semconv.EVAL_STARTED_AT)), default=None)
    return last.span_id if last else None


def _metrics_told(span: Span) -> frozenset[str]:
    return frozenset(key for key in span.attributes if key.startswith(semconv.LABEL_PREFIX))


def _records(trace: Trace, mapping: AttributeMapping | None, ledger: Ledger) -> tuple[RagRecord, ...]:
    try:
        records = extract_records(trace, mapping).records
    except Exception as exc:  # noqa: BLE001 -- the wall of one stage's item: strangers' spans
        ledger.unreadable[type(exc).__name__] += 1
        return ()
    ledger.without_record += not records
    return records


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivery:
    """Keeps carriers until the destination has them."""

    sink: SpanSink
    ledger: Ledger
    run: Run | None
    sleep: Sleep

    async def keep(self, parcel: _Parcel) -> None:
        """Make sure that what was paid for is not lost."""
        if self.run is not None:
            await self.run.progress.keep(*parcel)

    async def send_what_waits(self) -> None:
        """Send what an earlier run left."""
        if self.run is not None:
            for waiting in self.run.progress.waiting():
                await self.send(_Parcel(*waiting))

    async def send(self, parcel: _Parcel) -> None:
        """Send a carrier, again where that may help.

        Raises:
            SendRetryable: the destination took nothing in several attempts.
        """
        for attempt in range(_SEND_ATTEMPTS):
            try:
                await self.sink.send(parcel.payload)
            except SendRejected as exc:
                self.ledger.rejected[str(exc)] += 1
                break
            except SendRetryable as exc:
                if attempt == _SEND_ATTEMPTS - 1:
                    raise _given_up(exc, self.ledger) from exc
                asked_for = exc.retry_after_s
                await self.sleep(min(0.5 * 2**attempt if asked_for is None else asked_for, _LONGEST_PAUSE_S))
            else:
                self.ledger.sent += 1
                break
        if self.run is not None:
            await self.run.progress.sent(parcel.trace_id, parcel.span_id)

    async def reached(self, mark: SearchedUpTo) -> None:
        """Note that all before is judged and sent."""
        if self.run is not None and not self.ledger.is_behind:
            await self.run.progress.reached(self.run.name, mark.time_ns)


def _given_up(exc: SendRetryable, ledger: Ledger) -> SendRetryable:
    return SendRetryable(
        f"{exc} (tried {_SEND_ATTEMPTS} times; carriers sent before: {ledger.sent}). "
        "Run it again when the destination answers: the span ids will be the same"
    )
