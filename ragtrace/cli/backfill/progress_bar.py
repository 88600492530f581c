"""How far a back-fill is: one line at the foot of the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.backfill.report import RunCounts
from ragtrace.cli.render import open_console, share_bar
from ragtrace.ports import TraceQuery, TraceReader

if TYPE_CHECKING:
    from rich.console import Console


_REFRESH_HZ: Final = 4
_WIDEST: Final = 20
_UNITS: Final = ((3_600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What the line tells."""

    done: int
    """Answers that are judged, failed, or had nothing to judge."""
    total: int | None
    """How many there will be, if it is known."""
    share: float | None
    """How much of the source is done, from 0 to 1, if it is known."""
    seconds: float
    """Since the run began."""
    spent: str
    """Money or tokens, in words; empty where nothing is spent."""
    waiting_for: int = 0
    """Live answers that go first."""

    @property
    def share_done(self) -> float | None:
        """How much of the run is done, from 0 to 1, if anything tells."""
        share = self.done / self.total if self.total else self.share
        return None if share is None else min(1.0, max(0.0, share))


def bar_line(gauge: Gauge, *, width: int) -> str:
    """Write the line, in no more than so many columns: what matters least is left out first."""
    share = gauge.share_done
    told = [_counted(gauge), _pace(gauge), gauge.spent, _left(gauge.seconds, share)]
    text = " · ".join(filter(None, told))
    if share is None:
        return text[:width]
    room = min(_WIDEST, width - len(text) - len("100%  "))
    drawn = f"{share_bar(share, room)} " if room >= _WIDEST // 4 else ""
    return f"{share:4.0%} {drawn}{text}"[:width]


class ProgressBar:
    """Shows how far a run is, on a terminal; everywhere else it shows nothing."""

    def __init__(self, *, spent: Callable[[], str], waiting_for: Callable[[], int], is_wanted: bool) -> None:
        self._spent = spent
        self._waiting_for = waiting_for
        self._console = open_console(stderr=True) if is_wanted and sys.stderr.isatty() else None
        self._ledger = RunCounts()
        self._began = time.monotonic()
        self.total: int | None = None
        """Answers to judge, if it is known."""
        self.share: Callable[[RunCounts], float | None] = lambda _: None
        """How much of the source is done."""

    def watch(self, ledger: RunCounts) -> None:
        """Look at these counts from now on."""
        self._ledger = ledger

    def console(self) -> Console:
        """Return where tables are printed: above the line, where both are on the terminal.

        Raises:
            ConfigError: rich is not installed.
        """
        is_above = self._console is not None and sys.stdout.isatty()
        return self._console if is_above and self._console else open_console()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line until the block ends."""
        if self._console is None:
            yield
            return
        from rich.live import Live
        from rich.text import Text

        self._began, width = time.monotonic(), self._console.width - 1
        line = Live(
            console=self._console,
            get_renderable=lambda: Text(bar_line(self._gauge(), width=width), no_wrap=True),
            refresh_per_second=_REFRESH_HZ,
            transient=True,
            redirect_stdout=False,
        )
        with line:
            yield

    def _gauge(self) -> Gauge:
        ledger = self._ledger
        return Gauge(
            done=ledger.judged + sum([*ledger.failed.values(), *ledger.ineligible.values()]),
            total=self.total,
            share=self.share(ledger),
            seconds=time.monotonic() - self._began,
            spent=self._spent(),
            waiting_for=self._waiting_for(),
        )


def share_of(reader: TraceReader, query: TraceQuery | None) -> Callable[[RunCounts], float | None]:
    """Return what tells how much of a source is done: by time in a search, else by what is read."""
    if query is None:
        return lambda _: getattr(reader, "share_read", None)
    since_ns, length_ns = query.since_ns, query.until_ns - query.since_ns
    return lambda ledger: max(0, ledger.reached_ns - since_ns) / length_ns


def _counted(gauge: Gauge) -> str:
    return f"{gauge.done:,} of {gauge.total:,}" if gauge.total else f"{gauge.done:,} judged"


def _pace(gauge: Gauge) -> str:
    if gauge.waiting_for:
        return f"waiting for {gauge.waiting_for:,} live"
    return f"{gauge.done / gauge.seconds:.1f}/s" if gauge.done and gauge.seconds else ""


def _left(seconds: float, share: float | None) -> str:
    """Say how long it will take as it goes, where that can be said."""
    if not share or share >= 1:
        return ""
    left_s = seconds * (1 - share) / share
    unit_s, unit = next((each for each in _UNITS if left_s >= each[0]), _UNITS[-1])
    return f"{left_s / unit_s:.0f} {unit} left"
