"""The table of the collector's own counters, and its clocks. Rates are counters; logs are for rare events."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ragtrace.ports import Clock
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


class Counts(StrEnum):
    """Every counter since the process started, with its description."""

    _value_: str
    meaning: str

    def __new__(cls, name: str, meaning: str) -> Counts:
        member = str.__new__(cls, name)
        member._value_, member.meaning = name, meaning
        return member

    REQUESTS = "requests", "export requests acknowledged"
    SPANS_RECEIVED = "spans_received", "spans in them: the sum of the other ragtrace_collector_spans_*"
    SPANS_KEPT = "spans_kept", "spans in the store, to be read for answers"
    SPANS_REJECTED = "spans_rejected", "spans refused in a partial success"
    SPANS_SAMPLED_OUT = "spans_sampled_out", "spans of traces below the sampling ratio: not stored"
    SPANS_OWN = "spans_own", "carriers and spans of the collector that came back: dropped, never judged"
    SPANS_REPEATED = (
        "spans_repeated",
        "spans that a sender or a loop sent a second time: neither stored nor forwarded again",
    )
    SPANS_OVER_LIMIT = "spans_over_limit", "spans beyond assemble.max_spans_per_trace: not stored"
    LOG_RECORDS = "log_records", "log records with messages of a GenAI call: kept, and read with their span"
    LOG_RECORDS_OTHER = (
        "log_records_other",
        "log records of anything else: refused in a partial success, neither kept nor forwarded",
    )
    LOG_RECORDS_FORWARDED = "log_records_forwarded", "log records that go on to a `logs:` export"
    TEXTS_REPAIRED = (
        "texts_mended",
        "names, keys and values in spans and log records with invalid UTF-8, replaced by U+FFFD",
    )
    REQUESTS_INVALID = "requests_invalid", "requests that are not OTLP"
    REQUESTS_TOO_LARGE = "requests_too_large", "requests beyond receive.max_message_bytes"
    REQUESTS_PUT_OFF = (
        "requests_put_off",
        "requests answered 'try again later': the store is full, or too many large or slow ones at once",
    )
    KAFKA_MESSAGES = "kafka_messages", "messages read from topics of receive.kafka, again after a restart too"
    KAFKA_UNKEYED = "kafka_messages_unkeyed", "messages among them without a key"
    KAFKA_DEAD_LETTERS = (
        "kafka_dead_letters",
        "messages among them that could not be used: the ledger and the log say why",
    )
    KAFKA_PAUSES = "kafka_pauses", "times that reading from Kafka paused because the store was full"
    TRACES_PROCESSED = "traces_settled", "traces read for answers"
    TRACES_WITHOUT_RAG = "traces_without_rag", "traces without an answer"
    TRACES_POISON = (
        "traces_poison",
        "traces set aside: the process crashed each time it read them, or they took too much CPU time",
    )
    TRACES_SWEPT = "traces_swept", "stored traces that no stage had: found by a sweep, and assembled"
    ANSWERS_QUEUED = "answers_queued", "answers queued for evaluation"
    ANSWERS_SAMPLED_OUT = "answers_sampled_out", "answers that no rule chose"
    ANSWERS_FILTERED = "answers_filtered", "answers dropped by a rule"
    ANSWERS_SHED = "answers_shed", "answers skipped because they exceeded sample.limit"
    ANSWERS_BROUGHT_BACK = "answers_brought_back", "answers sampled out, and queued later because of feedback"
    ANSWERS_REVISED = "answers_revised", "answers queued a second time: late spans changed what was judged"
    ANSWERS_MOVED = (
        "answers_moved",
        "answers that late spans moved to another span: superseded, and counted there",
    )
    ANSWERS_JUDGED = "answers_judged", "answers judged, with a score"
    SESSIONS_JUDGED = "sessions_judged", "conversations judged as a whole, again after late turns too"
    ANSWERS_INELIGIBLE = "answers_ineligible", "answers with nothing to judge"
    ANSWERS_FAILED = "answers_failed", "answers whose last attempt failed"
    ANSWERS_OVER_BUDGET = "answers_over_budget", "answers that could not wait until the budget had room"
    ANSWERS_EXPIRED = (
        "answers_expired",
        "answers not judged before evaluate.deadline, though nothing failed: there were too many",
    )
    ANSWERS_POSTPONED = "answers_postponed", "failed attempts that are retried"
    EVALUATIONS_NOT_JUDGED = (
        "evaluations_not_judged",
        "queued spans that turned out to belong to an evaluator: never judged",
    )
    HOLDS_TIMED_OUT = (
        "holds_timed_out",
        "held traces released without all scores: attach.hold_timeout was over",
    )
    HOLDS_OVER_BYTES = (
        "holds_over_bytes",
        "held traces released without all scores: more than an eighth of store.max_bytes was held",
    )
    HOLDS_WITHOUT_JUDGE = (
        "holds_without_judge",
        "held traces released without all scores: the judge was unavailable",
    )
    HOLDS_ENDED_BY_STOP = (
        "holds_ended_by_stop",
        "held traces released without all scores: the collector stopped",
    )
    ANSWERS_ON_SPAN = (
        "answers_on_span",
        "answers whose own span carries the scores; the others have a carrier",
    )
    ITEMS_DELIVERED = "parcels_delivered", "outbox items that back ends accepted"
    ITEMS_REJECTED = "parcels_rejected", "outbox items that back ends refused for good"
    DELIVERIES_FAILED = "deliveries_failed", "failed deliveries that are retried"
    DELIVERIES_PARTIAL = (
        "deliveries_partial",
        "deliveries of which a back end refused a part for good: their items are sent again one by one",
    )
    DELIVERIES_UNREADABLE = (
        "deliveries_unreadable",
        "deliveries that a back end answered with success in a response that cannot be read",
    )
    ITEMS_UNCONFIRMED = (
        "parcels_unconfirmed",
        "outbox items that may not have reached a back end and are not sent again",
    )
    STAGE_ERRORS = "stage_errors", "unexpected errors in a stage, caught for one item"


class Counters:
    """Counts since the process started."""

    def __init__(self) -> None:
        self._counts: Counter[Counts] = Counter()

    def add(self, what: Counts, number: int = 1) -> None:
        """Count."""
        self._counts[what] += number

    def add_request(self, *, spans: int, left_out: Mapping[Counts, int]) -> None:
        """Count an acknowledged request and all its spans in one step, so that sums always add up."""
        kept = spans - sum(left_out.values())
        self._counts.update(
            {Counts.REQUESTS: 1, Counts.SPANS_RECEIVED: spans, Counts.SPANS_KEPT: kept, **left_out}
        )

    def snapshot(self) -> Mapping[str, int]:
        """Return every counter by name, zeros included."""
        return {what.value: self._counts[what] for what in Counts}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """One moment of a consumer."""

    trouble: str | None = None
    """Why nothing can be read; ``None`` while the topics can be read."""
    is_paused: bool = False
    """Whether it fetches nothing, because the store is full."""
    partitions: int = 0
    """How many partitions its group gave it."""
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How many messages wait, by topic and partition, as far as that is known."""


