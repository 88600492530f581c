"""The dry run: what a back-fill would do, and its estimate."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace._ordered import map_in_order
from ragtrace.backfill._token_load import HIGH, LIKELY, LOW, TokenLoad, UnknownLoad, size_of
from ragtrace.backfill.pipeline import BackfillEvaluator, EvaluatedRecord, earlier_turns, may_begin
from ragtrace.backfill.progress import ResumableRun
from ragtrace.backfill.report import BackfillReport, RunCounts
from ragtrace.backfill.selection import Item, SearchedUpTo, SelectedRecord, Selection, choose, session_turns
from ragtrace.clock import SystemClock
from ragtrace.conversations import SessionSettings
from ragtrace.judge import uncached
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import Evaluation, JudgedAnswer
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Clock, Judge, TraceReader
from ragtrace.stats import ratio_total
from ragtrace.traces.attach import AttachOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRange:
    """An estimated number with its expected range."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """The estimate of a whole run, a pilot included, if no request fails.

    An interval is ``None`` if only a pilot can estimate it.
    """

    basis: Literal["sizes", "pilot"]
    """``sizes``: from a terse to a wordy model. ``pilot``: a 95 % confidence interval."""
    records: int
    """Records that the judge will be asked about; with a cache, repeated ones count once."""
    pilot: int
    """The number of judged records in the pilot."""
    calls: EstimateRange | None
    input_tokens: EstimateRange | None
    """``None`` also if the endpoint does not report tokens."""
    output_tokens: EstimateRange | None
    usd: EstimateRange | None
    """US dollars; ``None`` also if there is no price."""
    seconds: EstimateRange | None
    """Duration of judging."""


@dataclass(slots=True, kw_only=True)
class TotalLoad:
    """The total judge load of the records."""

    is_cached: bool = False
    """Whether replies are cached: repeated requests cost nothing."""
    records: int = 0
    """With a cache: records that do not repeat another one verbatim."""
    unsized: int = 0
    """Records whose load does not follow from the lengths of their texts."""
    low: TokenLoad = field(default_factory=TokenLoad)
    likely: TokenLoad = field(default_factory=TokenLoad)
    high: TokenLoad = field(default_factory=TokenLoad)
    repeated: TokenLoad = field(default_factory=TokenLoad)
    """The likely load of records that repeat another, if no reply is cached yet."""


class PilotRecord(NamedTuple):
    """A record of the pilot."""

    size: TokenLoad
    """The likely load."""
    load: TokenLoad
    """The actual load."""
    usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A judged sample."""

    observed: Sequence[PilotRecord]
    seconds: float
    """Duration of the whole pilot, with concurrent judging."""


CostOf: TypeAlias = Callable[[TokenLoad, TokenLoad, TokenLoad], Sequence[float | None]]
"""Returns US dollars for the three loads, ``None`` if unknown."""


