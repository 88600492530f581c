"""The pipeline of a run: which stored answers are judged; from traces to carriers where they go."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.backends.http_api import can_search, windows
from ragtrace.backfill.progress import (
    BackfillReport,
    KeptTurns,
    KnownTurn,
    ResumableRun,
    RunCounts,
    WrittenSpan,
)
from ragtrace.conversations import (
    MOST_CHARS,
    SessionFindings,
    SessionName,
    SessionSettings,
    Turn,
    TurnCheck,
    check_of_json,
    check_turn,
    digest_of,
    judge_session,
    placed_turn,
    session_of,
    session_span,
    span_id_of,
    turn_on_carrier,
    undecided_turn,
    wants_earlier_turns,
    with_earlier_turns,
)
from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeOverBudget,
    ReadError,
    SendError,
    SendRejected,
    SendRetryable,
    SendUnconfirmed,
)
from ragtrace.http import ReadRetries, Sleep
from ragtrace.model import Evaluation, JudgedAnswer, Part, RagRecord, Sample, Screening
from ragtrace.pipeline import Evaluator, attach, map_in_order, no_rag_call, suspicion_of
from ragtrace.ports import Clock, Metric, SpanSink, TraceQuery, TraceReader
from ragtrace.process import SystemClock
from ragtrace.sampling import SamplingPlan, keeps
from ragtrace.traces.attach import AttachOptions, carrier_span_id, tenant_of
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.otlp import encode
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
    by_id, query = _ById(reader, ledger), selection.query
    try:
        if selection.trace_ids:
            for trace_id in dict.fromkeys(selection.trace_ids):
                if trace := await by_id.get(trace_id):
                    yield trace
        elif query is not None and can_search(reader):
            async for window in windows(reader, query):
                ledger.cut_windows += window.is_cut
                for trace_id, found in window.found.items():
                    if found is not None:
                        ledger.traces += 1
                        yield found
                    elif trace := await by_id.get(trace_id):
                        yield trace
                yield SearchedUpTo(window.until_ns)
        else:
            async for trace in reader.traces():
                if query is None or matches(trace, query):
                    ledger.traces += 1
                    yield trace
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
            await self.kept.add(undecided, is_decided=False)


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


T = TypeVar("T")


class OutgoingCarrier(NamedTuple):
    """A carrier to send."""

    trace_id: str
    span_id: str
    payload: bytes


class EvaluatedRecord(NamedTuple):
    """The outcome of a selected record."""

    answer: JudgedAnswer
    outgoing: OutgoingCarrier | None

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation."""
        return self.answer.evaluation

    @property
    def exceeded_limit(self) -> str:
        """The budget limit that stopped the evaluation; empty if none did."""
        kind = JudgeOverBudget.error_type
        return next(
            (failure.message for failure in self.evaluation.failures if failure.error_type == kind), ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillEvaluator:
    """Judges answers, and builds their carriers."""

    evaluator: Evaluator
    attach: AttachOptions
    run: ResumableRun | None
    clock: Clock
    turns: KeptTurns | None = None
    """Keeps answers of sessions as turns, if these are judged too."""
    earlier: EarlierTurns | None = None
    """Shows the judge earlier turns of an answer's session, if that is wanted."""

    async def judge_one(self, candidate: SelectedRecord) -> EvaluatedRecord | None:
        """Judge an answer, or leave it for later. With a run, its carrier is on disk when this returns."""
        record, sample, earlier, tenant = candidate
        if self.earlier is not None:
            record = self.earlier.shown_with(record, tenant=tenant)
        evaluation = await finish_unless_left(self.evaluator.evaluate(record, clock=self.clock), self.run)
        if evaluation is None:
            return None
        judged = EvaluatedRecord(JudgedAnswer(record=record, evaluation=evaluation, sample=sample), None)
        if judged.exceeded_limit or not evaluation.results:  # a later run tries it again
            return judged
        span = attach(
            evaluation,
            record,
            sample=sample,
            options=self.attach,
            now_ns=self.clock.now_ns(),
            mode="backfill",
            earlier=earlier,
            cost_usd=self.evaluator.cost_usd(evaluation),
        )
        if span is None:
            return judged
        outgoing = OutgoingCarrier(span.trace_id, span.span_id, encode([span]))
        placed = placed_turn(record, evaluation, span, tenant=tenant) if self.turns else None
        if self.turns and placed:  # before the carrier: an answer that has one is not judged again
            await self.turns.add(placed, earlier)
        if self.run is not None:
            await self.run.progress.keep(*outgoing)
        return EvaluatedRecord(replace(judged.answer, carrier_span_id=span.span_id), outgoing)


async def finish_unless_left(evaluating: Coroutine[Any, Any, T], run: ResumableRun | None) -> T | None:
    """Finish what judges; abandon it if the run is stopped and configured to leave pending work."""
    if run is None or not run.leaves_waiting:
        return await evaluating
    finished, stopped = asyncio.create_task(evaluating), asyncio.create_task(run.stop.wait())
    try:
        await asyncio.wait((finished, stopped), return_when=asyncio.FIRST_COMPLETED)
        return finished.result() if finished.done() else None
    finally:
        finished.cancel()
        stopped.cancel()
        await asyncio.wait((finished, stopped))


async def may_begin(run: ResumableRun | None, ledger: RunCounts) -> bool:
    """Wait until an answer may begin; return whether it may be judged."""
    if run is None:
        return not ledger.over_budget
    if not (run.stop.is_set() or ledger.over_budget):
        await run.turn()
    return not (run.stop.is_set() or ledger.over_budget)


TurnPlace = tuple[int, str, str]
"""When a turn began, and its span."""


@dataclass(frozen=True, kw_only=True)
class EarlierTurns(SessionTurns):
    """What was asked and answered in the sessions of a source.

    Answers that sampling leaves out, or that get no carrier, are no turns, as in the collector. ``kept`` has
    turns from before what this run reads.
    """

    settings: SessionSettings
    metrics: Sequence[Metric]
    said: dict[SessionName, dict[TurnPlace, Turn]] = field(default_factory=lambda: defaultdict(dict))

    async def keep_known(
        self, trace: Trace, record: RagRecord, carriers: Sequence[Span], carrier_id: str
    ) -> None:
        """Keep an answer that was judged before."""
        self.add(record, tenant=self.tenant_of(trace, record))

    def add(self, record: RagRecord, *, tenant: str) -> None:
        """Keep an answer whose text is whole."""
        placed = undecided_turn(record, "", tenant=tenant)
        is_whole = record.gap(Part.ANSWER) is None and no_rag_call(self.metrics, record) is None
        if placed is None or not is_whole:
            return
        said = replace(
            placed.turn,
            question=(record.question or "")[:MOST_CHARS] or None,
            answer=(record.answer or "")[:MOST_CHARS],
        )
        self.said[placed.name][said.start_ns, *said.key] = said

    def shown_with(self, record: RagRecord, *, tenant: str) -> RagRecord:
        """Return the record with the turns before it."""
        name = session_of(record, tenant=tenant)
        if name is None or not wants_earlier_turns(record, self.settings):
            return record
        return with_earlier_turns(record, self._before(name, record), self.settings)

    def _before(self, name: SessionName, record: RagRecord) -> list[Turn]:
        assert record.target is not None
        own = (record.target.start_ns, record.target.trace_id, record.target.span_id)
        most = self.settings.context_turns
        said = self.said[name]
        read = [said[place] for place in heapq.nlargest(most, (place for place in said if place < own))]
        return list({turn.key: turn for turn in (*self.kept.before(name, *own, limit=most), *read)}.values())


async def earlier_turns(
    reader: TraceReader,
    selection: Selection,
    evaluator: Evaluator,
    *,
    run: ResumableRun | None,
    turns: SessionTurns | None,
    settings: SessionSettings | None,
) -> EarlierTurns | None:
    """Read the sessions of a source, if answers are to be shown with earlier turns.

    Raises:
        ReadError: no trace of the source could be read.
    """
    if turns is None or settings is None or not settings.context_turns:
        return None
    found = EarlierTurns(kept=turns.kept, tenant=turns.tenant, settings=settings, metrics=evaluator.metrics)
    whole = replace(selection, limit=None, only_unscored=False, done=frozenset())
    async for item in choose(reader, whole, RunCounts(), evaluator.id, run, found):
        if isinstance(item, SelectedRecord):
            found.add(item.record, tenant=item.tenant)
    return found


Send = Callable[[OutgoingCarrier], Awaitable[None]]


class _JudgedSession(NamedTuple):
    findings: SessionFindings
    outgoing: OutgoingCarrier


class _Outcome(NamedTuple):
    judged: Sequence[_JudgedSession] = ()
    known: int = 0
    failure: JudgeError | None = None
    is_left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBackfill:
    """Judges the sessions that are over, as the collector does, and sends a span for each."""

    evaluator: Evaluator
    settings: SessionSettings
    attach: AttachOptions
    kept: KeptTurns
    run: ResumableRun
    ledger: RunCounts
    clock: Clock

    async def carry_out(self, send: Send, *, end_ns: int, concurrency: int) -> None:
        """Judge the sessions that were idle at the end of what was searched, several at once.

        What a judge's failure, the budget or a stop leaves is judged by a later run.

        Raises:
            SendRetryable: the destination took nothing in several attempts.
        """

        async def names() -> AsyncIterator[SessionName]:
            for name in self.kept.open(before_ns=end_ns - self.settings.idle_ns):
                yield name

        async def take(outcome: _Outcome) -> None:
            self._count(outcome)
            for judged in outcome.judged:
                await send(judged.outgoing)

        await map_in_order(names(), self._work, take, concurrency=concurrency)
        await self.kept.forget(before_ns=end_ns - self.settings.keep_ns)
        self.ledger.sessions_open = (
            self.kept.number_open() - self.ledger.sessions_left - sum(self.ledger.sessions_failed.values())
        )

    async def _work(self, name: SessionName) -> _Outcome:
        if not await may_begin(self.run, self.ledger):
            return _Outcome(is_left=True)
        outcome = await finish_unless_left(self._judge_all(name), self.run)
        if outcome is None:
            return _Outcome(is_left=True)
        if isinstance(outcome.failure, JudgeOverBudget):
            self.ledger.over_budget = self.ledger.over_budget or str(outcome.failure)
        return outcome

    def _count(self, outcome: _Outcome) -> None:
        for judged in outcome.judged:
            self.ledger.sessions[str(judged.findings.label)] += 1
        self.ledger.sessions_known += outcome.known
        if isinstance(outcome.failure, JudgeOverBudget) or outcome.is_left:
            self.ledger.sessions_left += 1
        elif outcome.failure is not None:
            self.ledger.usage += outcome.failure.usage
            self.ledger.sessions_failed[outcome.failure.error_type] += 1

    async def _judge_all(self, name: SessionName) -> _Outcome:
        judged: list[_JudgedSession] = []
        known = 0
        for turns in self.kept.sessions(name, self.settings):
            try:
                found = await self._judge(name, turns)
            except JudgeError as exc:
                return _Outcome(judged, known, exc)
            if found is None:
                known += 1
            else:
                judged.append(found)
        await self.kept.end(name)
        return _Outcome(judged, known)

    async def _judge(self, name: SessionName, kept: Sequence[KnownTurn]) -> _JudgedSession | None:
        """Judge a session; ``None`` if a span of these very turns was written before."""
        by_key = {one.turn.key: one for one in kept}
        turns, written = [one.turn for one in kept], [span for one in kept for span in one.written]
        if any(span.span_id == span_id_of(name, turns, unchecked=span.unchecked) for span in written):
            return None

        async def ask(turn: Turn, earlier: Sequence[Turn]) -> TurnCheck | None:
            return await self._check(name, by_key[turn.key], earlier)

        findings = await judge_session(turns, ask)
        span = session_span(
            findings,
            name,
            last=kept[-1].last_span,
            options=self.attach,
            now_ns=self.clock.now_ns(),
            supersedes=_latest(written),
        )
        outgoing = OutgoingCarrier(span.trace_id, span.span_id, encode([span]))
        await self.kept.written(name, kept[-1], span, outgoing.payload)
        return _JudgedSession(findings, outgoing)

    async def _check(self, name: SessionName, kept: KnownTurn, earlier: Sequence[Turn]) -> TurnCheck | None:
        digest = digest_of(kept.turn, earlier)
        if kept.checked is not None and kept.digest == digest:
            return check_of_json(kept.checked)
        if not self.evaluator.judge.identity.contradicts:
            return None
        check = await check_turn(kept.turn, earlier, self.evaluator)
        self.ledger.usage += check.usage
        await self.kept.keep_check(name, kept.turn, digest=digest, checked=check.to_json())
        return check


def _latest(written: Sequence[WrittenSpan]) -> str:
    """Return the last span of a session that was written before: of several, one that none supersedes."""
    replaced = {span.supersedes for span in written}
    return next((span.span_id for span in reversed(written) if span.span_id not in replaced), "")


_END_NS: Final = 2**63 - 1


async def backfill(
    reader: TraceReader,
    sink: SpanSink,
    *,
    evaluator: Evaluator,
    selection: Selection | None = None,
    attach: AttachOptions | None = None,
    concurrency: int = 8,
    on_evaluated: Callable[[JudgedAnswer], None] | None = None,
    run: ResumableRun | None = None,
    sessions: SessionSettings | None = None,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
) -> BackfillReport:
    """Judge the selected records and send a carrier for each that has an outcome.

    The carriers are those that a collector with this evaluator sends, but for mode, run id and times.

    ``on_evaluated`` is called in the order of the source. If the judge fails, the record gets no carrier, so
    that a second run tries it again. A chat answer without a retrieval gets none either. After a judge raises
    ``JudgeOverBudget``, no new record begins; the rest is only counted. With ``run``, carriers are stored on
    disk at once, and those that an earlier run left are sent first.

    With ``sessions``, which need a run, the sessions of the answers are judged at the end, if the source was
    read to its end: each that was idle by then gets the span that a collector writes of it.

    Raises:
        ConfigError: there are ``sessions`` and no ``run``.
        ReadError: no trace of the source could be read. If it breaks off later, the report says so.
        SendRetryable: the destination took nothing in several attempts; what was sent before stays sent.
    """
    selection, attach, clock = selection or Selection(), attach or AttachOptions(), clock or SystemClock()
    ledger = RunCounts()
    if run is not None:
        run.watch(ledger)
    turns = session_turns(run, evaluator, sessions)
    kept = turns.kept if turns else None
    latest_ns = selection.query.until_ns - 1 if kept and selection.query else _END_NS
    delivery = _Delivery(
        sink=sink, ledger=ledger, run=run, sleep=sleep, on_evaluated=on_evaluated, latest_ns=latest_ns
    )
    await delivery.send_what_waits()
    earlier = await earlier_turns(reader, selection, evaluator, run=run, turns=turns, settings=sessions)
    judging = BackfillEvaluator(
        evaluator=evaluator, attach=attach, run=run, clock=clock, turns=kept, earlier=earlier
    )
    chosen = choose(reader, selection, ledger, evaluator.id, run, turns)
    work = partial(_work, judging=judging, ledger=ledger)
    await map_in_order(chosen, work, delivery.take, concurrency=concurrency)
    if sessions is not None:
        await _judge_sessions(judging, delivery, selection, sessions, concurrency)
    ledger.is_stopped = run is not None and run.stop.is_set()
    return ledger.report()


async def _work(
    item: Item, *, judging: BackfillEvaluator, ledger: RunCounts
) -> EvaluatedRecord | SearchedUpTo | None:
    if isinstance(item, SearchedUpTo):
        return item
    if not await may_begin(judging.run, ledger):
        return None
    judged = await judging.judge_one(item)
    if judged is not None:
        ledger.over_budget = ledger.over_budget or judged.exceeded_limit
    return judged


async def _judge_sessions(
    judging: BackfillEvaluator,
    delivery: _Delivery,
    selection: Selection,
    settings: SessionSettings,
    concurrency: int,
) -> None:
    """Judge the sessions, unless the source was not read to its end: then a later run does."""
    ledger, run, kept = delivery.ledger, judging.run, judging.turns
    assert run is not None  # `session_turns` has seen to it
    assert kept is not None
    if run.stop.is_set() or ledger.over_budget or ledger.broken_off:
        ledger.sessions_left = kept.number_open()
    elif ledger.is_limited:
        ledger.sessions_open = kept.number_open()
    else:
        sessions = SessionBackfill(
            evaluator=judging.evaluator,
            settings=settings,
            attach=judging.attach,
            kept=kept,
            run=run,
            ledger=ledger,
            clock=judging.clock,
        )
        end_ns = selection.query.until_ns if selection.query else judging.clock.now_ns()
        await sessions.carry_out(delivery.send, end_ns=end_ns, concurrency=concurrency)
    if ledger.reached_ns:  # it was a search
        await replace(delivery, latest_ns=_END_NS).reached(SearchedUpTo(ledger.reached_ns))


async def span_ids(reader: TraceReader) -> frozenset[SpanId]:
    """Collect the ids of all spans of a source.

    Raises:
        ReadError: it could not be read.
    """
    return frozenset(
        [SpanId(span.trace_id, span.span_id) async for trace in reader.traces() for span in trace.spans]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivery:
    sink: SpanSink
    ledger: RunCounts
    run: ResumableRun | None
    sleep: Sleep
    on_evaluated: Callable[[JudgedAnswer], None] | None
    latest_ns: int = _END_NS
    """A run has not reached its end before its sessions are judged."""

    async def take(self, done: EvaluatedRecord | SearchedUpTo | None) -> None:
        """Count the outcome of an item, and send its carrier if it has one."""
        if done is None:
            self.ledger.left += 1
            return
        if isinstance(done, SearchedUpTo):
            self.ledger.reached_ns = done.time_ns
            await self.reached(done)
            return
        if done.exceeded_limit:
            self.ledger.leave(done.evaluation)
            return
        self.ledger.count(done.evaluation)
        if self.on_evaluated is not None:
            self.on_evaluated(done.answer)
        if done.outgoing is not None:
            await self.send(done.outgoing)

    async def send_what_waits(self) -> None:
        """Send the carriers that an earlier run left."""
        if self.run is not None:
            for waiting in self.run.progress.waiting():
                await self.send(OutgoingCarrier(*waiting))

    async def send(self, outgoing: OutgoingCarrier) -> None:
        """Send a carrier, with retries.

        Raises:
            SendRetryable: the destination took nothing in several attempts.
        """
        retries = ReadRetries()
        while True:
            try:
                await self.sink.send(outgoing.payload)
            except SendRejected as exc:
                self.ledger.rejected[str(exc)] += 1
                break
            except (SendRetryable, SendUnconfirmed) as exc:  # resending is safe: the ids stay the same
                asked_for_s = exc.retry_after_s if isinstance(exc, SendRetryable) else None
                pause_s = retries.pause_s(asked_for_s)
                if pause_s is None:
                    raise _given_up(exc, retries, self.ledger) from exc
                await self.sleep(pause_s)
            else:
                self.ledger.sent += 1
                break
        if self.run is not None:
            await self.run.progress.sent(outgoing.trace_id, outgoing.span_id)

    async def reached(self, mark: SearchedUpTo) -> None:
        """Record that everything before this moment is judged and sent."""
        if self.run is not None and not self.ledger.has_left_some:
            await self.run.progress.reached(self.run.name, min(mark.time_ns, self.latest_ns))


def _given_up(exc: SendError, retries: ReadRetries, ledger: RunCounts) -> SendRetryable:
    return SendRetryable(
        f"{exc} ({retries}; carriers sent before: {ledger.sent}). "
        "Run it again when the destination answers: the span ids will be the same"
    )
