"""What a back-fill may cost: its budget, and the estimate that is shown and confirmed before the run."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import click

from ragtrace.backfill import DryRun, EstimateRange, ResumableRun, RunEstimate
from ragtrace.backfill.progress import RunLedger, run_budget
from ragtrace.budget import NANO, BudgetGuard, Limit, Prices, Spender, budgeted, require_price
from ragtrace.cli.backfill import BudgetOptions
from ragtrace.cli.render import by_kind, dollars, many, rough_duration, talk
from ragtrace.cli.script import INTERRUPTED
from ragtrace.clock import SystemClock
from ragtrace.judge import spent_by
from ragtrace.model import JudgeIdentity
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Judge

if TYPE_CHECKING:
    from ragtrace_collector.cli.shared_budget import CollectorBudget, OpenCollectorBudget

OVER_BUDGET: Final = 3
"""The exit code of a run whose budget is spent."""
STDIN: Final = "otlp-file:-"


@dataclass(slots=True, kw_only=True)
class BackfillBudget:
    """What a run may spend: its own limits, and the shared budget of a collector."""

    limit: Limit = field(default_factory=Limit)
    shared: CollectorBudget | None = None
    _opened: OpenCollectorBudget | None = None
    _spenders: list[Spender] = field(default_factory=list)

    @classmethod
    def of(cls, options: BudgetOptions) -> Self:
        """Return the budget that options name."""
        limit = Limit.of(calls=options.max_calls, tokens=options.max_tokens, usd=options.max_cost)
        return cls(limit=limit, shared=options.shared)

    def around(self, prices: Prices) -> Callable[[Judge], Judge]:
        """Return a layer that counts every request to a judge before it is made, once a run is open.

        It raises ConfigError if money is limited, and what the judge costs is not known.
        """

        def around(judge: Judge) -> Judge:
            self._check(judge.identity, prices)
            if judge.identity.computes:
                return judge  # it costs nothing
            return budgeted(judge, self._spenders, prices.price_of(judge.identity))

        return around

    @asynccontextmanager
    async def opened(self, run: ResumableRun) -> AsyncIterator[ResumableRun]:
        """Open the budgets of a run, and let live answers go first.

        Raises:
            ConfigError: the collector's store cannot be used.
            ReadError: there is no such store.
        """
        if self.limit != Limit():
            budget, ledger = run_budget(run.name, self.limit), RunLedger(progress=run.progress)
            self._spenders.append(BudgetGuard(budget=budget, ledger=ledger, clock=SystemClock()))
        if self.shared is None:
            yield run
            return
        async with self.shared.opened(run.stop) as self._opened:
            if self._opened.spender is not None:
                self._spenders.append(self._opened.spender)
            yield replace(run, turn=self._opened.turn)

    @property
    def waiting_for(self) -> int:
        """Live answers that go first at this moment."""
        return self._opened.waiting_for if self._opened else 0

    def told(self, evaluator: Evaluator) -> str:
        """Say what the judges were asked so far, in dollars if that is known; nothing if it costs nothing."""
        asked = [(judge.identity, spent_by(judge)) for judge in evaluator.judges]
        tokens = sum(spent.input_tokens + spent.output_tokens for _, spent in asked)
        costs = [evaluator.prices.cost_usd(spent, who) for who, spent in asked]
        if not tokens:
            return ""
        if None in costs:
            return f"{tokens:,} tokens"
        most = f" of ${self.limit.usd_nano / NANO:,.2f}" if self.limit.usd_nano else ""
        return f"${sum(filter(None, costs)):,.2f}{most}"

    def _check(self, who: JudgeIdentity, prices: Prices) -> None:
        require_price(
            run_budget("", self.limit),
            who,
            prices,
            setting="--max-cost",
            remedy=(
                "name it in a file for --set judge.prices=FILE (at 0 for a model of your own), or give"
                " --max-tokens instead"
            ),
        )
        if self.shared is not None:
            self.shared.check(who, prices)


def must_agree(source: str, *, is_agreed: bool, is_free: bool) -> bool:
    """Say whether somebody must agree before anything is spent.

    Raises:
        UsageError: somebody must, and nobody can be asked.
    """
    if is_agreed or is_free:
        return False
    if source == STDIN or not sys.stdin.isatty():
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