def from_sizes(sizes: TotalLoad, *, cost_of: CostOf, concurrency: int, is_remote: bool = True) -> RunEstimate:
    """Estimate from a terse to a wordy model. With a cache, the lower end is 0: all replies may be cached."""
    loads = (TokenLoad() if sizes.is_cached else sizes.low, sizes.likely, sizes.high)
    speeds = zip((_FAST, _USUAL, _SLOW), loads, strict=True)

    def interval(numbers: Iterable[float | None]) -> EstimateRange | None:
        known = [number for number in numbers if number is not None and not sizes.unsized]
        return EstimateRange(low=known[0], likely=known[1], high=known[2]) if len(known) == 3 else None

    return RunEstimate(
        basis="sizes",
        records=sizes.records,
        pilot=0,
        calls=interval(load.calls for load in loads),
        input_tokens=interval(load.input_tokens for load in loads),
        output_tokens=interval(load.output_tokens for load in loads),
        usd=interval(cost_of(*loads)),
        seconds=interval(speed.seconds_for(load, concurrency) for speed, load in speeds)
        if is_remote
        else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Speed:
    seconds: float
    """Seconds before the first token."""
    tokens_a_second: float

    def seconds_for(self, load: TokenLoad, concurrency: int) -> float:
        return (load.calls * self.seconds + load.output_tokens / self.tokens_a_second) / concurrency


# assumed of models behind an API; the speed of a local model needs a pilot
_FAST: Final = _Speed(seconds=0.2, tokens_a_second=200)
_USUAL: Final = _Speed(seconds=0.8, tokens_a_second=60)
_SLOW: Final = _Speed(seconds=3.0, tokens_a_second=15)


def from_pilot(sizes: TotalLoad, pilot: Pilot, *, concurrency: int) -> RunEstimate:
    """Estimate from a random sample, with 95% confidence intervals.

    With a cache, repeated records cost nothing at best, and their full load at worst.
    """
    loads = [record.load for record in pilot.observed]
    is_counted = any(load.input_tokens for load in loads) or not any(load.calls for load in loads)

    def total(what: str, amounts: Iterable[float | None]) -> EstimateRange | None:
        known = [amount for amount in amounts if amount is not None]
        return _total(sizes, pilot, what, known) if len(known) == len(loads) else None

    return RunEstimate(
        basis="pilot",
        records=sizes.records,
        pilot=len(loads),
        calls=total("calls", (load.calls for load in loads)),
        input_tokens=total("input_tokens", (load.input_tokens for load in loads)) if is_counted else None,
        output_tokens=total("output_tokens", (load.output_tokens for load in loads)) if is_counted else None,
        usd=total("weight", (record.usd for record in pilot.observed)),
        seconds=_seconds(sizes, pilot, concurrency),
    )


def _total(sizes: TotalLoad, pilot: Pilot, what: str, amounts: Sequence[float]) -> EstimateRange:
    size_of = attrgetter("calls" if sizes.unsized else what)
    pairs = [(size_of(each.size), amount) for each, amount in zip(pilot.observed, amounts, strict=True)]
    size = size_of(sizes.likely)
    found = ratio_total(pairs, population=sizes.records, size=size)
    again = 1 + size_of(sizes.repeated) / size
    return EstimateRange(low=found.low, likely=found.likely, high=found.high * again)


def _seconds(sizes: TotalLoad, pilot: Pilot, concurrency: int) -> EstimateRange | None:
    """Estimate the time with the pilot's concurrency; at best, with the maximum concurrency."""
    spent = [record.seconds for record in pilot.observed]
    if not sum(spent) or not pilot.seconds:
        return None
    at_once = sum(spent) / pilot.seconds
    total = _total(sizes, pilot, "weight", spent)
    return EstimateRange(
        low=total.low / max(at_once, concurrency), likely=total.likely / at_once, high=total.high / at_once
    )


_NANO: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The result of a dry run."""

    report: BackfillReport
    """``judged`` counts the records that would be judged; they cost nothing here."""
    estimate: RunEstimate
    pilot: BackfillReport
    """The outcome of the pilot. The run sends its verdicts."""

    @property
    def has_pilot(self) -> bool:
        """Whether the pilot had any record."""
        return bool(_looked_at(self.pilot) or self.pilot.failed or self.pilot.left)

    @property
    def to_judge(self) -> int:
        """The number of records that the run has to process."""
        return _looked_at(self.report) + sum(self.report.failed.values()) - _looked_at(self.pilot)

    def left_of(self, limit: int | None) -> int | None:
        """Return how many records the run may judge after the pilot, under the limit."""
        return None if limit is None else max(0, limit - _looked_at(self.pilot))


def _looked_at(report: BackfillReport) -> int:
    return report.judged + sum(report.ineligible.values())


async def dry_run(
    reader: TraceReader,
    *,
    evaluator: Evaluator,
    selection: Selection | None = None,
    attach: AttachOptions | None = None,
    concurrency: int = 8,
    pilot: int = 0,
    on_evaluated: Callable[[JudgedAnswer], None] | None = None,
    run: ResumableRun | None = None,
    sessions: SessionSettings | None = None,
    clock: Clock | None = None,
) -> DryRun:
    """Estimate what a back-fill would do and cost; nothing is sent.

    Without a pilot, the judge is not asked. With one, ``pilot`` records are judged. A digest of their ids
    chooses them, so a larger pilot contains a smaller one. With ``run``, their carriers are stored on disk
    and the back-fill sends them, so nothing is paid for twice. ``on_evaluated`` is called for them. With
    ``sessions`` too, the pilot's answers are kept as turns; what sessions cost is not estimated.

    Raises:
        ReadError: no trace of the source could be read.
    """
    ledger = RunCounts()
    sizing = _Sizing(evaluator=evaluator, pilot=pilot)

    async def work(item: Item) -> _Sized | None:
        return None if isinstance(item, SearchedUpTo) else await sizing.size(item)

    async def count(sized: _Sized | None) -> None:
        if sized is not None:
            _count(sized.evaluation, ledger)
            sizing.add(sized)

    turns = session_turns(run, evaluator, sessions)
    chosen = choose(reader, selection or Selection(), ledger, evaluator.id, run, turns)
    await map_in_order(chosen, work, count, concurrency=concurrency)
    pilots = sessions if pilot else None  # only they are judged
    whole = selection or Selection()
    opened = earlier_turns(reader, whole, evaluator, run=run, turns=turns, settings=pilots)
    async with opened as earlier:
        judging = BackfillEvaluator(
            evaluator=evaluator,
            attach=attach or AttachOptions(),
            run=run,
            clock=clock or SystemClock(),
            turns=turns.kept if turns else None,
            earlier=earlier,
        )
        trial = _Trial(judging=judging, on_evaluated=on_evaluated)
        await trial.carry_out(sizing.chosen, concurrency)
    ledger.is_stopped = trial.ledger.is_stopped = run is not None and run.stop.is_set()
    estimate = _estimate(sizing.sizes, trial, concurrency)
    waits = run is not None and run.leaves_waiting  # for a batch: that takes as long for many as for few
    return DryRun(
        report=ledger.report(),
        estimate=replace(estimate, seconds=None) if waits else estimate,
        pilot=trial.ledger.report(),
    )


def _count(evaluation: Evaluation, ledger: RunCounts) -> None:
    """Count the simulated outcome of a record, without its labels."""
    if any(failure.error_type == UnknownLoad.error_type for failure in evaluation.failures):
        ledger.judged += 1
    else:
        ledger.count(evaluation)
        ledger.labels.clear()


def _estimate(sizes: TotalLoad, trial: _Trial, concurrency: int) -> RunEstimate:
    if trial.observed:
        pilot = Pilot(observed=trial.observed, seconds=trial.seconds)
        return from_pilot(sizes, pilot, concurrency=concurrency)
    judge = trial.judging.evaluator.judge.identity
    if judge.computes:
        sizes = TotalLoad(records=sizes.records)
    elif trial.ledger.failed or trial.ledger.left:
        sizes.unsized = sizes.records  # the sizes were meant for a pilot, which had no result
    return from_sizes(sizes, cost_of=trial.cost_of, concurrency=concurrency, is_remote=not judge.computes)


def _keeps_replies(judge: Judge) -> bool:
    while isinstance(judge, JudgeLayer):
        if uncached(judge) is not judge:
            return True
        judge = judge.inner
    return False


class _Sized(NamedTuple):
    candidate: SelectedRecord
    evaluation: Evaluation
    """The simulated evaluation."""
    low: TokenLoad
    likely: TokenLoad
    high: TokenLoad


@dataclass(slots=True, kw_only=True)
class _Sizing:
    """Sums up sizes and draws the pilot on the fly: only the pilot's records stay in memory."""

    evaluator: Evaluator
    pilot: int
    sizes: TotalLoad = field(init=False)
    _drawn: list[tuple[int, int, _Sized]] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)
    """Digests of the judge's material, if replies are cached."""

    def __post_init__(self) -> None:
        self.sizes = TotalLoad(is_cached=_keeps_replies(self.evaluator.judge))

    @property
    def chosen(self) -> Sequence[_Sized]:
        """The records of the pilot."""
        return [sized for _, _, sized in sorted(self._drawn, key=lambda drawn: -drawn[0])]

    async def size(self, candidate: SelectedRecord) -> _Sized:
        """Size a record with three reply profiles; with one if the others are not needed."""
        record = candidate.record
        evaluation, likely = await size_of(record, evaluator=self.evaluator, reply_profile=LIKELY)
        if self.pilot or self.evaluator.judge.identity.computes or not likely.calls:
            return _Sized(candidate, evaluation, likely, likely, likely)
        _, low = await size_of(record, evaluator=self.evaluator, reply_profile=LOW)
        _, high = await size_of(record, evaluator=self.evaluator, reply_profile=HIGH)
        return _Sized(candidate, evaluation, low, likely, high)

    def add(self, sized: _Sized) -> None:
        """Count a record that the judge will be asked about."""
        if not sized.likely.calls:
            return
        sizes = self.sizes
        sizes.high += sized.high
        if self._is_repeated(sized.evaluation):
            sizes.repeated += sized.likely
            return
        sizes.records += 1
        sizes.low += sized.low
        sizes.likely += sized.likely
        sizes.unsized += any(
            failure.error_type == UnknownLoad.error_type for failure in sized.evaluation.failures
        )
        self._draw(sized)

    def _is_repeated(self, evaluation: Evaluation) -> bool:
        if not self.sizes.is_cached:
            return False
        digest = bytes.fromhex(evaluation.input_sha256)[:8]
        known = digest in self._seen
        self._seen.add(digest)
        return known

    def _draw(self, sized: _Sized) -> None:
        """Keep the records with the smallest digests (a bottom-k sample: Cohen and Kaplan 2007)."""
        digest = hashlib.sha256(sized.candidate.record.id.encode()).digest()
        heapq.heappush(self._drawn, (-int.from_bytes(digest[:8]), self.sizes.records, sized))
        if len(self._drawn) > self.pilot:
            heapq.heappop(self._drawn)


