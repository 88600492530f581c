"""The collector's own metrics, in one table: their names, units and meaning, and the values of one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.ledger.outcomes import PENDING, TERMINAL
from ragtrace_collector.telemetry.counters import Counts


class InstrumentKind(Enum):
    """How a value behaves."""

    COUNTER = "counter"
    """Grows since the process started."""
    GAUGE = "gauge"
    """Goes up and down."""


class Instrument(NamedTuple):
    """One metric. Units are those of UCUM, as OpenTelemetry writes them."""

    name: str
    kind: InstrumentKind
    unit: str
    description: str


class Measurement(NamedTuple):
    """One value of a metric, and the attributes that tell it from the metric's other values."""

    value: float
    attributes: Mapping[str, str] = {}


Readings = Mapping[str, Sequence[Measurement]]
"""The values of one moment by the metric's name: they add up, having been read at once."""


def read_all(ledger: Ledger, counters: Mapping[str, int], *, now_ns: int) -> dict[str, Sequence[Measurement]]:
    """Return what the ledger and the counters say: each was read at once, so that the sums hold."""
    return {
        **{counter_name(counted): (Measurement(counters[counted.value]),) for counted in Counts},
        "ragtrace.answers.seen": (Measurement(ledger.seen),),
        "ragtrace.answers": tuple(_answers(ledger)),
        "ragtrace.answers.superseded": (Measurement(ledger.superseded),),
        "ragtrace.answers.oldest_pending": (Measurement(ledger.age_s(now_ns)),),
        "ragtrace.traces.open": (Measurement(ledger.open_traces),),
        "ragtrace.traces.held": (Measurement(ledger.held_traces),),
        "ragtrace.traces.poison": (Measurement(ledger.poison_traces),),
        "ragtrace.outbox": tuple(
            Measurement(number, {"sink": sink, "state": state})
            for sink, sums in ledger.outbox_items.items()
            for state, number in sums.items()
            if state != "put"
        ),
        "ragtrace.store.size": (Measurement(ledger.store_bytes),),
    }


def _answers(ledger: Ledger) -> Iterator[Measurement]:
    """Yield every state and reason that ever was, zeros included: a series must not end at its last value."""
    sums: Counter[tuple[str, str]] = Counter({(state, ""): 0 for state in (*PENDING, *TERMINAL)})
    for account in ledger.accounts:
        sums[account.state, account.reason] += account.number
    for (state, reason), number in sums.items():
        yield Measurement(number, {"state": state, "reason": reason})


_PREFIX: Final = "ragtrace.collector."


def counter_name(counted: Counts) -> str:
    """Return the metric's name of what is counted since the process started."""
    return f"{_PREFIX}{counted.value}"


METRICS: Final = (
    *(Instrument(counter_name(counted), InstrumentKind.COUNTER, "", counted.meaning) for counted in Counts),
    Instrument(
        "ragtrace.answers.seen", InstrumentKind.GAUGE, "", "RAG answers seen: the sum of ragtrace.answers"
    ),
    Instrument("ragtrace.answers", InstrumentKind.GAUGE, "", "RAG answers by where they stand and why"),
    Instrument(
        "ragtrace.answers.superseded",
        InstrumentKind.GAUGE,
        "",
        "answers that late spans moved to another span",
    ),
    Instrument(
        "ragtrace.answers.oldest_pending",
        InstrumentKind.GAUGE,
        "s",
        "how long the oldest pending answer waits",
    ),
    Instrument("ragtrace.traces.open", InstrumentKind.GAUGE, "", "traces that more spans may join"),
    Instrument(
        "ragtrace.traces.held", InstrumentKind.GAUGE, "", "traces whose own spans wait for their scores"
    ),
    Instrument(
        "ragtrace.traces.poison",
        InstrumentKind.GAUGE,
        "",
        "traces that were set aside as poison: the log names them",
    ),
    Instrument("ragtrace.outbox", InstrumentKind.GAUGE, "", "parcels by sink and where they stand"),
    Instrument("ragtrace.store.size", InstrumentKind.GAUGE, "By", "what the store holds"),
    Instrument("ragtrace.store.limit", InstrumentKind.GAUGE, "By", "store.max_bytes"),
    Instrument(
        "ragtrace.judge.concurrency",
        InstrumentKind.GAUGE,
        "",
        "requests that a judge is asked at once, at most",
    ),
    Instrument(
        "ragtrace.judge.usages_doubted",
        InstrumentKind.COUNTER,
        "",
        "requests of which a judge says what cannot be: less than no tokens, or more than were sent",
    ),
    Instrument(
        "ragtrace.budget.spent",
        InstrumentKind.GAUGE,
        "",
        "spent in this window: calls, tokens, 1e-9 US dollars",
    ),
    Instrument(
        "ragtrace.budget.limit",
        InstrumentKind.GAUGE,
        "",
        "what may be spent in this window, in the same units",
    ),
    Instrument(
        "ragtrace.budget.share_to_sample", InstrumentKind.GAUGE, "", "what all rates are multiplied with"
    ),
    Instrument(
        "ragtrace.judge.stopped",
        InstrumentKind.GAUGE,
        "",
        "1 while nothing is judged, by why: until an answer shows that the judge is back",
    ),
    Instrument("ragtrace.collector.ready", InstrumentKind.GAUGE, "", "1 while /readyz says so"),
    Instrument("ragtrace.collector.tasks", InstrumentKind.GAUGE, "", "tasks of the event loop"),
    Instrument(
        "ragtrace.collector.loop_lag", InstrumentKind.GAUGE, "s", "how late the event loop woke the last time"
    ),
    Instrument(
        "ragtrace.collector.config",
        InstrumentKind.GAUGE,
        "",
        "1, with the digest of the configuration in force",
    ),
    Instrument(
        "ragtrace.collector.reloads", InstrumentKind.COUNTER, "", "configurations read on SIGHUP, by result"
    ),
)
