"""The table of the collector's own metrics: names, units, descriptions, and one reading of their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ragtrace_collector.ledger import PENDING, TERMINAL, Ledger
from ragtrace_collector.telemetry.counters import Counts


class InstrumentKind(Enum):
    """How a metric's value changes."""

    COUNTER = "counter"
    """Grows since the process started."""
    GAUGE = "gauge"
    """Goes up and down."""


class Instrument(NamedTuple):
    """One metric. Units are UCUM codes, as in OpenTelemetry."""

    name: str
    kind: InstrumentKind
    unit: str
    description: str


class Measurement(NamedTuple):
    """One value of a metric, with the attributes that identify its series."""

    value: float
    attributes: Mapping[str, str] = {}


Readings = Mapping[str, Sequence[Measurement]]
"""Values by metric name, read at one moment, so that sums add up."""


def read_all(ledger: Ledger, counters: Mapping[str, int], *, now_ns: int) -> dict[str, Sequence[Measurement]]:
    """Return the values of the ledger and the counters. Each was read at one moment, so that sums add up."""
    return {
        **{counter_name(counted): (Measurement(counters[counted.value]),) for counted in Counts},
        "ragtrace.answers.seen": (Measurement(ledger.seen),),
        "ragtrace.answers": tuple(_answers(ledger)),
        "ragtrace.answers.superseded": (Measurement(ledger.superseded),),
        "ragtrace.answers.oldest_pending": (Measurement(ledger.age_s(now_ns)),),
        "ragtrace.traces.open": (Measurement(ledger.open_traces),),
        "ragtrace.traces.held": (Measurement(ledger.held_traces),),
        "ragtrace.traces.poison": (Measurement(ledger.poison_traces),),
        "ragtrace.traces.unread": tuple(_unread(ledger)),
        "ragtrace.outbox": tuple(
            Measurement(number, {"sink": sink, "state": state})
            for sink, sums in ledger.outbox_items.items()
            for state, number in sums.items()
            if state != "put"
        ),
        "ragtrace.dead_letters": tuple(
            Measurement(number, {"reason": reason}) for reason, number in ledger.dead_letters.items()
        ),
        "ragtrace.store.size": (Measurement(ledger.store_bytes),),
    }


def _answers(ledger: Ledger) -> Iterator[Measurement]:
    """Yield every state and reason seen so far, zeros included, so that no series stops at its last value."""
    sums: Counter[tuple[str, str]] = Counter({(state, ""): 0 for state in (*PENDING, *TERMINAL)})
    for account in ledger.accounts:
        sums[account.state, account.reason] += account.number
    for (state, reason), number in sums.items():
        yield Measurement(number, {"state": state, "reason": reason})


def _unread(ledger: Ledger) -> Iterator[Measurement]:
    sums: Counter[str] = Counter()
    for each in ledger.unread:
        sums[each.producer] += each.number
    for producer, number in sums.items():
        yield Measurement(number, {"producer": producer})


_PREFIX: Final = "ragtrace.collector."


def counter_name(counted: Counts) -> str:
    """Return the metric name of a counter."""
    return f"{_PREFIX}{counted.value}"