@dataclass(slots=True, kw_only=True)
class _Trial:
    judging: BackfillEvaluator
    on_evaluated: Callable[[JudgedAnswer], None] | None
    ledger: RunCounts = field(default_factory=RunCounts)
    observed: list[PilotRecord] = field(default_factory=list)
    seconds: float = 0.0

    async def carry_out(self, chosen: Sequence[_Sized], concurrency: int) -> None:
        """Judge these records concurrently."""
        began_ns = self.judging.clock.now_ns()
        await map_in_order(_each(chosen), self._judge, self._count, concurrency=concurrency)
        self.seconds = (self.judging.clock.now_ns() - began_ns) / _NANO

    async def _judge(self, sized: _Sized) -> tuple[_Sized, EvaluatedRecord] | None:
        if not await may_begin(self.judging.run, self.ledger):
            return None
        judged = await self.judging.judge_one(sized.candidate)
        if judged is None:
            return None
        self.ledger.over_budget = self.ledger.over_budget or judged.exceeded_limit
        return sized, judged

    async def _count(self, done: tuple[_Sized, EvaluatedRecord] | None) -> None:
        if done is None:
            self.ledger.left += 1
            return
        sized, judged = done
        evaluation = judged.evaluation
        if judged.exceeded_limit:
            self.ledger.leave(evaluation)
            return
        self.ledger.count(evaluation)
        if self.on_evaluated is not None:
            self.on_evaluated(judged.answer)
        if evaluation.usage.input_tokens or not evaluation.failures:  # else no model worked on it
            cost = self._cost(evaluation)
            seconds = evaluation.duration_ms / 1000
            self.observed.append(PilotRecord(sized.likely, TokenLoad.of(evaluation.usage), cost, seconds))

    def cost_of(self, low: TokenLoad, likely: TokenLoad, high: TokenLoad) -> Sequence[float | None]:
        """Price three loads: the first as if all prompts were cached, the last by the dearer judge."""
        evaluator, prices = self.judging.evaluator, self.judging.evaluator.prices
        who = evaluator.judge.identity
        cheap = replace(low.usage, cached_tokens=low.usage.input_tokens)
        dear = [prices.cost_usd(high.usage, judge.identity) for judge in evaluator.judges]
        known = [cost for cost in dear if cost is not None]
        return (
            prices.cost_usd(cheap, who),
            prices.cost_usd(likely.usage, who),
            max(known) if len(known) == len(dear) else None,
        )

    def _cost(self, evaluation: Evaluation) -> float | None:
        """Price an evaluation; if both judges were asked, by the more expensive one."""
        evaluator = self.judging.evaluator
        if not evaluation.compromised:
            return evaluator.cost_usd(evaluation)
        costs = [evaluator.prices.cost_usd(evaluation.usage, judge.identity) for judge in evaluator.judges]
        known = [cost for cost in costs if cost is not None]
        return max(known) if len(known) == len(costs) else None


async def _each(chosen: Sequence[_Sized]) -> AsyncIterator[_Sized]:
    for sized in chosen:
        yield sized
