"""Which answers are judged, and with what probability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import RagRecord, Sample, Screening
from ragtrace.sampling import Choice, SamplingPlan, TracePlan, position_of
from ragtrace.traces.trace import Trace
from ragtrace_collector.ledger import FinalOutcome, State

MOST_TENANTS: Final = 1_000
"""Tenants beyond this number share one tally, because senders may write any tenant name."""


@dataclass(slots=True)
class WindowCounts:
    """The counts of one tenant in one window."""

    seen: int = 0
    demand: float = 0.0
    """How many would be kept on average without a limit: the sum of their rates."""
    floor: float = 0.0
    """How many of these are guaranteed to the tenant whatever the limit."""
    kept: int = 0


class WindowRow(NamedTuple):
    """A tally as it is stored."""

    period: str
    start_ns: int
    tenant: str
    seen: int
    demand: float
    floor: float
    kept: int


class Windows:
    """The tallies of one period: windows begin at multiples of its length."""

    def __init__(self, period: str, length_ns: int) -> None:
        self.period = period
        self.start_ns = 0
        self.current: dict[str, WindowCounts] = {}
        self.last: dict[str, WindowCounts] = {}
        self._length_ns = length_ns
        self._changed: set[str] = set()

    def roll(self, now_ns: int) -> bool:
        """Begin the current window, never an earlier one; say whether it changed."""
        start_ns = now_ns - now_ns % self._length_ns
        if start_ns <= self.start_ns:
            return False
        self.last = self.current if start_ns == self.start_ns + self._length_ns else {}
        self.start_ns, self.current = start_ns, {}
        self._changed.clear()
        return True

    def of(self, tenant: str) -> WindowCounts:
        """Return the tally of a tenant in the current window, to be changed."""
        known = tenant in self.current or len(self.current) < MOST_TENANTS
        name = tenant if known else ""
        self._changed.add(name)
        return self.current.setdefault(name, WindowCounts())

    def changes(self) -> tuple[WindowRow, ...]:
        """Return the changes since the last call, to be stored."""
        rows = tuple(self._row(tenant) for tenant in self._changed)
        self._changed.clear()
        return rows

    def learn(self, rows: Iterable[WindowRow]) -> None:
        """Take the last window's counts from those of all processes."""
        self.last = {
            row.tenant: WindowCounts(*row[3:])
            for row in rows
            if row.period == self.period and row.start_ns == self.start_ns - self._length_ns
        }

    def restore(self, rows: Iterable[WindowRow], now_ns: int) -> None:
        """Restore the state of the last process."""
        mine = [row for row in rows if row.period == self.period]
        for start_ns in sorted({row.start_ns for row in mine}):
            self.roll(start_ns)
            self.current = {row.tenant: WindowCounts(*row[3:]) for row in mine if row.start_ns == start_ns}
        self.roll(now_ns)

    def _row(self, tenant: str) -> WindowRow:
        tally = self.current[tenant]
        return WindowRow(
            self.period, self.start_ns, tenant, tally.seen, tally.demand, tally.floor, tally.kept
        )


LIMIT: Final = "limit"
"""The period of its windows."""
_MINUTE_NS: Final = 60 * 10**9


class Place(NamedTuple):
    """A place in a window that was taken, if the counts of all processes allow it."""

    span_id: str
    start_ns: int
    tenant: str
    answers: int | None
    """How many answers may have a place in the window; ``None`` for any number."""
    per_tenant: int | None


