"""What was spent as of an offset of the log: a pure function of the records before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ragtrace.budget import Budget, BudgetWindow, Period, Spend
from ragtrace_collector.store.budget import KEPT_WINDOWS

WINDOW_OF_NUMBERS: Final = 1024
"""How far behind the last record of its process a record may be and still be recognized as new."""
MOST_PROCESSES: Final = 256
"""Processes whose records are recognized, those that wrote last."""
_NUMBERS: Final = (1 << WINDOW_OF_NUMBERS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordId:
    """Who wrote a record, and the number that it gave to it: a record that is written twice counts once."""

    process: str
    number: int


class LoggedSpend:
    """What was spent, by budget and window; a `ragtrace.budget.SpendTable`.

    Of each period the newest windows are kept, by number: by age, a clock that is set forward would delete
    them all.
    """

    def __init__(self, kept: Mapping[Period, int] = KEPT_WINDOWS) -> None:
        self._kept = kept
        self._windows: dict[tuple[str, Period], dict[int, Spend]] = {}

    def spent(self, budget: Budget, window: BudgetWindow) -> Spend:
        """Return what was spent; pending requests count by their estimates."""
        return self._windows.get((budget.name, window.period), {}).get(window.start_ns, Spend())

    def add(self, budget: Budget, window: BudgetWindow, amount: Spend) -> None:
        """Add to what was spent; a negative amount corrects an estimate."""
        found = self._windows.setdefault((budget.name, window.period), {})
        found[window.start_ns] = found.get(window.start_ns, Spend()) + amount
        if len(found) > self._most(window.period):
            del found[min(found)]

    def has(self, name: str, window: BudgetWindow) -> bool:
        """Say whether anything was reserved in a window that is still kept."""
        return window.start_ns in self._windows.get((name, window.period), {})

    def has_forgotten(self, name: str, window: BudgetWindow) -> bool:
        """Say whether a window is so old that what was spent in it is no longer known."""
        found = self._windows.get((name, window.period), {})
        return len(found) >= self._most(window.period) and window.start_ns < min(found)

    def rows(self) -> Mapping[str, Any]:
        """Return the table in JSON's types, in an order that depends on nothing but what it holds."""
        return {
            f"{period}/{name}": [
                [start, *amounts_of(spend)] for start, spend in sorted(self._windows[name, period].items())
            ]
            for name, period in sorted(self._windows)
        }

    def load(self, rows: Mapping[str, Iterable[tuple[int, int, int, int]]]) -> None:
        """Take what ``rows`` returned."""
        for key, windows in rows.items():
            period, _, name = key.partition("/")
            self._windows[name, Period(period)] = {
                int(start): Spend(calls=int(calls), tokens=int(tokens), usd_nano=int(usd_nano))
                for start, calls, tokens, usd_nano in windows
            }

    def _most(self, period: Period) -> int:
        return self._kept.get(period, 1)


class SeenRecords:
    """Which records were read, as far as one may come twice: of each process the newest numbers."""

    def __init__(self) -> None:
        self._processes: dict[str, tuple[int, int]] = {}
        """The highest number, and the numbers below it as bits; who wrote last is last."""

    def add(self, record: RecordId) -> bool:
        """Note a record; return whether it is new."""
        last, bits = self._processes.pop(record.process, (-1, 0))
        behind = last - record.number
        is_new = not self._is_seen(behind, bits)
        if behind < 0:
            last, bits = record.number, (bits << min(-behind, WINDOW_OF_NUMBERS)) & _NUMBERS | 1
        elif is_new:
            bits |= 1 << behind
        self._processes[record.process] = last, bits
        if len(self._processes) > MOST_PROCESSES:
            del self._processes[next(iter(self._processes))]
        return is_new

    def has(self, record: RecordId) -> bool:
        """Say whether a record was read, or is too old to say."""
        last, bits = self._processes.get(record.process, (-1, 0))
        return self._is_seen(last - record.number, bits)

    def rows(self) -> list[Any]:
        """Return what was seen in JSON's types."""
        return [[process, last, f"{bits:x}"] for process, (last, bits) in self._processes.items()]

    def load(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Take what ``rows`` returned."""
        self._processes = {str(process): (int(last), int(bits, 16)) for process, last, bits in rows}

    def _is_seen(self, behind: int, bits: int) -> bool:
        return behind >= WINDOW_OF_NUMBERS or (behind >= 0 and bool(bits >> behind & 1))


@dataclass(slots=True, kw_only=True)
class BudgetState:
    """All that decides about the next record."""

    spend: LoggedSpend = field(default_factory=LoggedSpend)
    seen: SeenRecords = field(default_factory=SeenRecords)
    applied: int = 0
    """How many records counted since the log began: checkpoints are due by it, at every process alike."""

    def encode(self) -> bytes:
        """Return the state as bytes: equal states give equal ones."""
        rows = {"applied": self.applied, "seen": self.seen.rows(), "spent": self.spend.rows()}
        return json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, kept: Mapping[Period, int] = KEPT_WINDOWS) -> BudgetState:
        """Read what ``encode`` wrote.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: it is something else.
        """
        rows = json.loads(data)
        state = cls(spend=LoggedSpend(kept), applied=int(rows["applied"]))
        state.seen.load(rows["seen"])
        state.spend.load(rows["spent"])
        return state


def digest_of(state: bytes) -> str:
    """Return what two processes compare of their states."""
    return hashlib.sha256(state).hexdigest()


def amounts_of(spend: Spend) -> list[int]:
    """Return an amount in JSON's types."""
    return [spend.calls, spend.tokens, spend.usd_nano]
