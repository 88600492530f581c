"""The ledger: the state of every RAG answer seen, and of every outbox item.

``seen = pending + the sum of what ended`` holds at every reading: the statement that changes an answer's row
also makes both entries, one as seen and one under its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ragtrace.traces.extract import Unread
from ragtrace_collector.ledger.outcomes import PENDING, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How many answers are in one state, for one reason."""

    state: State
    reason: str = ""
    rule: str = ""
    """The sampling rule that chose or skipped the answer."""
    tenant: str = ""
    service: str = ""
    """Known only while the answers' rows are in the store; the totals lack it."""
    number: int

    @property
    def outcome(self) -> str:
        """``judged``, ``failed:judge_timeout``."""
        return self.state.because(self.reason) if self.reason else str(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadTraces(Unread):
    """Traces of one producer that hold text and in which nothing was read. They have no answers."""

    number: int
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One reading of the account. All numbers are of one moment, and outlive the rows that they count."""

    seen: int
    """Answers seen, without those superseded."""
    accounts: Sequence[Account]
    """Without those superseded. An account stays when it is empty."""
    superseded: int = 0
    oldest_pending_ns: int | None = None
    """Unix time in nanoseconds when the oldest pending answer was seen."""
    open_traces: int = 0
    """Traces that wait for a decision, for the first time or because spans joined them."""
    held_traces: int = 0
    """Traces whose spans are held back for their scores."""
    poison_traces: int = 0
    """Traces that were set aside and are still in the store."""
    unread: Sequence[UnreadTraces] = ()
    """By producer, beside the answers; the largest first. An account stays when it is empty."""
    outbox_items: Mapping[str, Mapping[str, int]]
    """``put``, ``waiting``, ``delivered``, ``unconfirmed`` and ``rejected``: put is their sum."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Messages of topics that could not be used, by reason."""
    store_bytes: int = 0

    @property
    def pending(self) -> int:
        """Answers that have not ended."""
        return sum(each.number for each in self.accounts if each.state in PENDING)

    @property
    def ended(self) -> int:
        """Answers that have ended."""
        return sum(each.number for each in self.accounts if each.state not in PENDING)

    @property
    def adds_up(self) -> bool:
        """Whether the two entries of each answer and outbox item agree. If not, someone changed the file."""
        outbox_items = all(
            sums.get("put", 0) == sum(number for state, number in sums.items() if state != "put")
            for sums in self.outbox_items.values()
        )
        return outbox_items and self.seen == self.pending + self.ended

    def age_s(self, now_ns: int) -> float:
        """Return how long the oldest pending answer has waited, in seconds; 0 if none is pending."""
        return 0.0 if self.oldest_pending_ns is None else max(0, now_ns - self.oldest_pending_ns) / 1e9

    def by(self, key: Callable[[Account], str]) -> Mapping[str, int]:
        """Return sums by a key of the accounts, the largest first, without empty ones."""
        sums: Counter[str] = Counter()
        for account in self.accounts:
            sums[key(account)] += account.number
        return {name: number for name, number in sums.most_common() if number}

    def sums(self) -> Mapping[str, int]:
        """Return three sums; the first is the sum of the other two."""
        return {
            "seen": self.seen,
            "pending": self.pending,
            "ended": self.ended,
            "superseded": self.superseded,
        }

    def left(self) -> Mapping[str, int]:
        """Return the unfinished work."""
        return {
            "open_traces": self.open_traces,
            "held_traces": self.held_traces,
            "pending": self.pending,
            "undelivered": self.outbox_items_in("waiting"),
        }

    def by_name(self) -> Mapping[str, int]:
        """Return outcomes and queues in one flat mapping by name."""
        return {
            **self.by(lambda account: account.outcome),
            "open_traces": self.open_traces,
            "held_traces": self.held_traces,
            "poison_traces": self.poison_traces,
            "unread_traces": sum(each.number for each in self.unread),
            "undelivered": self.outbox_items_in("waiting"),
            "unconfirmed": self.outbox_items_in("unconfirmed"),
            "rejected": self.outbox_items_in("rejected"),
        }

    def outbox_items_in(self, state: str) -> int:
        """Return how many outbox items are in a state, as ``waiting`` or ``delivered``."""
        return sum(sums.get(state, 0) for sums in self.outbox_items.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where the newest carrier of an answer is, for one sink."""

    sink: str
    state: str
    """``waiting``, ``delivered``, ``unconfirmed`` (success, but unreadable) or ``rejected``."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStatus:
    """What the store has about one answer, without content."""

    trace_id: str
    span_id: str
    state: State
    reason: str
    rule: str
    rate: float
    probability: float | None
    """None if the answer had more than one chance to be sampled."""
    tenant: str
    service: str
    attempts: int
    last_error: str
    """The class of the last attempt's failure."""
    seen_ns: int
    due_ns: int
    """When it is tried next, while pending."""
    ended_ns: int | None
    carrier: str
    """The carrier's span id."""
    evaluator: str
    """The version of the evaluator that wrote it."""
    is_on_span: bool = False
    """Whether the scores are on the answer span itself, which was held back for them."""
    suspicion: float | None = None
    """By the screen, if the rate depends on it."""
    deliveries: tuple[Delivery, ...] = ()
