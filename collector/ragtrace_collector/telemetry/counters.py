"""What the collector counts about itself, in one table. Rates are counters; logs are for rare events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum


class Counts(StrEnum):
    """Everything that is counted since the process started, and what each number says."""

    _value_: str
    meaning: str

    def __new__(cls, name: str, meaning: str) -> Counts:
        member = str.__new__(cls, name)
        member._value_, member.meaning = name, meaning
        return member

    REQUESTS = "requests", "export requests acknowledged"
    SPANS_RECEIVED = "spans_received", "spans in them: the sum of the other ragtrace_collector_spans_*"
    SPANS_KEPT = "spans_kept", "spans in the store, to be looked at"
    SPANS_REJECTED = "spans_rejected", "spans refused in a partial success"
    SPANS_SAMPLED_OUT = "spans_sampled_out", "spans of traces that the ratio leaves out: not stored"
    SPANS_OWN = "spans_own", "carriers and spans of ours that came back: dropped, never judged"
    SPANS_REPEATED = (
        "spans_repeated",
        "spans that a sender, or a loop, sent a second time: neither stored nor forwarded again",
    )
    SPANS_OVER_LIMIT = "spans_over_limit", "spans beyond assemble.max_spans_per_trace: not stored"
    TEXTS_REPAIRED = (
        "texts_mended",
        "names, keys and values in them that were no UTF-8, and have U+FFFD instead",
    )
    REQUESTS_INVALID = "requests_invalid", "requests that are no OTLP"
    REQUESTS_TOO_LARGE = "requests_too_large", "requests beyond receive.max_message_bytes"
    REQUESTS_PUT_OFF = (
        "requests_put_off",
        "requests answered 'try again later': the store is full, or too many large or slow ones at once",
    )
    TRACES_PROCESSED = "traces_settled", "traces looked at for answers"
    TRACES_WITHOUT_RAG = "traces_without_rag", "of those, the ones without any"
    TRACES_POISON = (
        "traces_poison",
        "traces set aside: the process ended each time it looked at them, or they took too much CPU time",
    )
    TRACES_SWEPT = "traces_swept", "stored traces that no stage had: found by a sweep, and handed on"
    ANSWERS_QUEUED = "answers_queued", "answers queued for judgment"
    ANSWERS_SAMPLED_OUT = "answers_sampled_out", "answers that no rule chose"
    ANSWERS_FILTERED = "answers_filtered", "answers left out by a rule that drops"
    ANSWERS_SHED = "answers_shed", "answers left out because they were more than sample.limit allows"
    ANSWERS_BROUGHT_BACK = (
        "answers_brought_back",
        "answers sampled out, and queued after all for feedback or for a low neighbour",
    )
    ANSWERS_REVISED = "answers_revised", "answers queued a second time: late spans changed what was judged"
    ANSWERS_MOVED = (
        "answers_moved",
        "answers found on another span when late spans came: superseded, and counted there",
    )
    ANSWERS_JUDGED = "answers_judged", "answers judged, with a score"
    ANSWERS_INELIGIBLE = "answers_ineligible", "answers with nothing to judge"
    ANSWERS_FAILED = "answers_failed", "answers whose last attempt failed"
    ANSWERS_OVER_BUDGET = "answers_over_budget", "answers that could not wait for a budget with room"
    ANSWERS_EXPIRED = (
        "answers_expired",
        "answers not judged before evaluate.deadline, though nothing failed: there were too many",
    )
    ANSWERS_POSTPONED = "answers_postponed", "attempts that failed, and are made again"
    EVALUATIONS_NOT_JUDGED = (
        "evaluations_not_judged",
        "queued spans that turned out to belong to an evaluator: never judged",
    )
    HOLDS_TIMED_OUT = (
        "holds_timed_out",
        "held traces that went on without all scores: attach.hold_timeout was over",
    )
    HOLDS_OVER_BYTES = (
        "holds_over_bytes",
        "held traces that went on without all scores: more than attach.hold_max_bytes was held",
    )
    HOLDS_WITHOUT_JUDGE = (
        "holds_without_judge",
        "held traces that went on without all scores: the judge was away",
    )
    HOLDS_ENDED_BY_STOP = (
        "holds_ended_by_stop",
        "held traces that went on without all scores: the collector stopped",
    )
    ANSWERS_ON_SPAN = (
        "answers_on_span",
        "answers whose own span carries the scores; the others have a carrier",
    )
    ITEMS_DELIVERED = "parcels_delivered", "requests that back ends took"
    ITEMS_REJECTED = "parcels_rejected", "requests that back ends refused for good"
    DELIVERIES_FAILED = "deliveries_failed", "deliveries that are tried again"
    DELIVERIES_PARTIAL = (
        "deliveries_partial",
        "deliveries of which a back end refused a part for good: what was sent together is sent one by one",
    )
    DELIVERIES_UNREADABLE = (
        "deliveries_unreadable",
        "deliveries that a back end said yes to in a way that cannot be read",
    )
    ITEMS_UNCONFIRMED = (
        "parcels_unconfirmed",
        "requests that are not sent again, though whether a back end took them is not known",
    )
    STAGE_ERRORS = "stage_errors", "unexpected errors that the wall of one stage's item stopped"


class Counters:
    """Counts since the process started."""

    def __init__(self) -> None:
        self._counts: Counter[Counts] = Counter()

    def add(self, what: Counts, number: int = 1) -> None:
        """Count."""
        self._counts[what] += number

    def add_request(self, *, spans: int, left_out: Mapping[Counts, int]) -> None:
        """Count an acknowledged request with all its spans, at once: whoever reads sees sums that hold."""
        kept = spans - sum(left_out.values())
        self._counts.update(
            {Counts.REQUESTS: 1, Counts.SPANS_RECEIVED: spans, Counts.SPANS_KEPT: kept, **left_out}
        )

    def snapshot(self) -> Mapping[str, int]:
        """Return every counter by name, zeros included."""
        return {what.value: self._counts[what] for what in Counts}
