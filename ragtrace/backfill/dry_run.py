"""The dry run: what a back-fill would do, and its estimate.

The token load of a record is estimated from the lengths of its texts without asking a judge: the record is
evaluated with a simulated judge, so that steps, batches and canary claims are those of a real run. Only the
replies are assumed: how many claims, quotes and reasons a terse, a typical or a wordy model gives.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from ragtrace.backfill.pipeline import (
    BackfillEvaluator,
    EvaluatedRecord,
    Item,
    SearchedUpTo,
    SelectedRecord,
    Selection,
    choose,
    earlier_turns,
    may_begin,
    session_turns,
)
from ragtrace.backfill.progress import BackfillReport, ResumableRun, RunCounts
from ragtrace.conversations import SessionSettings
from ragtrace.errors import JudgeError, JudgeUnable
from ragtrace.judge import uncached
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge.replies import reply_schema
from ragtrace.judge.scripted import ScriptedJudge
from ragtrace.judge_forms import NumberedText
from ragtrace.metrics.settings import StepLimits
from ragtrace.model import Evaluation, JudgedAnswer, JudgeIdentity, Usage
from ragtrace.pipeline import Evaluator, map_in_order
from ragtrace.ports import Clock, Judge, JudgeReply, JudgeRequest, TraceReader, YesProbability
from ragtrace.process import SystemClock
from ragtrace.stats import ratio_total
from ragtrace.traces.attach import AttachOptions

ReplyT = TypeVar("ReplyT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoad:
    """Requests, and tokens of prompts and replies, as real numbers."""

    calls: float = 0
    input_tokens: float = 0
    output_tokens: float = 0

    def __add__(self, other: TokenLoad) -> TokenLoad:
        return TokenLoad(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )

    def __mul__(self, times: float) -> TokenLoad:
        return TokenLoad(
            calls=self.calls * times,
            input_tokens=self.input_tokens * times,
            output_tokens=self.output_tokens * times,
        )

    @property
    def weight(self) -> float:
        """The load as one number: an output token counts as four input tokens in cost and time."""
        return self.input_tokens + 4 * self.output_tokens

    @property
    def usage(self) -> Usage:
        """The same in integers."""
        return Usage(
            calls=ceil(self.calls),
            input_tokens=ceil(self.input_tokens),
            output_tokens=ceil(self.output_tokens),
        )

    @classmethod
    def of(cls, usage: Usage) -> TokenLoad:
        """Return the load of a usage."""
        return cls(calls=usage.calls, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyProfile:
    """Assumptions about a model's replies and its provider's token counts."""

    claims: float
    """Claims per sentence."""
    with_claims: float
    """Share of the answers with a factual claim."""
    times: float = 1
    """Requests per question on average, until the reply has the requested form."""
    quote: float
    """Length of a quote relative to its claim."""
    reason_chars: int
    characters_a_token: float
    """ASCII characters per token in prompts."""
    reply_characters_a_token: float
    """ASCII characters per token in replies, which are JSON."""
    bytes_a_token: float
    """UTF-8 bytes per token of other characters."""
    counts_schema: bool = True
    """Whether the reply's schema counts as input tokens."""

    def load_of(self, request: JudgeRequest[Any], reply: BaseModel | None, limits: StepLimits) -> TokenLoad:
        """Return the load of a request, given a reply in which each sentence is a claim.

        Further claims make replies longer, and need further requests if one has no room for them.
        """
        given = request.inputs
        claims: Sequence[NumberedText] = getattr(given, "claims", getattr(given, "statements", ()))
        share, packs = 1.0, 1.0
        if request.step in _OF_CLAIMS:
            room = limits.claims_per_call if request.step == "verify" else limits.statements_per_call
            share = self.with_claims
            packs = max(1.0, self.claims * (len(claims) / room if claims else 1))
        asked, told = self._tokens(request.system + request.user, self.characters_a_token), 0.0
        if reply is not None:
            text = reply.model_dump_json(exclude={"verdicts": {"__all__": {"quote"}}})
            further: float = text.count('"reason":') * self.reason_chars
            if '"verdicts":' in text:
                further += self.quote * sum(len(claim.text) for claim in claims)
            told = self._tokens(text, self.reply_characters_a_token)
            told += further / self.reply_characters_a_token
            if request.step in (*_OF_CLAIMS, "extract"):
                told *= self.claims
            if self.counts_schema:
                asked += self._tokens(_schema(type(reply)), self.characters_a_token)
        load = TokenLoad(calls=packs, input_tokens=asked * packs, output_tokens=told)
        return load * (self.times * share)

    def _tokens(self, text: str, characters_a_token: float) -> float:
        ascii_chars = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
        others = 0 if len(text) == ascii_chars else len(text.encode("utf-8", "replace")) - ascii_chars
        return ascii_chars / characters_a_token + others / self.bytes_a_token


