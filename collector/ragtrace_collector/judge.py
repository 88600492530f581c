"""Judge: the evaluator of the live configuration, and the guards in front of its endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ragtrace.budget import (
    Budget,
    BudgetGuard,
    CostEstimator,
    ExceededLimit,
    Limit,
    LimitUsage,
    OverBudget,
    Period,
    Prices,
    RequestCost,
    SpendLedger,
    budgeted,
    budgeted_embedder,
    load_prices,
    require_price,
)
from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.judge import AdaptiveLimiter, Backoff, limiter_of
from ragtrace.judge.spec import JudgeSpec
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.pipeline import Evaluator, EvaluatorSpec, JudgeAround, JudgeRole, MetricSpec, VerifySpec
from ragtrace.ports import Clock, Embedder, Judge
from ragtrace.process import SystemClock
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.extract import ExtractRules
from ragtrace_collector.config import CollectorConfig, JudgeConfig, MetricConfig, SecondJudgeConfig
from ragtrace_collector.config.values import BudgetPeriodsConfig, limit_of
from ragtrace_collector.ledger import State
from ragtrace_collector.sampling import Sampler
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


def evaluator_spec_of(config: CollectorConfig) -> EvaluatorSpec:
    """Return the settings of the evaluator that a configuration names."""
    judge = judge_spec_of(config.judge)
    return EvaluatorSpec(
        metrics=tuple(map(_metric, config.evaluate.metrics)),
        judge=judge,
        second=_sibling(judge, config.judge.second) if config.judge.second else None,
        embedder=judge.sibling(config.judge.embedder) if config.judge.embedder else None,
        verify=VerifySpec(
            form=config.judge.verify,
            second_look=config.judge.second_look,
            canary_rate=config.judge.sentinel_rate,
            claims_per_call=config.judge.batch_size,
        ),
        calibration=config.judge.calibration,
        cards=config.judge.card,
        require_card=config.judge.require_card,
        prices=config.judge.prices,
    )


def judge_spec_of(config: JudgeConfig) -> JudgeSpec:
    """Return the settings of the judge."""
    return JudgeSpec(
        use=config.use,
        screen=config.screen_spec(),
        base_url=config.base_url,
        api_key_env=config.api_key_env,
        api_key=config.api_key.get_secret_value() if config.api_key else None,
        tls=config.tls.opened() if config.tls else None,
        headers={name: value.get_secret_value() for name, value in config.headers.items()},
        extra_body=config.extra_body,
        timeout_s=config.timeout.total_seconds(),
        max_concurrency=config.max_concurrency,
        cache=config.cache,
    )


def _sibling(judge: JudgeSpec, config: SecondJudgeConfig) -> JudgeSpec:
    own = {"api_key_env": config.api_key_env} if config.api_key_env else {}
    return judge.sibling(config.use, base_url=config.base_url, **own)


def _metric(config: MetricConfig) -> MetricSpec:
    return MetricSpec(
        name=config.name,
        profile=config.profile,
        threshold=config.threshold,
        pass_when=config.pass_when,
        uses_tool_prompts=config.peer_prompts,
        prompts=config.prompts,
        options=config.options
        if config.criterion is None
        else {**config.options, "criterion": config.criterion},
    )


_WAIT_S: Final = Backoff().max_retry_after_s
"""The caller itself waits for pauses up to this long."""
_REFUSALS: Final = 2
"""In a row. A single refusal may be about the request, as if a gateway forbids a text."""
_AWAY: Final = 2
"""Requests in a row that nobody answered. A single one may be too long for the judge."""


class BreakerState(StrEnum):
    """Whether requests pass."""

    CLOSED = "closed"
    """Requests pass."""
    OPEN = "open"
    """Requests are refused at once, without asking the judge."""
    HALF_OPEN = "half_open"
    """One request passes, and shows whether the others may."""


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Opens when a judge refuses twice in a row (401, 402, 403, 404, quota) or asks for a long pause.

    A probe closes it. No probe waits longer than its delay, however long a pause the endpoint requests: the
    endpoint does not decide for how long nothing is judged.
    """

    who: str
    """``judge``, ``second judge``, …: for messages."""
    clock: Clock
    probe_delays_ns: tuple[int, ...]
    """The longest wait before each probe; the last value repeats."""
    key_place: str = ""
    """Where its key is read from: the first thing to check after a refusal."""
    cause: JudgeError | None = None
    """What opened it; ``None`` while it is closed."""
    probe_ns: int = 0
    """When the next request may pass, while open."""
    _refusals: int = 0
    _unanswered: int = 0
    _last_unanswered: JudgeError | None = None
    _probes: int = 0
    _probing: asyncio.Event | None = field(default=None)
    """Set at the end of a probe."""

    @property
    def state(self) -> BreakerState:
        """Whether requests pass now."""
        if self.cause is None:
            return BreakerState.CLOSED
        is_due = self._probing is not None or self.clock.now_ns() >= self.probe_ns
        return BreakerState.HALF_OPEN if is_due else BreakerState.OPEN

    @property
    def trouble(self) -> JudgeError | None:
        """Why nothing is judged: what opened it, or the last of several requests that nobody answered."""
        return self.cause or (self._last_unanswered if self._unanswered >= _AWAY else None)

    @property
    def reason(self) -> str:
        """Why nothing is judged, for messages; empty if answers are judged."""
        where = f" (its key is read from {self.key_place})" if self.key_place and self.cause else ""
        return f"{self.trouble}{where}" if self.trouble else ""

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Let a request pass, and update the breaker from its result.

        Raises:
            JudgeError: the breaker is open; of the kind that opened it. The judge was not asked.
        """
        is_probe = await self._admit()
        try:
            yield
        except JudgeError as failed:
            self._learn(failed, is_probe=is_probe)
            raise
        else:
            self._refusals = self._unanswered = 0
            if is_probe:
                self._close()
        finally:
            if is_probe:
                self._end_probe()

    async def _admit(self) -> bool:
        while self._probing is not None:
            await self._probing.wait()
        if self.cause is None:
            return False
        if self.state is BreakerState.OPEN:
            raise type(self.cause)(self.reason, usage=Usage())
        self._probing = asyncio.Event()
        return True

    def _end_probe(self) -> None:
        if self._probing is not None:
            self._probing.set()
            self._probing = None

    def _learn(self, failed: JudgeError, *, is_probe: bool) -> None:
        pause_ns = _pause_ns(failed)
        is_refused = isinstance(failed, JudgeRefused)
        self._refusals = self._refusals + 1 if is_refused else 0
        is_unanswered = isinstance(failed, JudgeUnavailable | JudgeTimeout)
        self._unanswered = self._unanswered + 1 if is_unanswered else 0
        self._last_unanswered = failed
        if is_probe and not is_refused and not pause_ns:
            if failed.retryable:
                self._wait(0)  # no connection: that says nothing about the refusal
            else:
                self._close()
        elif is_probe or (self.cause is None and (self._refusals >= _REFUSALS or pause_ns)):
            self._open(failed, pause_ns)

    def _open(self, cause: JudgeError, pause_ns: int) -> None:
        is_news = self.cause is None
        self.cause = cause
        self._wait(pause_ns)
        if is_news:
            wait_s = (self.probe_ns - self.clock.now_ns()) / 1e9
            log.error(
                "%s: answers wait; next request in %.0f s: %s",
                self.who,
                wait_s,
                self.reason,
                extra=event("judge_stopped", who=self.who),
            )

    def _wait(self, pause_ns: int) -> None:
        delay_ns = self.probe_delays_ns[min(self._probes, len(self.probe_delays_ns) - 1)]
        self._probes += 1
        self.probe_ns = self.clock.now_ns() + (min(delay_ns, pause_ns) if pause_ns else delay_ns)

    def _close(self) -> None:
        self.cause = None
        self._probes = 0
        log.warning("%s: it answers again", self.who, extra=event("judge_back", who=self.who))


def _pause_ns(failed: JudgeError) -> int:
    """Return the pause that the endpoint requested, if it is longer than the caller would wait."""
    told_s = failed.retry_after_s if isinstance(failed, JudgeUnavailable) else None
    return int(told_s * 1e9) if told_s and told_s > _WAIT_S else 0


_MOST_ANSWERED_BY: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """The judge is unavailable for a while."""

    outcome: str
    """The outcome of an answer that cannot wait so long."""
    until_ns: int


@dataclass(slots=True, kw_only=True)
class JudgeGuard:
    """Guards one judge or embedder."""

    name: str
    """``judge``, ``second`` or ``embedder``."""
    breaker: Breaker
    budget_guard: BudgetGuard | None
    limiter: AdaptiveLimiter | None = None
    """How many requests may run at once."""
    doubts: int = 0
    """Responses with an impossible token usage."""
    requested: str = ""
    """``provider:model``, as configured."""
    answered_by: set[tuple[str, str]] = field(default_factory=set)
    """The models and fingerprints that replies named since they were last noted."""
    _refusal: ExceededLimit | None = None

    @property
    def refusal(self) -> ExceededLimit | None:
        """The last limit that the budget enforced, while its window lasts."""
        if self._refusal is not None and self.breaker.clock.now_ns() >= self._refusal.until_ns:
            self._refusal = None
            log.warning("%s: the budget has room again", self.name, extra=event("budget_open", who=self.name))
        return self._refusal

    def closed(self) -> Unavailable | None:
        """Return until when no request passes, if so."""
        outcome = self.stopped()
        if outcome is None:
            return None
        if self.refusal is not None:
            return Unavailable(outcome=outcome, until_ns=self.refusal.until_ns)
        is_open = self.breaker.state is BreakerState.OPEN
        return Unavailable(outcome=outcome, until_ns=self.breaker.probe_ns) if is_open else None

    def stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome, until a response shows that the judge is back."""
        if self.refusal is not None:
            return State.OVER_BUDGET.because(self.refusal.limit)
        trouble = self.breaker.trouble
        return State.FAILED.because(trouble.error_type) if trouble is not None else None

    @property
    def state(self) -> str:
        """``over_budget``, or the state of the breaker."""
        return OverBudget.error_type if self.refusal else self.breaker.state.value

    @property
    def trouble(self) -> str:
        """Why nothing is judged, for messages; empty if answers are."""
        return f"{self.refusal.limit} is spent" if self.refusal else self.breaker.reason

    @asynccontextmanager
    async def spending(self, cost_estimator: CostEstimator, largest: Usage) -> AsyncIterator[RequestCost]:
        """Let a request pass that costs at most so much, and update the guard from its result.

        Raises:
            JudgeError: the request may not be made now.
        """
        async with self._reserved(cost_estimator, largest) as request_cost, self.breaker.passage():
            try:
                yield request_cost
            finally:
                self.doubts += request_cost.doubts
                if len(self.answered_by) < _MOST_ANSWERED_BY:
                    self.answered_by |= request_cost.answered_by

    @asynccontextmanager
    async def _reserved(self, cost_estimator: CostEstimator, largest: Usage) -> AsyncIterator[RequestCost]:
        if self.budget_guard is None:
            yield RequestCost()
            return
        try:
            async with self.budget_guard.spending(cost_estimator, largest) as request_cost:
                yield request_cost
        except OverBudget as spent:
            if self.refusal is None:
                log.warning("%s: %s", self.name, spent, extra=event("budget_spent", who=self.name))
            self._refusal = spent.exceeded
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGuards:
    """All guards, sharing one budget."""

    clock: Clock
    probe_delays_ns: tuple[int, ...]
    prices: Prices
    budget: Budget
    budget_guard: BudgetGuard | None = None
    """``None`` if nothing is limited, or no judge is going to be asked."""
    by_name: dict[str, JudgeGuard] = field(default_factory=dict)
    """``judge``, ``second`` and ``embedder``, as far as they are configured."""

    def judge(self, name: str, *, key_place: str = "") -> Callable[[Judge], Judge]:
        """Return what puts a judge behind a guard of this name.

        It raises ConfigError if money is limited, and the judge's price is not known.
        """

        def around(judge: Judge) -> Judge:
            guard = self._before(name, judge.identity, key_place)
            guard.limiter = limiter_of(judge)
            return budgeted(judge, (guard.spending,), self.prices.price_of(judge.identity))

        return around

    def embedder(self, name: str, *, key_place: str = "") -> Callable[[Embedder], Embedder]:
        """Return a function that puts an embedder behind a guard of this name."""

        def around(embedder: Embedder) -> Embedder:
            guard = self._before(name, embedder.identity, key_place)
            return budgeted_embedder(embedder, (guard.spending,), self.prices.price_of(embedder.identity))

        return around

    async def left(self) -> tuple[LimitUsage, ...]:
        """Return what is spent and left of the budget.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        return (await self.budget_guard.status()).left() if self.budget_guard else ()

    def _before(self, name: str, who: JudgeIdentity, key_place: str) -> JudgeGuard:
        require_price(
            self.budget,
            who,
            self.prices,
            setting="`budget`",
            remedy="name it in a file for `judge.prices`, or limit `tokens` instead",
        )
        self.by_name[name] = JudgeGuard(
            name=name,
            requested=f"{who.provider}:{who.model}",
            breaker=Breaker(
                who=name, clock=self.clock, probe_delays_ns=self.probe_delays_ns, key_place=key_place
            ),
            budget_guard=None if who.computes else self.budget_guard,
        )
        return self.by_name[name]


def guards_of(config: CollectorConfig, *, clock: Clock, spend_ledger: SpendLedger | None) -> JudgeGuards:
    """Return the guards of live judging; without a spend ledger, none of them limits spending.

    Raises:
        ConfigError: the table of prices cannot be read.
    """
    budget = budget_of("live", config.budget.live)
    return JudgeGuards(
        clock=clock,
        probe_delays_ns=tuple(int(delay.total_seconds() * 1e9) for delay in config.evaluate.probe_delays),
        prices=load_prices(config.judge.prices),
        budget=budget,
        budget_guard=BudgetGuard(budget=budget, ledger=spend_ledger, clock=clock)
        if spend_ledger and budget.limits
        else None,
    )


def budget_of(name: str, config: BudgetPeriodsConfig) -> Budget:
    """Return the configured budget, without the periods that have no limit."""
    by_period = {Period.MINUTE: config.minute, Period.DAY: config.day, Period.MONTH: config.month}
    limits = {period: limit_of(given) for period, given in by_period.items()}
    return Budget(name=name, limits={period: limit for period, limit in limits.items() if limit != Limit()})


class GuardedEvaluator:
    """An evaluator, and whether it may be asked. After `retire`, its last evaluation closes it."""

    def __init__(self, evaluator: Evaluator, guards: JudgeGuards) -> None:
        self.evaluator = evaluator
        self.guards = guards
        """The guards of every judge and embedder."""
        self._evaluations = 0
        self._is_retired = False

    def closed(self) -> Unavailable | None:
        """Return until when the judge may not be asked, if so."""
        return next((guard.closed() for guard in self._guards("judge")), None)

    def stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome; ``None`` if no reason is known."""
        return next((guard.stopped() for guard in self._guards("judge")), None)

    def opens_ns(self) -> int:
        """Return when every judge may be asked again, in Unix nanoseconds; 0 if they may now."""
        closed = (guard.closed() for guard in self._guards("judge", "second", "embedder"))
        return max((unavailable.until_ns for unavailable in closed if unavailable), default=0)

    def old_prices(self, *, now_ns: int) -> tuple[str, ...]:
        """Return one line for each model whose price is old."""
        prices = self.guards.prices
        said = (prices.too_old(identity, now_ns=now_ns) for identity in self.evaluator.identities)
        return tuple(dict.fromkeys(line for line in said if line))

    @asynccontextmanager
    async def evaluation(self) -> AsyncIterator[None]:
        """Keep it open until the block ends."""
        self._evaluations += 1
        try:
            yield
        finally:
            self._evaluations -= 1
            await self._close_if_unused()

    async def retire(self) -> None:
        """Close it when no evaluation uses it any more."""
        self._is_retired = True
        await self._close_if_unused()

    async def aclose(self) -> None:
        """Close it now."""
        await self.evaluator.aclose()

    async def _close_if_unused(self) -> None:
        if self._is_retired and not self._evaluations:
            await self.aclose()

    def _guards(self, *names: str) -> Iterator[JudgeGuard]:
        return (self.guards.by_name[name] for name in names if name in self.guards.by_name)