class Limits:
    """Lowers all rates by one factor a window, so that about as many are kept as the limit allows.

    The factor comes from the demand of the last window and is constant within a window, so that the sampling
    probability is known. Only answers beyond the limit in spite of that are shed.
    """

    def __init__(self, *, answers: int | None, per_tenant: int | None) -> None:
        self.windows = Windows(LIMIT, _MINUTE_NS)
        self._answers = answers
        self._per_tenant = per_tenant
        self._factor = 1.0

    def roll(self, now_ns: int) -> bool:
        """Begin the current window, with the factor from the last one; say whether it changed."""
        began = self.windows.roll(now_ns)
        if began:
            self.recompute()
        return began

    def recompute(self) -> None:
        """Compute the factor of the current window from the last one."""
        demand = sum(
            tally.demand * self._factor_of(tally, self._per_tenant) for tally in self.windows.last.values()
        )
        owed = sum(tally.floor for tally in self.windows.last.values())
        self._factor = self._factor_of(WindowCounts(demand=demand, floor=owed), self._answers)

    def factor_of(self, tenant: str) -> float:
        """Return the factor of a tenant's rates in this window."""
        last = self.windows.last.get(tenant)
        return self._factor * (self._factor_of(last, self._per_tenant) if last else 1.0)

    def see(self, tenant: str, *, demand: float, floor: float) -> None:
        """Count an answer, with its rate without limits, and its guaranteed rate."""
        tally = self.windows.of(tenant)
        tally.seen += 1
        tally.demand += demand
        tally.floor += floor

    def take(self, tenant: str) -> bool:
        """Take a place in this window, and say whether there was one."""
        tally = self.windows.of(tenant)
        kept = sum(each.kept for each in self.windows.current.values())
        is_full = self._answers is not None and kept >= self._answers
        if is_full or (self._per_tenant is not None and tally.kept >= self._per_tenant):
            return False
        tally.kept += 1
        return True

    def give_back(self, tenant: str) -> None:
        """Give a place back: another process had the last one."""
        self.windows.of(tenant).kept -= 1

    def place(self, tenant: str, span_id: str) -> Place:
        """Return what a place that was taken is to the store."""
        name = tenant if tenant in self.windows.current else ""
        return Place(span_id, self.windows.start_ns, name, self._answers, self._per_tenant)

    @staticmethod
    def _factor_of(last: WindowCounts, limit: int | None) -> float:
        room = math.inf if limit is None else max(_target(limit) - last.floor, 0.0)
        return 1.0 if last.demand <= room else room / last.demand


def _target(limit: int) -> float:
    """Return the number to aim at, so that chance (a Poisson number) seldom exceeds the limit."""
    return max(limit - 2 * math.sqrt(limit), limit / 2)


_PERIOD = "tenant_floor"
_HOUR_NS = 3600 * 10**9


class TenantFloor:
    """Raises the rate of tenants with too few sampled answers a window.

    The rate of a window is the one that would have kept ``answers`` in the last window. Of a tenant without
    answers in the last window, the first ``answers`` are always kept.
    """

    def __init__(self, *, answers: int, window_ns: int = _HOUR_NS) -> None:
        self.windows = Windows(_PERIOD, window_ns)
        self._answers = answers

    def rate_of(self, tenant: str) -> float:
        """Return the guaranteed rate of a tenant's next answer."""
        before = self.windows.last.get(tenant)
        if before is not None and before.seen:
            return min(1.0, self._answers / before.seen)
        now = self.windows.current.get(tenant)
        return 1.0 if now is None or now.seen < self._answers else 0.0

    def see(self, tenant: str) -> None:
        """Count an answer."""
        self.windows.of(tenant).seen += 1


RULE_TENANT: Final = "tenant"
_LEFT_OUT: Final = (State.SAMPLED_OUT, State.FILTERED, State.SHED)
RATE_LIMIT: Final = State.SHED.because("rate_limit")


