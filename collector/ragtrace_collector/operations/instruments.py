"""The collector's own metrics, in one table: their names, units and meaning, and the values of one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.ledger.outcomes import PENDING, TERMINAL
from ragtrace_collector.telemetry.counters import Counts

__all__ = ["METRICS", "Kind", "Metric", "Reading", "Readings", "counter_name", "read_all"]


class Kind(Enum):
    """How a value behaves."""

    COUNTER = "counter"
    """Grows since the process started."""
    GAUGE = "gauge"
    """Goes up and down."""


class Metric(NamedTuple):
    """One metric. Units are those of UCUM, as OpenTelemetry writes them."""

    name: str
    kind: Kind
    unit: str
    description: str


class Reading(NamedTuple):
    """One value of a metric, and the attributes that tell it from the metric's other values."""

    value: float
    attributes: Mapping[str, str] = {}


Readings = Mapping[str, Sequence[Reading]]
"""The values of one moment by the metric's name: they add up, having been read at once."""


def read_all(ledger: Ledger, counters: Mapping[str, int], *, now_ns: int) -> dict[str, Sequence[Reading]]:
    """Return what the ledger and the counters say: each was read at once, so that the sums hold."""
    return {
        **{counter_name(counted): (Reading(counters[counted.value]),) for counted in Counts},
        "ragtrace.answers.seen": (Reading(ledger.seen),),
        "ragtrace.answers": tuple(_answers(ledger)),
        "ragtrace.answers.superseded": (Reading(ledger.superseded),),
        "ragtrace.answers.oldest_pending": (Reading(ledger.age_s(now_ns)),),
        "ragtrace.traces.open": (Reading(ledger.open_traces),),
        "ragtrace.traces.held": (Reading(ledger.held_traces),),
        "ragtrace.traces.poison": (Reading(ledger.poison_traces),),
        "ragtrace.outbox": tuple(
            Reading(number, {"sink": sink, "state": state})
            for sink, sums in ledger.parcels.items()
            for state, number in sums.items()
            if state != "put"
        ),
        "ragtrace.store.size": (Reading(ledger.store_bytes),),
    }


def _answers(ledger: Ledger) -> Iterator[Reading]:
    """Yield every state and reason that ever was, zeros included: a series must not end at its last value."""
    sums: Counter[tuple[str, str]] = Counter({(state, ""): 0 for state in (*PENDING, *TERMINAL)})
    for account in ledger.accounts:
        sums[account.state, account.reason] += account.number
    for (state, reason), number in sums.items():
        yield Reading(number, {"state": state, "reason": reason})


_PREFIX: Final = "ragtrace.collector."


def counter_name(counted: Counts) -> str:
    """Return the metric's name of what is counted since the process started."""
    return f"{_PREFIX}{counted.value}"


METRICS: Final = (
    *(Metric(counter_name(counted), Kind.COUNTER, "", counted.meaning) for counted in Counts),
    Metric("ragtrace.answers.seen", Kind.GAUGE, "", "RAG answers seen: the sum of ragtrace.answers"),
    Metric("ragtrace.answers", Kind.GAUGE, "", "RAG answers by where they stand and why"),
    Metric("ragtrace.answers.superseded", Kind.GAUGE, "", "answers that late spans moved to another span"),
    Metric("ragtrace.answers.oldest_pending", Kind.GAUGE, "s", "how long the oldest pending answer waits"),
    Metric("ragtrace.traces.open", Kind.GAUGE, "", "traces that more spans may join"),
    Metric("ragtrace.traces.held", Kind.GAUGE, "", "traces whose own spans wait for their scores"),
    Metric(
        "ragtrace.traces.poison", Kind.GAUGE, "", "traces that were set aside as poison: the log names them"
    ),
    Metric("ragtrace.outbox", Kind.GAUGE, "", "parcels by sink and where they stand"),
    Metric("ragtrace.store.size", Kind.GAUGE, "By", "what the store holds"),
    Metric("ragtrace.store.limit", Kind.GAUGE, "By", "store.max_bytes"),
    Metric("ragtrace.judge.concurrency", Kind.GAUGE, "", "requests that a judge is asked at once, at most"),
    Metric(
        "ragtrace.judge.usages_doubted",
        Kind.COUNTER,
        "",
        "requests of which a judge says what cannot be: less than no tokens, or more than were sent",
    ),
    Metric("ragtrace.budget.spent", Kind.GAUGE, "", "spent in this window: calls, tokens, 1e-9 US dollars"),
    Metric("ragtrace.budget.limit", Kind.GAUGE, "", "what may be spent in this window, in the same units"),
    Metric("ragtrace.budget.share_to_sample", Kind.GAUGE, "", "what all rates are multiplied with"),
    Metric(
        "ragtrace.judge.stopped",
        Kind.GAUGE,
        "",
        "1 while nothing is judged, by why: until an answer shows that the judge is back",
    ),
    Metric("ragtrace.collector.ready", Kind.GAUGE, "", "1 while /readyz says so"),
    Metric("ragtrace.collector.tasks", Kind.GAUGE, "", "tasks of the event loop"),
    Metric("ragtrace.collector.loop_lag", Kind.GAUGE, "s", "how late the event loop woke the last time"),
    Metric("ragtrace.collector.config", Kind.GAUGE, "", "1, with the digest of the configuration in force"),
    Metric("ragtrace.collector.reloads", Kind.COUNTER, "", "configurations read on SIGHUP, by result"),
)