def open_evaluator(config: CollectorConfig, guards: JudgeGuards | None = None) -> GuardedEvaluator:
    """Open the evaluator behind its guards.

    Raises:
        ConfigError: a metric, judge, embedder, calibration or price table cannot be used.
    """
    guards = guards or guards_of(config, clock=SystemClock(), spend_ledger=None)
    spec = evaluator_spec_of(config)

    def around(role: JudgeRole, judge: JudgeSpec) -> JudgeAround:
        return guards.judge(str(role), key_place=judge.key_place)

    key_place = spec.embedder.key_place if spec.embedder else ""
    opened = spec.open(
        around=around,
        around_embedder=guards.embedder("embedder", key_place=key_place),
        prices=guards.prices,
    )
    return GuardedEvaluator(opened, guards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A snapshot: one configuration, and what was opened or read from it."""

    config: CollectorConfig
    guarded: GuardedEvaluator
    """The evaluator, and whether it may be asked."""
    sampler: Sampler
    rules: ExtractRules
    attach: AttachOptions

    @classmethod
    def of(cls, config: CollectorConfig, guarded: GuardedEvaluator, sampler: Sampler) -> Live:
        """Put a snapshot together.

        Raises:
            ConfigError: a rule of `extract` cannot be used.
        """
        return cls(
            config=config,
            guarded=guarded,
            sampler=sampler,
            rules=config.extract.opened(),
            attach=attach_options_of(config),
        )

    @property
    def is_judge_unavailable(self) -> bool:
        """Whether no judge may be asked now."""
        return self.guarded.closed() is not None


class LiveConfig:
    """Holds the current snapshot. A stage reads ``now`` once for each item: a reload never splits an item."""

    def __init__(self, first: Live) -> None:
        self.now = first


def attach_options_of(config: CollectorConfig) -> AttachOptions:
    """Return the content and the time of carriers, with all that any of the back ends reads."""
    attach = config.attach
    return AttachOptions(
        carrier_time=attach.carrier_time,
        content=attach.content,
        openinference=any(export.reads_openinference for export in config.export),
        page_url=config.ui.public_url or "",
    )