class EarlierDecision(NamedTuple):
    """An earlier decision about an answer."""

    outcome: str
    """Empty while it is queued or judged."""
    sample: Sample

    @property
    def is_sampled_out(self) -> bool:
        """Whether it may still be queued."""
        return self.outcome == State.SAMPLED_OUT

    @property
    def left_out(self) -> str | None:
        """The outcome, if it was dropped for good."""
        is_left_out = bool(self.outcome) and FinalOutcome.of(self.outcome).state in _LEFT_OUT
        return self.outcome if is_left_out else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOdds:
    """How probable it is that an answer is kept, and why."""

    choice: Choice
    tenant: str
    position: float
    """Of the trace id, in [0, 1): answers with a higher probability are kept."""
    floor: float = 0.0
    """The tenant's guaranteed rate."""
    factor: float = 1.0
    """The factor of the rate limit."""
    throttle: float = 1.0
    """The factor of the budget."""
    screening: Screening | None = None
    """What the screen said, if the rate depends on it."""

    @property
    def probability(self) -> float:
        """The probability with which an answer like this is kept, whatever its trace id."""
        return self.throttle * max(self.choice.rate * self.factor, self.floor)

    @property
    def keeps(self) -> bool:
        """Whether this very answer is kept."""
        return self.position < self.probability

    @property
    def rule_keeps(self) -> bool:
        """Whether it would be kept without the tenant's guarantee."""
        return self.position < self.choice.rate * self.factor * self.throttle

    @property
    def sample(self) -> Sample:
        """The deciding rule, its rate, and the probability."""
        by_floor = self.floor > self.choice.rate * self.factor
        rule, rate = (RULE_TENANT, self.floor) if by_floor else (self.choice.rule, self.choice.rate)
        return Sample(
            rule=rule,
            rate=rate,
            probability=None if self.choice.is_drop else self.probability,
            screening=self.screening,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about one answer."""

    span_id: str
    sample: Sample
    """The rule that decided, and its rate."""
    tenant: str = ""
    service: str = ""
    left_out: str | None = None
    """The outcome of an answer that is not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingChanges:
    """The changes to store, so that a restart decides the same."""

    windows: tuple[WindowRow, ...] = ()
    places: tuple[Place, ...] = ()
    """Of answers that were kept. Other processes may have had the last ones."""

    def __bool__(self) -> bool:
        return bool(self.windows)


_NOTHING_KNOWN: Final[Mapping[str, EarlierDecision]] = MappingProxyType({})
_NOTHING_SUSPECTED: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class Sampler:
    """Decides by the rules, then by tenants' guarantees, limits and budget.

    Every rate is compared with the same position of the trace id, so that a higher rate keeps all that a
    lower one keeps.
    """

    plan: SamplingPlan
    fairness: TenantFloor | None = None
    limits: Limits | None = None
    _ceiling: float = field(init=False)
    """The rate that no answer exceeds. Limits and throttle do not count: they may be lifted before a trace is
    complete."""
    _throttle: float = 1.0
    _places: list[Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ceiling = 1.0 if self.fairness else self.plan.highest_rate

    @property
    def may_keep_all(self) -> bool:
        """Whether ``may_keep`` holds for every trace."""
        return self._ceiling >= 1

    def may_keep(self, trace_id: str) -> bool:
        """Say whether spans of this trace are worth storing, before the whole trace is known.

        It needs no spans: they matter only if a rule could raise the rate above the position.
        """
        return self.may_keep_all or position_of(trace_id) < self._ceiling

    def throttle(self, factor: float) -> None:
        """Multiply every rate by a factor in [0, 1] from now on, to stay within the budget.

        The recorded probabilities are lower meanwhile, so that averages stay right.
        """
        self._throttle = min(max(factor, 0.0), 1.0)

    def decide(
        self,
        trace: Trace,
        records: Sequence[RagRecord],
        *,
        known: Mapping[str, EarlierDecision] = _NOTHING_KNOWN,
        suspicions: Mapping[str, float] = _NOTHING_SUSPECTED,
        now_ns: int,
    ) -> tuple[Decision, ...]:
        """Decide about the answers of a ready trace. ``suspicions`` are by span, if the plan asks for them.

        Earlier decisions (``known``, by span) stay. But an answer that was sampled out is queued if a rule
        with a higher rate matches now. It had two chances, so it has no probability.
        """
        self.roll(now_ns)
        return tuple(self._decisions(trace, records, known, suspicions, now_ns))

    def explain(
        self, trace: Trace, record: RagRecord, *, suspicion: float | None = None, now_ns: int
    ) -> SamplingOdds:
        """Return how an answer would be decided now, without deciding."""
        self.roll(now_ns)
        return self._odds(self.plan.of_trace(trace), record, position_of(trace.trace_id), suspicion)

    def _odds(
        self, plan: TracePlan, record: RagRecord, position: float, suspicion: float | None
    ) -> SamplingOdds:
        tenant = plan.tenant_of(record)
        return SamplingOdds(
            choice=plan.choose(record, suspicion),
            screening=Screening(suspicion, self._ceiling) if suspicion is not None else None,
            tenant=tenant,
            position=position,
            floor=self.fairness.rate_of(tenant) if self.fairness else 0.0,
            factor=self.limits.factor_of(tenant) if self.limits else 1.0,
            throttle=self._throttle,
        )

    def take_changes(self) -> SamplingChanges:
        """Return the changes since the last call, to be stored before the decisions."""
        changes = SamplingChanges(
            windows=tuple(row for windows in self.all_windows() for row in windows.changes()),
            places=tuple(self._places),
        )
        self._places.clear()
        return changes

    def restore(self, rows: Sequence[WindowRow], *, now_ns: int) -> None:
        """Restore the state of the last process."""
        for windows in self.all_windows():
            windows.restore(rows, now_ns)
        if self.limits:
            self.limits.recompute()

    def learn(self, rows: Sequence[WindowRow]) -> None:
        """Compute the rates of the current windows from the counts of all processes."""
        for windows in self.all_windows():
            windows.learn(rows)
        if self.limits:
            self.limits.recompute()

    def takes_place(self, tenant: str, span_id: str, now_ns: int) -> bool:
        """Count one answer against the rate limit, if it has room here; `SamplingChanges` has its place."""
        self.roll(now_ns)
        if self.limits is None:
            return True
        has_room = self.limits.take(tenant)
        if has_room:
            self._places.append(self.limits.place(tenant, span_id))
        return has_room

    def give_back(self, refused: Iterable[Place]) -> None:
        """Give places back that the store refused."""
        for place in refused:
            if self.limits:
                self.limits.give_back(place.tenant)

    def all_windows(self) -> Iterator[Windows]:
        """Yield the counts from which rates are computed."""
        if self.fairness:
            yield self.fairness.windows
        if self.limits:
            yield self.limits.windows

    def roll(self, now_ns: int) -> bool:
        """Begin the current windows; say whether one changed: then there may be more to `learn`."""
        began = self.fairness is not None and self.fairness.windows.roll(now_ns)
        return (self.limits is not None and self.limits.roll(now_ns)) or began

    def _decisions(
        self,
        trace: Trace,
        records: Sequence[RagRecord],
        known: Mapping[str, EarlierDecision],
        suspicions: Mapping[str, float],
        now_ns: int,
    ) -> Iterator[Decision]:
        plan, position = self.plan.of_trace(trace), position_of(trace.trace_id)
        for record in records:
            if record.target is None:
                continue
            span_id = record.target.span_id
            odds = self._odds(plan, record, position, suspicions.get(span_id))
            earlier = known.get(span_id)
            if earlier is None:
                self._count(odds)
                yield self._decide_first(odds, record, now_ns)
            else:
                yield self._decide_again(odds, earlier, record, now_ns)

    def _decide_first(self, odds: SamplingOdds, record: RagRecord, now_ns: int) -> Decision:
        if odds.choice.is_drop:
            return _decision(odds, record, left_out=State.FILTERED)
        if odds.keeps:
            return _decision(
                odds, record, left_out=None if self._has_place(odds, record, now_ns) else RATE_LIMIT
            )
        return _decision(odds, record, left_out=State.SAMPLED_OUT)

    def _decide_again(
        self, odds: SamplingOdds, earlier: EarlierDecision, record: RagRecord, now_ns: int
    ) -> Decision:
        before = _decision(odds, record, sample=earlier.sample, left_out=earlier.left_out)
        rose = odds.choice.rate > earlier.sample.rate
        is_back = earlier.is_sampled_out and rose and odds.rule_keeps
        if not (is_back and self._has_place(odds, record, now_ns)):
            return before
        sample = replace(odds.sample, rule=odds.choice.rule, rate=odds.choice.rate, probability=None)
        return replace(before, sample=sample, left_out=None)

    def _has_place(self, odds: SamplingOdds, record: RagRecord, now_ns: int) -> bool:
        assert record.target is not None
        return self.takes_place(odds.tenant, record.target.span_id, now_ns)

    def _count(self, odds: SamplingOdds) -> None:
        if self.fairness:
            self.fairness.see(odds.tenant)
        if self.limits and self._ceiling:
            # those above the ceiling never came here: those that did represent them
            weight = odds.throttle / self._ceiling
            self.limits.see(odds.tenant, demand=odds.choice.rate * weight, floor=odds.floor * weight)


def _decision(
    odds: SamplingOdds, record: RagRecord, *, sample: Sample | None = None, left_out: str | None = None
) -> Decision:
    assert record.target is not None
    return Decision(
        span_id=record.target.span_id,
        sample=sample or odds.sample,
        tenant=odds.tenant,
        service=str(record.target.resource.get(semconv.SERVICE_NAME, "")),
        left_out=left_out,
    )