# Measured with o200k and cl100k on texts of RAGTruth and WiCE: 2.9 to 6.2 ASCII characters a token in a text,
# 4.4 to 5.0 at the median of each corpus; 3.1 in JSON; in eight other languages 2.5 to 8.3 bytes a token.
LOW: Final = ReplyProfile(
    claims=1 / 3,
    with_claims=0.5,
    quote=0.3,
    reason_chars=0,
    characters_a_token=5.5,
    reply_characters_a_token=5.0,
    bytes_a_token=8.5,
    counts_schema=False,
)
LIKELY: Final = ReplyProfile(
    claims=1,
    with_claims=1.0,
    quote=0.8,
    reason_chars=40,
    characters_a_token=4.4,
    reply_characters_a_token=3.6,
    bytes_a_token=4.5,
)
HIGH: Final = ReplyProfile(
    claims=2,
    with_claims=1.0,
    times=1.5,
    quote=1.5,
    reason_chars=150,
    characters_a_token=3.0,
    reply_characters_a_token=2.8,
    bytes_a_token=2.5,
)
_PROFILES: Final = (LOW, LIKELY, HIGH)
_OF_CLAIMS: Final = frozenset({"verify", "relevance"})
"""Steps that are skipped if an answer states nothing."""


class UnknownLoad(JudgeError):
    """The reply's size does not follow from the lengths of texts."""

    error_type = "unsized"


