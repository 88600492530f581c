"""The retry policy of answers: what happens after a failed attempt, over hours and restarts.

The judge has its own short retries (`ragtrace.judge.layers`): two more requests, seconds apart, if the
endpoint is busy. A failure that remains is handled here, by its class:

| class | what happened | what happens to the answer |
| --- | --- | --- |
| ``judge_unavailable`` | 429, 408, 409, 5xx, no connection | tried again after the next delay |
| ``judge_timeout``, ``evaluation_timeout`` | no answer in time | tried again after the next delay |
| ``judge_error`` | a judge failed in another way | tried again after the next delay |
| ``judge_refused`` | 401, 402, 403, 404, quota, model | waits for the breaker; no attempt is used up |
| ``judge_refused`` again, but not others | a gateway forbids its text | tried again after the next delay |
| any of these, and the breaker is open | the endpoint asked for a long pause | waits for the breaker |
| ``over_budget`` | a limit would be exceeded | waits for the next window; no attempt is used up |
| ``store_unavailable`` | the disk is full: nothing can be counted | waits; no attempt is used up |
| all others | a retry would give the same result | ends at once |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ragtrace.budget import BudgetUnavailable, OverBudget
from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.model import MetricFailure
from ragtrace_collector.config import EvaluateConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.ledger import MOST_CRASHES, POISON, State
from ragtrace_collector.store.records import Job

TIMED_OUT: Final = "evaluation_timeout"


class RetryClass(StrEnum):
    """What a failure needs."""

    AGAIN = "again"
    """Another attempt."""
    WAIT = "wait"
    """Wait until a breaker or a budget allows requests again: the answer itself has not failed."""
    NEVER = "never"


_RETRY_CLASSES: Final = {
    JudgeUnavailable.error_type: RetryClass.AGAIN,
    JudgeTimeout.error_type: RetryClass.AGAIN,
    JudgeError.error_type: RetryClass.AGAIN,
    TIMED_OUT: RetryClass.AGAIN,
    JudgeRefused.error_type: RetryClass.WAIT,
    OverBudget.error_type: RetryClass.WAIT,
    BudgetUnavailable.error_type: RetryClass.WAIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """Why an attempt did not give all scores."""

    error_type: str
    message: str
    retry_class: RetryClass

    @classmethod
    def of(cls, failure: MetricFailure) -> AttemptFailure:
        """Classify the failure of a metric. Plug-ins have their own error types, and say whether to retry."""
        own = RetryClass.AGAIN if failure.retryable else RetryClass.NEVER
        return cls(
            error_type=failure.error_type,
            message=failure.message,
            retry_class=_RETRY_CLASSES.get(failure.error_type, own),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When and why an answer is tried again."""

    due_ns: int
    fault: AttemptFailure
    failed: bool
    """Whether the attempt counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long an answer is retried."""

    retry_delays_ns: tuple[int, ...]
    wait_ns: int
    """The least time an answer waits for an open breaker or a spent budget."""
    deadline_ns: int
    """Counted from when it was queued."""

    @classmethod
    def of(cls, evaluate: EvaluateConfig) -> RetryPolicy:
        """Read the policy from the section ``evaluate``."""
        return cls(
            retry_delays_ns=tuple(nanoseconds(delay) for delay in evaluate.retry_delays),
            wait_ns=nanoseconds(evaluate.probe_delays[0]),
            deadline_ns=nanoseconds(evaluate.deadline),
        )

    def next_retry(
        self, job: Job, faults: Sequence[AttemptFailure], *, opens_ns: int, now_ns: int
    ) -> Retry | None:
        """Return when the answer is tried again, or ``None`` if it ends, with a result or at its deadline.

        ``opens_ns`` is when the judges may be asked again.
        """
        is_closed = opens_ns > now_ns
        waiting = next((fault for fault in faults if _waits(fault, job, is_closed=is_closed)), None)
        failing = next((fault for fault in faults if fault.retry_class is not RetryClass.NEVER), None)
        if waiting or (failing and is_closed):
            due_ns = max(opens_ns, now_ns + self.wait_ns)
            return self._in_time(job, due_ns, waiting or failing, failed=False)
        if failing and job.attempts < len(self.retry_delays_ns):
            return self._in_time(job, now_ns + self.retry_delays_ns[job.attempts], failing, failed=True)
        return None

    def _in_time(self, job: Job, due_ns: int, fault: AttemptFailure | None, *, failed: bool) -> Retry | None:
        if fault is None or due_ns >= job.seen_ns + self.deadline_ns:
            return None
        return Retry(due_ns=due_ns, fault=fault, failed=failed)

    def hopeless_before_ns(self, opens_ns: int) -> int:
        """Return the earliest queue time of an answer that can still be judged from ``opens_ns`` on."""
        return opens_ns - self.deadline_ns

    def ended(self, job: Job, *, now_ns: int) -> str | None:
        """Return the outcome of an answer that is not tried (again), or ``None`` if it is."""
        if job.crashes >= MOST_CRASHES:
            return POISON
        if now_ns < job.seen_ns + self.deadline_ns:
            return None
        if not job.reason:
            return State.EXPIRED.because("deadline")
        return State.OVER_BUDGET if job.reason == OverBudget.error_type else State.FAILED.because(job.reason)


def _waits(fault: AttemptFailure, job: Job, *, is_closed: bool) -> bool:
    """Say whether an answer waits. It doesn't if it was refused before and other answers are not."""
    is_its_own = fault.error_type == JudgeRefused.error_type == job.reason and not is_closed
    return fault.retry_class is RetryClass.WAIT and not is_its_own
