"""What the collector counts about itself, in one table. Rates are counters; logs are for rare events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

__all__ = ["Counters", "Counts"]


class Counts(StrEnum):
    """Everything that is counted since the process started."""

    REQUESTS = "requests"
    """Export requests acknowledged."""
    SPANS_RECEIVED = "spans_received"
    """Spans in them: the sum of the following six, at any moment."""
    SPANS_KEPT = "spans_kept"
    """Spans in the store, to be looked at."""
    SPANS_REJECTED = "spans_rejected"
    """Spans refused in a partial success."""
    SPANS_SAMPLED_OUT = "spans_sampled_out"
    """Spans of traces that the ratio leaves out: not stored."""
    SPANS_OWN = "spans_own"
    """Carrier spans that came back to us: dropped, never judged."""
    SPANS_REPEATED = "spans_repeated"
    """Spans that a sender, or a loop, sent a second time: neither stored nor forwarded again."""
    SPANS_OVER_LIMIT = "spans_over_limit"
    """Spans beyond ``assemble.max_spans_per_trace``: not stored."""
    REQUESTS_INVALID = "requests_invalid"
    REQUESTS_TOO_LARGE = "requests_too_large"
    REQUESTS_PUT_OFF = "requests_put_off"
    """Answered "try again later": the store is full, or too many large requests are under way."""
    TRACES_SETTLED = "traces_settled"
    TRACES_WITHOUT_RAG = "traces_without_rag"
    ANSWERS_QUEUED = "answers_queued"
    ANSWERS_SAMPLED_OUT = "answers_sampled_out"
    ANSWERS_FILTERED = "answers_filtered"
    """Left out by a rule that drops."""
    ANSWERS_SHED = "answers_shed"
    """Left out because they were more than ``sample.limit`` allows."""
    ANSWERS_BROUGHT_BACK = "answers_brought_back"
    """Sampled out, and queued after all when feedback came that a rule asks for."""
    ANSWERS_REVISED = "answers_revised"
    """Queued a second time: spans that came late changed what was judged."""
    ANSWERS_MOVED = "answers_moved"
    """Found on another span when late spans came: superseded, and counted there."""
    ANSWERS_JUDGED = "answers_judged"
    ANSWERS_INELIGIBLE = "answers_ineligible"
    ANSWERS_FAILED = "answers_failed"
    ANSWERS_OVER_BUDGET = "answers_over_budget"
    ANSWERS_EXPIRED = "answers_expired"
    """Not judged before ``evaluate.deadline``, though nothing failed: there were too many."""
    ANSWERS_POSTPONED = "answers_postponed"
    EVALUATIONS_NOT_JUDGED = "evaluations_not_judged"
    """Queued spans that turned out to belong to an evaluator: never judged."""
    HOLDS_TIMED_OUT = "holds_timed_out"
    """Held traces that went on without all scores: `attach.hold_timeout` was over."""
    HOLDS_OVER_BYTES = "holds_over_bytes"
    """… more than `attach.hold_max_bytes` was held."""
    HOLDS_WITHOUT_JUDGE = "holds_without_judge"
    """… the judge was away."""
    HOLDS_ENDED_BY_STOP = "holds_ended_by_stop"
    """… the collector stopped."""
    ANSWERS_ON_SPAN = "answers_on_span"
    """Answers whose own span carries the scores; the others have a carrier."""
    PARCELS_DELIVERED = "parcels_delivered"
    PARCELS_REJECTED = "parcels_rejected"
    DELIVERIES_FAILED = "deliveries_failed"
    DELIVERIES_PARTIAL = "deliveries_partial"
    """Deliveries of which the sink took some spans and refused others for good."""
    STAGE_ERRORS = "stage_errors"
    """Unexpected errors that the wall of one stage's item stopped."""


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