METRICS: Final = (
    *(Instrument(counter_name(counted), InstrumentKind.COUNTER, "", counted.meaning) for counted in Counts),
    Instrument(
        "ragtrace.answers.seen", InstrumentKind.GAUGE, "", "RAG answers seen: the sum of ragtrace.answers"
    ),
    Instrument("ragtrace.answers", InstrumentKind.GAUGE, "", "RAG answers by state and reason"),
    Instrument(
        "ragtrace.answers.superseded",
        InstrumentKind.GAUGE,
        "",
        "answers that late spans moved to another span",
    ),
    Instrument(
        "ragtrace.evaluation.judged",
        InstrumentKind.GAUGE,
        "",
        "answers of the last ten minutes with a score, by metric",
    ),
    Instrument(
        "ragtrace.evaluation.chosen",
        InstrumentKind.GAUGE,
        "",
        "answers that were to be judged then, by metric: scored, failed, or waiting after a failed attempt",
    ),
    Instrument(
        "ragtrace.evaluation.coverage",
        InstrumentKind.GAUGE,
        "",
        "scored share of the chosen answers, by metric; nothing without any",
    ),
    Instrument(
        "ragtrace.answers.oldest_pending",
        InstrumentKind.GAUGE,
        "s",
        "age of the oldest pending answer",
    ),
    Instrument("ragtrace.traces.open", InstrumentKind.GAUGE, "", "traces that more spans may join"),
    Instrument(
        "ragtrace.traces.held", InstrumentKind.GAUGE, "", "traces whose own spans wait for their scores"
    ),
    Instrument(
        "ragtrace.traces.poison",
        InstrumentKind.GAUGE,
        "",
        "traces set aside as poison: the log names them",
    ),
    Instrument(
        "ragtrace.traces.unread",
        InstrumentKind.GAUGE,
        "",
        "traces with text in which nothing was read, by producer: `ragtrace ledger` proposes a mapping",
    ),
    Instrument("ragtrace.outbox", InstrumentKind.GAUGE, "", "outbox items by sink and state"),
    Instrument("ragtrace.store.size", InstrumentKind.GAUGE, "By", "bytes in the store"),
    Instrument("ragtrace.store.limit", InstrumentKind.GAUGE, "By", "store.max_bytes"),
    Instrument(
        "ragtrace.index.rows", InstrumentKind.GAUGE, "", "judged answers in the index, and superseded ones"
    ),
    Instrument(
        "ragtrace.drift.score",
        InstrumentKind.GAUGE,
        "1",
        "mean score of the anchors in the last complete run of the drift check",
    ),
    Instrument(
        "ragtrace.drift.agreement",
        InstrumentKind.GAUGE,
        "1",
        "share of the anchors' known labels that the last complete run met",
    ),
    Instrument(
        "ragtrace.drift.detected",
        InstrumentKind.GAUGE,
        "",
        "1 while the judge is not the one of the baseline",
    ),
    Instrument(
        "ragtrace.drift.runs",
        InstrumentKind.COUNTER,
        "",
        "runs of the drift check since the baseline, by result",
    ),
    Instrument(
        "ragtrace.judge.model_changes",
        InstrumentKind.COUNTER,
        "",
        "models and fingerprints that answered in a judge's name after the first, by requested model",
    ),
    Instrument(
        "ragtrace.judge.concurrency",
        InstrumentKind.GAUGE,
        "",
        "limit of concurrent requests to a judge",
    ),
    Instrument(
        "ragtrace.judge.usages_doubted",
        InstrumentKind.COUNTER,
        "",
        "responses of a judge with an impossible token usage: negative, or more input than was sent",
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
        "limit of this window, in the same units",
    ),
    Instrument(
        "ragtrace.budget.share_to_sample",
        InstrumentKind.GAUGE,
        "",
        "factor that the budget applies to all sampling rates",
    ),
    Instrument(
        "ragtrace.judge.stopped",
        InstrumentKind.GAUGE,
        "",
        "1 while nothing is judged, by reason: until a response shows that the judge is back",
    ),
    Instrument(
        "ragtrace.kafka.connected",
        InstrumentKind.GAUGE,
        "",
        "1 while the topics of receive.kafka can be read",
    ),
    Instrument(
        "ragtrace.kafka.partitions", InstrumentKind.GAUGE, "", "partitions that the group gave this collector"
    ),
    Instrument(
        "ragtrace.kafka.lag",
        InstrumentKind.GAUGE,
        "",
        "messages of each of these partitions that are not committed",
    ),
    Instrument(
        "ragtrace.dead_letters",
        InstrumentKind.GAUGE,
        "",
        "messages of topics that could not be used, by reason, since the store was made",
    ),
    Instrument("ragtrace.collector.ready", InstrumentKind.GAUGE, "", "1 while /readyz reports ready"),
    Instrument("ragtrace.collector.tasks", InstrumentKind.GAUGE, "", "tasks in the event loop"),
    Instrument("ragtrace.collector.loop_lag", InstrumentKind.GAUGE, "s", "how late the event loop last woke"),
    Instrument(
        "ragtrace.collector.config",
        InstrumentKind.GAUGE,
        "",
        "1, with the digest of the live configuration",
    ),
    Instrument(
        "ragtrace.collector.reloads", InstrumentKind.COUNTER, "", "configuration reloads on SIGHUP, by result"
    ),
)
