"""Estimates what a back-fill will take, as intervals: from sizes alone, or from a judged pilot sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace.backfill._token_load import TokenLoad
from ragtrace.stats import ratio_total


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
    """The speed of a model's replies."""

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