_WORTH_TELLING_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * 10**9
_FAR_AHEAD_NS: Final = 7 * _DAY_NS


class SteadyClock:
    """Another clock's time, which continues from its latest reading if that clock is set back.

    It is then ahead by as much as that clock went back, after a restart too if the store has the time.
    """

    def __init__(self, clock: Clock, *, not_before_ns: int = 0) -> None:
        self._clock = clock
        self._latest_ns = not_before_ns
        self._ahead_ns = 0

    def now_ns(self) -> int:
        """Unix time in nanoseconds, never less than before."""
        now_ns = self._clock.now_ns() + self._ahead_ns
        if now_ns < self._latest_ns:
            self._go_on_from_latest(self._latest_ns - now_ns)
        self._latest_ns = max(now_ns, self._latest_ns)
        return self._latest_ns

    def _go_on_from_latest(self, back_ns: int) -> None:
        self._ahead_ns += back_ns
        if back_ns >= _WORTH_TELLING_NS:
            log.warning(
                "the clock was set back by %.0f s: waiting times are unaffected; carriers that are dated "
                "`now` are dated ahead by as much",
                back_ns / 1e9,
                extra=event("clock_set_back"),
            )


class CalendarClock:
    """Another clock's time, to compare with times of applications: if it was wrong once, it is right again.

    It runs ahead by no more than has passed since the start. If the clock is far ahead of the newest answer
    then, it begins with that answer's time: nothing is deleted because the clock is ahead.
    """

    def __init__(
        self, clock: Clock, monotonic_ns: Callable[[], int], *, newest_ns: int | None = None
    ) -> None:
        self._clock = clock
        self._monotonic_ns = monotonic_ns
        now_ns = clock.now_ns()
        self._began_ns = now_ns - monotonic_ns()
        if newest_ns is not None and now_ns - newest_ns > _FAR_AHEAD_NS:
            self._began_ns = newest_ns - monotonic_ns()
            log.warning(
                "the clock is %d days ahead of the newest judged answer: none is deleted for its age;"
                " if the clock is right, restart once newer answers are judged",
                (now_ns - newest_ns) // _DAY_NS,
                extra=event("clock_ahead"),
            )

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return min(self._clock.now_ns(), self._began_ns + self._monotonic_ns())
