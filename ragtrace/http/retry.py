"""What is tried again, when, and how long a server may ask to be left alone.

| who | which failures | waits |
| --- | --- | --- |
| a judge (`ragtrace.judge.layers`) | ``JudgeUnavailable`` | `Backoff`, two retries, partly random |
| readers, and back-fill's carriers | `REPEATABLE`, no connection | `ReadRetries`, two minutes |
| the collector's outbox | ``SendRetryable``: `OTLP`, `REPEATABLE` | `Backoff`, up to a minute, for ever |

The collector tries answers again over hours, after delays that users configure.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from ragtrace.durations import bounded_wait_s

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Sleeps for this many seconds."""

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retryable:
    """The answers after which another attempt may help, and is safe."""

    statuses: frozenset[int]
    """Of HTTP."""
    codes: frozenset[str]
    """Of gRPC, by name."""


REPEATABLE: Final = Retryable(
    statuses=frozenset({429, 500, 502, 503, 504, 524}),
    codes=frozenset({"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}),
)
"""For requests that may be repeated: reads, and writes that overwrite what has the same id. 524 is a proxy's
time-out, as before Langfuse's cloud."""

OTLP: Final = Retryable(
    statuses=frozenset({429, 502, 503, 504}),
    codes=frozenset(
        {
            "CANCELLED",
            "DEADLINE_EXCEEDED",
            "RESOURCE_EXHAUSTED",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNAVAILABLE",
            "DATA_LOSS",
        }
    ),
)
"""For export requests: https://opentelemetry.io/docs/specs/otlp/#failures. No other status or code may be
retried. The specification requires RetryInfo with RESOURCE_EXHAUSTED, but busy receivers often omit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often to retry, and how long to wait."""

    max_retries: int = 2
    first_wait_s: float = 0.5
    """Doubles with every retry."""
    longest_wait_s: float = 8.0
    max_retry_after_s: float = 120.0
    """If an endpoint asks for a longer pause, the retries end at once: the caller can try again later."""

    def wait_s(self, retry: int, told_s: float | None, draw: float) -> float | None:
        """Return the seconds to wait before a retry, or ``None`` to give up.

        Args:
            retry: Number of earlier retries.
            told_s: The endpoint's ``Retry-After``, a lower bound of the wait.
            draw: A random number in [0, 1), so that clients that failed together do not retry together.
        """
        if retry >= self.max_retries or (told_s or 0.0) > self.max_retry_after_s:
            return None
        return self.own_wait_s(retry, draw) if told_s is None else told_s * (1 + draw / 4)

    def own_wait_s(self, retry: int, draw: float = 1.0) -> float:
        """Return the wait if the endpoint asks for none: between half and all of it, as ``draw`` says.

        Who sends one request at a time has nothing to spread, and draws nothing.
        """
        return min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(retry, 30)) * (1 + draw) / 2


_OF_READERS: Final = Backoff(longest_wait_s=5.0)
_LONGEST_ASKED_FOR_S: Final = 30.0
_MOST_ATTEMPTS: Final = 100
"""A server that asks for no pause at all would get requests without one for two minutes."""


@dataclass(slots=True, kw_only=True)
class ReadRetries:
    """The remaining time budget of one request with all its attempts.

    The limit is a time, not a number of attempts. If a server fails four of five requests, two minutes (27
    attempts) succeed in all but one of 400 cases.
    """

    seconds: float = 120.0
    attempts: int = 0
    """Failed attempts so far."""
    waited_s: float = 0.0

    def pause_s(self, asked_for_s: float | None = None, *, took_s: float = 0.0) -> float | None:
        """Return the pause after a failed attempt; ``None`` if the time is up.

        Args:
            asked_for_s: The server's ``Retry-After``.
            took_s: The duration of the attempt.
        """
        own = _OF_READERS.own_wait_s(self.attempts)
        pause = own if asked_for_s is None else min(asked_for_s, _LONGEST_ASKED_FOR_S)
        self.attempts += 1
        self.waited_s += took_s + pause
        return pause if self.waited_s <= self.seconds and self.attempts < _MOST_ATTEMPTS else None

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"tried {times}"


def retry_after_s_in(headers: Mapping[str, str]) -> float | None:
    """Return the wait that response headers ask for, in seconds, at most a day; ``None`` without one.

    OpenAI's ``retry-after-ms`` precedes ``Retry-After``. Names in lower case must find their headers.
    """
    told_ms = _number_in(headers.get("retry-after-ms", ""))
    if told_ms is not None:
        return bounded_wait_s(told_ms / 1000)
    return retry_after_s_of(headers.get("retry-after", ""), now=datetime.now(UTC))


def retry_after_s_of(header: str, *, now: datetime) -> float | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3): a number of seconds or a date; ``None`` if it is neither.

    Never raises. The wait is at most a day, whatever the server sends; callers apply their own, shorter
    bounds on top. A date without a zone is read as GMT.
    """
    number = _number_in(header)
    if number is not None:
        return bounded_wait_s(number)
    from email.utils import parsedate_to_datetime  # deferred: applications never parse dates

    try:
        moment = parsedate_to_datetime(header.strip())
    except (ValueError, TypeError, OverflowError, IndexError):  # eleven-digit years, week-long zones
        return None
    return bounded_wait_s((moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())


def _number_in(header: str) -> float | None:
    """Return the number in a header, in any unit; ``None`` if there is none."""
    header = header.strip()
    return float(header) if _NUMBER.fullmatch(header) else None
