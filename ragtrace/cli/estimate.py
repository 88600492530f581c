"""What a back-fill will cost: told before it is spent, and asked for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial, wraps
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import click

from ragtrace.backfill import DryRun, EstimateRange, RunEstimate
from ragtrace.cli.options import JudgeChoice
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.spending import OVER_BUDGET
from ragtrace.cli.terminal import by_kind, many, talk
from ragtrace.judge import Prices, judge_named_by
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge

Callback: TypeAlias = Callable[..., Any]

_STDIN: Final = "otlp-file:-"
_LEAST_PILOT: Final = 5
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What is told before anything is spent."""

    pilot: int
    """How many answers are judged to tell it."""
    is_agreed: bool
    """Whether it may be spent without asking."""

    def check(self, *, source: str, destination: str | None, dry_run: bool) -> None:
        """Refuse a pilot whose verdicts have no place to go, or whose source is gone after it.

        Raises:
            UsageError: the options do not fit together.
        """
        if self.pilot and destination is None:
            raise click.UsageError(
                "--pilot judges answers, and keeps the verdicts for the run that sends them: give its --to"
            )
        if self.pilot and source == _STDIN and not dry_run:
            raise click.UsageError(
                "--pilot reads the source twice, and standard input comes once: name a file"
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
                "this judge may cost money, and there is no terminal to ask at:"
                " --dry-run tells how much, and --yes spends it"
            )
        return True


def planning_options(command: Callback) -> Callback:
    """Add ``--pilot`` and ``--yes``; the callback gets ``planning``, a `Planning`."""

    @click.option(
        "--pilot",
        type=click.IntRange(min=_LEAST_PILOT, max=100_000),
        metavar="N",
        help="Judge N of the answers, drawn by chance, to tell what all will cost: 20 roughly, 200 well."
        " Their verdicts are kept, and sent by the run.",
    )
    @click.option(
        "--yes", "-y", "is_agreed", is_flag=True, help="Spend without asking. Free judges never ask."
    )
    @wraps(command)
    def with_planning(pilot: int | None, is_agreed: bool, **others: Any) -> Any:
        return command(planning=Planning(pilot=pilot or 0, is_agreed=is_agreed), **others)

    return with_planning


def is_free(choice: JudgeChoice, judges: Sequence[Judge | None]) -> bool:
    """Say whether judging costs nothing: by code, by a model that ragtrace serves itself, at a price of 0, or
    at an endpoint of this machine without a price."""
    return all(_is_free(choice, judge.identity) for judge in judges if judge is not None)


def _is_free(choice: JudgeChoice, who: JudgeIdentity) -> bool:
    if who.computes or who.provider == "llama":
        return True
    price = choice.prices.price_of(who)
    if price is not None:
        return price.input == price.output == 0
    return _is_here(_endpoint(choice, who))


def _endpoint(choice: JudgeChoice, who: JudgeIdentity) -> str:
    provider = (choice.spec or judge_named_by(os.environ)).partition(":")[0]
    named = choice.base_url if provider == who.provider else None
    return named or os.environ.get(f"{who.provider.upper()}_BASE_URL", "")


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def agree(rehearsal: DryRun, prices: Prices, *, asks: bool) -> None:
    """Tell what the run will take, and ask whether it shall.

    Raises:
        Abort: it shall not.
    """
    for line in estimate_lines(rehearsal, prices):
        talk(line)
    if not asks or not rehearsal.estimate.records:
        return
    with _interruptible():
        click.confirm("go on?", default=False, abort=True, err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a question: an event loop would only take note of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def exit_code_of(rehearsal: DryRun) -> int:
    """Return the exit code of a dry run, and say what it left out."""
    report, pilot = rehearsal.report, rehearsal.pilot
    if report.broken_off:
        talk(f"{report.broken_off}\nbroken off: the numbers are of what was read")
    if report.is_stopped:
        talk("stopped: the numbers are of what was read and judged so far")
        return INTERRUPTED
    if pilot.over_budget:
        talk(f"no more of the pilot was judged: {pilot.over_budget}")
        return OVER_BUDGET
    return int(not (report.is_clean and pilot.is_clean))


def estimate_json(rehearsal: DryRun) -> dict[str, object]:
    """Return the estimate, and what became of the pilot, for machines."""
    pilot = asdict(rehearsal.pilot) if rehearsal.has_pilot else None
    return {"estimate": asdict(rehearsal.estimate), "pilot": pilot}


def estimate_lines(rehearsal: DryRun, prices: Prices) -> Iterator[str]:
    """Tell for people what the run will take."""
    estimate, pilot = rehearsal.estimate, rehearsal.pilot
    answers = f"estimate for {many(estimate.records, 'answer')}"
    if pilot.failed:
        yield f"the pilot failed on {by_kind(pilot.failed)}"
    if estimate.basis == "pilot":
        yield f"{answers}, from {estimate.pilot} that were judged (95 %):"
    elif estimate.calls is not None and not estimate.calls.high:
        yield f"{answers}: nothing is asked that costs anything"
        return
    else:
        yield f"{answers}, from their sizes; --pilot N narrows it:"
    told = partial(_range, basis=estimate.basis)
    yield f"  calls       {told(estimate.calls, _whole)}"
    yield f"  tokens in   {told(estimate.input_tokens, _whole)}"
    yield f"  tokens out  {told(estimate.output_tokens, _whole)}"
    yield f"  cost        {_cost(estimate, prices)}"
    yield f"  time        {told(estimate.seconds, _time)}"
    if estimate.pilot:
        yield f"the pilot took {pilot.usage.calls:,} of the calls; its verdicts are kept, and sent by the run"


def _cost(estimate: RunEstimate, prices: Prices) -> str:
    if estimate.usd is None:
        return "unknown: a pilot tells" if estimate.calls is None else "unknown: no price, or no tokens told"
    return _range(estimate.usd, _dollars, basis=estimate.basis) + (
        f", prices of {prices.as_of}" if estimate.usd.high else ""
    )


def _range(interval: EstimateRange | None, write: Callable[[float], str], *, basis: str) -> str:
    if interval is None:
        return "unknown: a pilot tells" if basis == "sizes" else "unknown"
    low, likely, high = (write(number) for number in (interval.low, interval.likely, interval.high))
    return likely if low == high else f"{likely} ({low} to {high})"


def _whole(number: float) -> str:
    return f"{number:,.0f}"


def _dollars(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:.2g}" if usd < 0.01 else f"${usd:.3f}"


def _time(seconds: float) -> str:
    for unit_s, unit in _UNITS:
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1g} s"