class _SimulatedJudge:
    """Replies as the scripted judge does, and adds up what models would be asked and reply."""

    def __init__(self, identity: JudgeIdentity, limits: StepLimits) -> None:
        self.identity = identity
        self.loads = [TokenLoad() for _ in _PROFILES]
        self._limits = limits
        self._scripted = ScriptedJudge()

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Reply, if the size of a reply follows from the request.

        Raises:
            UnknownLoad: it does not.
        """
        value: BaseModel | None = None
        if request.reply_type is YesProbability:
            value = YesProbability(p_yes=1.0)
        else:
            with suppress(JudgeUnable):
                value = self._scripted.reply_to(request)
        loads = [profile.load_of(request, value, self._limits) for profile in _PROFILES]
        self.loads = [total + load for total, load in zip(self.loads, loads, strict=True)]
        if value is None:
            raise UnknownLoad("the size of the reply to this request cannot be estimated")
        return JudgeReply(value=request.reply_type.model_validate(value.model_dump()), usage=Usage())

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


@lru_cache(maxsize=64)
def _schema(reply_type: type[BaseModel]) -> str:
    return json.dumps(reply_schema(reply_type))


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
    """Duration of judging; only a pilot tells it."""


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
    whole = selection or Selection()
    chosen = choose(reader, whole, ledger, evaluator.id, run, turns)
    await map_in_order(chosen, work, count, concurrency=concurrency)
    pilots = sessions if pilot else None  # only they are judged
    earlier = await earlier_turns(reader, whole, evaluator, run=run, turns=turns, settings=pilots)
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
    estimate = sizing.estimate(trial, concurrency)
    waits = run is not None and run.leaves_waiting  # for a batch: that takes as long for many as for few
    return DryRun(
        report=ledger.report(),
        estimate=replace(estimate, seconds=None) if waits else estimate,
        pilot=trial.ledger.report(),
    )


def _count(evaluation: Evaluation, ledger: RunCounts) -> None:
    """Count the simulated outcome of a record, without its labels."""
    if _is_unsized(evaluation):
        ledger.judged += 1
    else:
        ledger.count(evaluation)
        ledger.labels.clear()


def _is_unsized(evaluation: Evaluation) -> bool:
    return any(failure.error_type == UnknownLoad.error_type for failure in evaluation.failures)


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


class _PilotRecord(NamedTuple):
    size: TokenLoad
    """The likely load."""
    load: TokenLoad
    """The actual load."""
    usd: float | None
    seconds: float


@dataclass(slots=True, kw_only=True)
class _Sizing:
    """Sums up sizes and draws the pilot on the fly: only the pilot's records stay in memory."""

    evaluator: Evaluator
    pilot: int
    is_cached: bool = field(init=False)
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
    _drawn: list[tuple[int, int, _Sized]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    """Digests of the judge's material, if replies are cached."""

    def __post_init__(self) -> None:
        self.is_cached = _keeps_replies(self.evaluator.judge)

    @property
    def chosen(self) -> Sequence[_Sized]:
        """The records of the pilot."""
        return [sized for _, _, sized in sorted(self._drawn, key=lambda drawn: -drawn[0])]

    async def size(self, candidate: SelectedRecord) -> _Sized:
        """Size a record for a terse, a typical and a wordy model."""
        evaluator = self.evaluator
        judge = _SimulatedJudge(evaluator.judge.identity, evaluator.limits)
        simulated = replace(evaluator, judge=judge, second_judge=None, embedder=None)
        return _Sized(candidate, await simulated.evaluate(candidate.record), *judge.loads)

    def add(self, sized: _Sized) -> None:
        """Count a record that the judge will be asked about."""
        if not sized.likely.calls:
            return
        self.high += sized.high
        digest = sized.evaluation.input_sha256
        if self.is_cached and digest in self._seen:
            self.repeated += sized.likely
            return
        self._seen.add(digest)
        self.records += 1
        self.low += sized.low
        self.likely += sized.likely
        self.unsized += _is_unsized(sized.evaluation)
        # the records with the smallest digests: a bottom-k sample (Cohen and Kaplan 2007)
        place = hashlib.sha256(sized.candidate.record.id.encode()).digest()
        heapq.heappush(self._drawn, (-int.from_bytes(place[:8]), self.records, sized))
        if len(self._drawn) > self.pilot:
            heapq.heappop(self._drawn)

    def estimate(self, trial: _Trial, concurrency: int) -> RunEstimate:
        """Estimate from the pilot, or else from a terse to a wordy model.

        With a cache, repeated records cost nothing at best, and their full load at worst.
        """
        judge = self.evaluator.judge.identity
        if trial.observed:
            return self._from_pilot(trial.observed, trial.seconds, concurrency)
        loads = (TokenLoad() if self.is_cached else self.low, self.likely, self.high)
        if judge.computes:
            loads = (TokenLoad(), TokenLoad(), TokenLoad())
        # the sizes were meant for a pilot, which had no result
        is_unknown = self.unsized or trial.ledger.failed or trial.ledger.left

        def interval(numbers: Iterable[float | None]) -> EstimateRange | None:
            known = [number for number in numbers if number is not None]
            if len(known) < len(loads) or (is_unknown and not judge.computes):
                return None
            return EstimateRange(low=known[0], likely=known[1], high=known[2])

        return RunEstimate(
            basis="sizes",
            records=self.records,
            pilot=0,
            calls=interval(load.calls for load in loads),
            input_tokens=interval(load.input_tokens for load in loads),
            output_tokens=interval(load.output_tokens for load in loads),
            usd=interval(_costs(self.evaluator, *loads)),
            seconds=None,
        )

    def _from_pilot(self, pilot: Sequence[_PilotRecord], took_s: float, concurrency: int) -> RunEstimate:
        loads = [record.load for record in pilot]
        is_counted = any(load.input_tokens for load in loads) or not any(load.calls for load in loads)

        def total(what: str, amounts: Sequence[float | None]) -> EstimateRange | None:
            size_of = attrgetter("calls" if self.unsized else what)
            pairs = [
                (size_of(record.size), amount)
                for record, amount in zip(pilot, amounts, strict=True)
                if amount is not None
            ]
            if len(pairs) < len(pilot):
                return None
            size = size_of(self.likely)
            found = ratio_total(pairs, population=self.records, size=size)
            again = 1 + size_of(self.repeated) / size
            return EstimateRange(low=found.low, likely=found.likely, high=found.high * again)

        spent = [record.seconds for record in pilot]
        seconds = total("weight", spent) if sum(spent) and took_s else None
        if seconds:  # with the pilot's concurrency; at best, with the maximum
            at_once = sum(spent) / took_s
            seconds = EstimateRange(
                low=seconds.low / max(at_once, concurrency),
                likely=seconds.likely / at_once,
                high=seconds.high / at_once,
            )
        return RunEstimate(
            basis="pilot",
            records=self.records,
            pilot=len(loads),
            calls=total("calls", [load.calls for load in loads]),
            input_tokens=total("input_tokens", [load.input_tokens for load in loads]) if is_counted else None,
            output_tokens=total("output_tokens", [load.output_tokens for load in loads])
            if is_counted
            else None,
            usd=total("weight", [record.usd for record in pilot]),
            seconds=seconds,
        )


@dataclass(slots=True, kw_only=True)
class _Trial:
    judging: BackfillEvaluator
    on_evaluated: Callable[[JudgedAnswer], None] | None
    ledger: RunCounts = field(default_factory=RunCounts)
    observed: list[_PilotRecord] = field(default_factory=list)
    seconds: float = 0.0

    async def carry_out(self, chosen: Sequence[_Sized], concurrency: int) -> None:
        """Judge these records concurrently."""

        async def each() -> AsyncIterator[_Sized]:
            for sized in chosen:
                yield sized

        began_ns = self.judging.clock.now_ns()
        await map_in_order(each(), self._judge, self._count, concurrency=concurrency)
        self.seconds = (self.judging.clock.now_ns() - began_ns) / 1e9

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
        evaluation, evaluator = judged.evaluation, self.judging.evaluator
        if judged.exceeded_limit:
            self.ledger.leave(evaluation)
            return
        self.ledger.count(evaluation)
        if self.on_evaluated is not None:
            self.on_evaluated(judged.answer)
        if evaluation.usage.input_tokens or not evaluation.failures:  # else no model worked on it
            load = TokenLoad.of(evaluation.usage)
            usd = evaluator.cost_usd(evaluation)
            if evaluation.compromised:  # both judges were asked
                usd = _highest_cost(evaluator, evaluation.usage)
            self.observed.append(_PilotRecord(sized.likely, load, usd, evaluation.duration_ms / 1000))


def _costs(
    evaluator: Evaluator, low: TokenLoad, likely: TokenLoad, high: TokenLoad
) -> Sequence[float | None]:
    """Price three loads: the first as if all prompts were cached, the last by the dearer judge."""
    who, prices = evaluator.judge.identity, evaluator.prices
    cheap = replace(low.usage, cached_tokens=low.usage.input_tokens)
    return (
        prices.cost_usd(cheap, who),
        prices.cost_usd(likely.usage, who),
        _highest_cost(evaluator, high.usage),
    )


def _highest_cost(evaluator: Evaluator, usage: Usage) -> float | None:
    """Price a usage by the more expensive judge."""
    costs = [evaluator.prices.cost_usd(usage, judge.identity) for judge in evaluator.judges]
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None
