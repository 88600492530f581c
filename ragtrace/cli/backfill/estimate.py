"""The cost estimate of a back-fill, shown and confirmed before the run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, Self

import click

from ragtrace.backfill import DryRun, EstimateRange, RunEstimate
from ragtrace.budget import Prices
from ragtrace.cli.backfill.budget import OVER_BUDGET
from ragtrace.cli.backfill.options import CostOptions
from ragtrace.cli.render import by_kind, dollars, many, rough_duration, talk
from ragtrace.cli.script import INTERRUPTED

_STDIN: Final = "otlp-file:-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What is estimated before anything is spent, and whether somebody must agree."""

    pilot: int
    """How many answers are judged for the estimate."""
    is_agreed: bool
    """Whether the run may spend without asking."""

    @classmethod
    def of(cls, options: CostOptions) -> Self:
        """Return what options name."""
        return cls(pilot=options.pilot or 0, is_agreed=options.is_agreed)

    def check(self, *, source: str, destination: str | None, dry_run: bool) -> None:
        """Refuse a pilot whose verdicts have no place to go, or whose source is gone after it.

        Raises:
            UsageError: the options do not fit together.
        """
        if self.pilot and destination is None:
            raise click.UsageError(
                "--pilot keeps its verdicts for the run that sends them: give the --to of that run"
            )
        if self.pilot and source == _STDIN and not dry_run:
            raise click.UsageError(
                "--pilot reads the source twice, and standard input can be read once: name a file"
            )

    def asks(self, *, source: str, is_free: bool) -> bool:
        """Say whether somebody must agree first.

        Raises:
            UsageError: somebody must, and nobody can be asked.
        """
        if self.is_agreed or is_free:
            return False
        if source == _STDIN or not sys.stdin.isatty():
            raise click.UsageError(
                "this judge may cost money, and there is no terminal to ask on:"
                " --dry-run shows how much, and --yes spends it"
            )
        return True


def agree(preview: DryRun, prices: Prices, *, asks: bool) -> None:
    """Tell what the run will take, and ask whether it shall.

    Raises:
        Abort: it shall not.
    """
    for line in estimate_lines(preview, prices):
        talk(line)
    if not asks or not preview.estimate.records:
        return
    with _interruptible():
        click.confirm("continue?", default=False, abort=True, err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a question: an event loop would only take note of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def exit_code_of(preview: DryRun) -> int:
    """Return the exit code of a dry run, and say what it left out."""
    report, pilot = preview.report, preview.pilot
    if report.broken_off:
        talk(f"{report.broken_off}\nbroken off: the numbers cover only what was read")
    if report.is_stopped:
        talk("stopped: the numbers cover only what was read and judged so far")
        return INTERRUPTED
    if pilot.over_budget:
        talk(f"no more of the pilot was judged: {pilot.over_budget}")
        return OVER_BUDGET
    return int(not (report.is_clean and pilot.is_clean))


def estimate_json(preview: DryRun) -> dict[str, object]:
    """Return the estimate, and what became of the pilot, for machines."""
    pilot = asdict(preview.pilot) if preview.has_pilot else None
    return {"estimate": asdict(preview.estimate), "pilot": pilot}


def estimate_lines(preview: DryRun, prices: Prices) -> Iterator[str]:
    """Tell for people what the run will take."""
    estimate, pilot = preview.estimate, preview.pilot
    answers = f"estimate for {many(estimate.records, 'answer')}"
    if pilot.failed:
        yield f"the pilot failed on {by_kind(pilot.failed)}"
    if estimate.basis == "pilot":
        yield f"{answers}, from {estimate.pilot} that were judged (95 %):"
    elif estimate.calls is not None and not estimate.calls.high:
        yield f"{answers}: no request costs anything"
        return
    else:
        yield f"{answers}, from their sizes; --pilot N narrows it:"
    told = partial(_range, basis=estimate.basis)
    yield f"  calls       {told(estimate.calls, _whole)}"
    yield f"  tokens in   {told(estimate.input_tokens, _whole)}"
    yield f"  tokens out  {told(estimate.output_tokens, _whole)}"
    yield f"  cost        {_cost(estimate, prices)}"
    yield f"  time        {told(estimate.seconds, rough_duration)}"
    if estimate.pilot:
        yield f"the pilot made {pilot.usage.calls:,} of the calls; the run sends its verdicts"


def _cost(estimate: RunEstimate, prices: Prices) -> str:
    if estimate.usd is None:
        return "unknown: a pilot tells" if estimate.calls is None else "unknown: no price, or no tokens told"
    return _range(estimate.usd, dollars, basis=estimate.basis) + (
        f", prices of {prices.date}" if estimate.usd.high else ""
    )


def _range(interval: EstimateRange | None, write: Callable[[float], str], *, basis: str) -> str:
    if interval is None:
        return "unknown: a pilot tells" if basis == "sizes" else "unknown"
    low, likely, high = (write(number) for number in (interval.low, interval.likely, interval.high))
    return likely if low == high else f"{likely} ({low} to {high})"


def _whole(number: float) -> str:
    return f"{number:,.0f}"
