"""The state machine: what each record of the log decides. No clock, no I/O: equal logs give equal answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace.budget import Budget, ExceededLimit, Period, Reservation, Spend
from ragtrace.budget.reserve import reserve, settle
from ragtrace_collector.store.budget import KEPT_WINDOWS
from ragtrace_collector.store.budget_log.records import (
    CheckpointRecord,
    NewerRecord,
    Record,
    ReserveRecord,
    SettleRecord,
    decode_record,
)
from ragtrace_collector.store.budget_log.table import BudgetState, LoggedSpend, RecordId, digest_of

CHECKPOINT_EVERY: Final = 1000
_MOST_WAITING: Final = 100_000
_COMPARED: Final = 8
"""States before the last checkpoints, of which the digest is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetEntry:
    """A message of the log."""

    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenWindow:
    """The answer to a reservation at a time so long ago that what was spent then is no longer known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDecision:
    """What a reservation or a settlement became."""

    id: RecordId
    answer: Reservation | ExceededLimit | ForgottenWindow | None = None
    """Of a reservation."""
    is_repeated: bool = False
    """It was read before, and decides nothing."""
    is_checkpoint_due: bool = False
    """Who wrote this record writes the next checkpoint, as of the offset behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRead:
    """A checkpoint of this log."""

    id: RecordId
    as_of: int
    is_equal: bool | None
    """Whether this process had the same state there; ``None`` if it cannot compare."""


class BudgetReplica:
    """The state as of the last record that was read, from the beginning of the log or from a checkpoint."""

    def __init__(
        self,
        first_offset: int,
        *,
        checkpoint_every: int = CHECKPOINT_EVERY,
        kept: Mapping[Period, int] = KEPT_WINDOWS,
    ) -> None:
        self.skipped = 0
        """Records that are not ours."""
        self.newer: NewerRecord | None = None
        """Why nothing more is decided here."""
        self.last_state: tuple[int, bytes] | None = None
        """The state at which a checkpoint was last due, and its offset."""
        self._every = checkpoint_every
        self._kept = kept
        self._next = self._complete_from = first_offset
        self._state = BudgetState(spend=LoggedSpend(kept)) if first_offset == 0 else None
        self._waiting: deque[BudgetEntry] = deque(maxlen=_MOST_WAITING)
        self._digests: dict[int, str] = {}

    @property
    def needs_checkpoint(self) -> bool:
        """Whether the beginning of the log is gone, and no checkpoint was read yet."""
        return self._state is None

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was read."""
        return self._next

    @property
    def spend(self) -> LoggedSpend:
        """What was spent."""
        assert self._state is not None
        return self._state.spend

    def has_read(self, record: RecordId) -> bool:
        """Say whether a record is part of the state."""
        return self._state is not None and self._state.seen.has(record)

    def encode_state(self) -> bytes:
        """Return the whole state as bytes: equal for all that have read as far."""
        assert self._state is not None
        return self._state.encode()

    def read(self, entry: BudgetEntry) -> Iterator[BudgetDecision | CheckpointRead]:
        """Apply the next message of the log; if it is the checkpoint that was missing, all that waited."""
        if self.newer is not None or entry.offset < self._next:
            return
        self._next = entry.offset + 1
        try:
            record = decode_record(entry.value)
            if self._state is None:
                yield from self._start(entry, record)
            else:
                yield from self._apply(self._state, entry.offset, record)
        except NewerRecord as exc:
            self.newer = exc

    def _start(self, entry: BudgetEntry, record: Record | None) -> Iterator[BudgetDecision | CheckpointRead]:
        """Keep messages until a checkpoint comes behind which none is missing."""
        if len(self._waiting) == self._waiting.maxlen:
            self._complete_from = self._waiting[1].offset
        self._waiting.append(entry)
        if not isinstance(record, CheckpointRecord):
            return
        if not self._complete_from <= record.as_of <= entry.offset:
            return
        self._state = self._decoded(record)
        if self._state is None:
            return
        while self._waiting:
            waited = self._waiting.popleft()
            if waited.offset >= record.as_of:
                yield from self._apply(self._state, waited.offset, decode_record(waited.value))

    def _apply(
        self, state: BudgetState, offset: int, record: Record | None
    ) -> Iterator[BudgetDecision | CheckpointRead]:
        match record:
            case None:
                self.skipped += 1
            case CheckpointRecord():
                yield from self._compare(offset, record)
            case ReserveRecord() | SettleRecord() if not state.seen.add(record.id):
                yield BudgetDecision(id=record.id, is_repeated=True)
            case ReserveRecord():
                answer = _reserve(state.spend, record)
                yield BudgetDecision(
                    id=record.id, answer=answer, is_checkpoint_due=self._count(state, offset)
                )
            case SettleRecord():
                _settle(state.spend, record)
                yield BudgetDecision(id=record.id, is_checkpoint_due=self._count(state, offset))

    def _count(self, state: BudgetState, offset: int) -> bool:
        state.applied += 1
        if state.applied % self._every:
            return False
        encoded = state.encode()
        self.last_state = offset + 1, encoded
        self._digests[offset + 1] = digest_of(encoded)
        if len(self._digests) > _COMPARED:
            del self._digests[next(iter(self._digests))]
        return True

    def _compare(self, offset: int, record: CheckpointRecord) -> Iterator[CheckpointRead]:
        known = self._digests.get(record.as_of)
        if known is not None and known == digest_of(record.state):
            yield CheckpointRead(id=record.id, as_of=record.as_of, is_equal=True)
            return
        decoded = self._decoded(record)
        if decoded is None or record.as_of > offset:
            self.skipped += 1
            return
        is_equal = None if known is None else known == digest_of(decoded.encode())
        yield CheckpointRead(id=record.id, as_of=record.as_of, is_equal=is_equal)

    def _decoded(self, record: CheckpointRecord) -> BudgetState | None:
        try:
            return BudgetState.decode(record.state, self._kept)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def _reserve(spend: LoggedSpend, record: ReserveRecord) -> Reservation | ExceededLimit | ForgottenWindow:
    budget = record.budget
    if any(spend.has_forgotten(budget.name, window) for window in budget.windows(record.now_ns)):
        return ForgottenWindow()
    return reserve(spend, budget, record.estimate, now_ns=record.now_ns, share=record.share)


def _settle(spend: LoggedSpend, record: SettleRecord) -> None:
    """Correct the windows that are still kept: a negative amount in a new one would be a gift."""
    windows = tuple(window for window in record.windows if spend.has(record.budget, window))
    budget = Budget(name=record.budget, limits={})
    settle(spend, Reservation(budget=budget, windows=windows, estimate=Spend()), record.difference)
