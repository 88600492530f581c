"""What a plan is made for: traffic, its judge, what is kept of it, and how processes are set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from ragtrace_collector.capacity.coefficients import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """RAG calls, and the share of them that is judged."""

    calls_per_s: float
    """On average over a day."""
    peak: float = 3.0
    """The busiest minutes, as a multiple of the average."""
    spans: float = 10.0
    """Of one call."""
    call_bytes: float = 22_000.0
    """All spans of one call, as OTLP."""
    rate: float = 1.0
    """The share of the answers that is judged."""
    kept: float | None = None
    """The share of the traces whose spans are stored; ``None``: as many as are judged. Rules keep more."""
    most_per_minute: float | None = None
    """``sample.limit.answers``: no more are judged."""

    def __post_init__(self) -> None:
        """Refuse what is no traffic."""
        for name in ("calls_per_s", "spans", "call_bytes"):
            _check_positive(name, getattr(self, name))
        for name in ("rate", "kept"):
            _check_share(name, getattr(self, name))
        if not 1 <= self.peak < math.inf:
            raise ValueError(f"`peak` is {self.peak:g}: the busiest minutes have at least the average, 1")

    @property
    def kept_share(self) -> float:
        """The share of the traces whose spans are stored."""
        return self.rate if self.kept is None else max(self.rate, self.kept)

    def calls(self, *, at_peak: bool) -> float:
        """Return calls a second."""
        return self.calls_per_s * (self.peak if at_peak else 1.0)

    def evaluations(self, *, at_peak: bool) -> float:
        """Return evaluations a second."""
        wanted = self.calls(at_peak=at_peak) * self.rate
        return wanted if self.most_per_minute is None else min(wanted, self.most_per_minute / 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUse:
    """What one evaluation asks of the judge."""

    name: str
    calls: float
    """Requests, one after the other. None for a judge that computes."""
    latency_s: float
    """Of one request."""
    cpu_ms: Spread
    """Of a judge that computes in the process."""
    input_tokens: Spread
    output_tokens: Spread
    usd: Spread | None
    """``None`` if nobody knows the price."""

    def __post_init__(self) -> None:
        """Refuse what no judge takes."""
        if not 0 <= self.calls < math.inf:
            raise ValueError(f"`calls` is {self.calls:g}: write how many requests an evaluation takes")
        if not 0 <= self.latency_s < math.inf:
            raise ValueError(f"`latency_s` is {self.latency_s:g}: write how long a request takes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept."""

    linger: timedelta = timedelta(minutes=10)
    """Spans of a trace that was read: ``assemble.linger``."""
    quiet_period: timedelta = timedelta(seconds=5)
    outcomes: timedelta = timedelta(days=7)
    """``store.retention``."""
    answers: timedelta = timedelta(days=90)
    """Rows of the index: ``index.max_age``."""
    most_rows: int = 1_000_000
    """``index.max_rows``."""
    spans_topic: timedelta = timedelta(days=1)
    """Of the topic of spans: longer than evaluators may be away."""
    replicas: int = 3
    """Copies of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All that a plan is made for."""

    traffic: Traffic
    judge: JudgeUse
    retention: Retention = Retention()
    concurrency: int | None = None
    """The lower of ``evaluate.concurrency`` and ``judge.max_concurrency``; ``None``: what the plan says."""


def _check_positive(name: str, number: float) -> None:
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` is {number:g}: write a number above 0")


def _check_share(name: str, number: float | None) -> None:
    if number is not None and not 0 <= number <= 1:
        raise ValueError(f"`{name}` is {number:g}: write a share from 0 to 1, such as 0.1")
