"""What a command may spend: options, and the layers around its judges that keep to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from ragtrace.backfill import ResumableRun
from ragtrace.backfill.run_budget import RunBudget
from ragtrace.cli.beside import Beside, Neighbour, read_neighbour
from ragtrace.cli.extras import needs_extra
from ragtrace.errors import ConfigError
from ragtrace.judge import Prices, spent_by
from ragtrace.judge.spend import Limit, ReservingSpender, Spender, budgeted
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge

Callback: TypeAlias = Callable[..., Any]

OVER_BUDGET: Final = 3
"""The exit code of a run that had nothing left to spend."""


@dataclass(slots=True, kw_only=True)
class Spending:
    """What a run may spend, by its own limits and by the purse of a collector beside it."""

    limit: Limit = field(default_factory=Limit)
    neighbour: Neighbour | None = None
    beside: Beside | None = None
    """While a run is open beside a collector."""
    _spenders: list[Spender] = field(default_factory=list)

    def around(self, prices: Prices) -> Callable[[Judge], Judge]:
        """Return what lets every request to a judge be counted first, once a run is open.

        It raises ConfigError where money is limited, and what the judge costs is not known.
        """

        def around(judge: Judge) -> Judge:
            self._check(judge.identity, prices)
            return budgeted(judge, self._spenders, prices.price_of(judge.identity))

        return around

    @asynccontextmanager
    async def opened(self, run: ResumableRun) -> AsyncIterator[ResumableRun]:
        """Open the purses of a run, and let others go before it.

        Raises:
            ConfigError: the collector's store cannot be used.
            ReadError: there is no such store.
        """
        if self.limit != Limit():
            book = RunBudget(progress=run.progress, run=run.name, limit=self.limit)
            self._spenders.append(ReservingSpender(spend_ledger=book))
        if self.neighbour is None:
            yield run
            return
        async with self.neighbour.opened(run.stop) as self.beside:
            if self.beside.spender is not None:
                self._spenders.append(self.beside.spender)
            yield replace(run, turn=self.beside.turn)

    @property
    def waiting_for(self) -> int:
        """Live answers that go first at this moment."""
        return self.beside.waiting_for if self.beside else 0

    def told(self, judges: Sequence[Judge | None], prices: Prices) -> str:
        """Say what the judges were asked so far, in dollars if that is known; nothing if it costs nothing."""
        asked = [(judge, spent_by(judge)) for judge in judges if judge is not None]
        tokens = sum(spent.input_tokens + spent.output_tokens for _, spent in asked)
        costs = [prices.cost_usd(spent, judge.identity) for judge, spent in asked]
        if not tokens:
            return ""
        if None in costs:
            return f"{tokens:,} tokens"
        most = f" of ${self.limit.usd_nano / 1e9:,.2f}" if self.limit.usd_nano else ""
        return f"${sum(filter(None, costs)):,.2f}{most}"

    def _check(self, who: JudgeIdentity, prices: Prices) -> None:
        if self.limit.usd_nano is not None and not who.computes and prices.price_of(who) is None:
            raise ConfigError(
                f"--max-cost limits US dollars, and there is no price for {who.provider}:{who.model}: name it"
                " in a file for --prices (at 0 for a model of your own), or give --max-tokens instead"
            )
        if self.neighbour is not None:
            self.neighbour.check(who, prices)


def spending_options(command: Callback) -> Callback:
    """Add the options that say what may be spent; the callback gets ``spending``, a `Spending`."""

    @click.option(
        "--max-cost",
        type=click.FloatRange(min=0, min_open=True, max=1e9, max_open=True),
        metavar="USD",
        help="Ask the judge only as long as no request can make the run cost more; --resume goes on with what"
        " is left of it.",
    )
    @click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="The same for tokens.")
    @click.option("--max-calls", type=click.IntRange(min=1), metavar="N", help="The same for requests.")
    @click.option(
        "--collector",
        "collector",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        metavar="FILE",
        callback=_neighbour,
        help="The configuration of a collector on this machine: spend from its `budget.backfill`, and wait"
        " while live answers are due.",
    )
    @wraps(command)
    def with_spending(
        max_cost: float | None,
        max_tokens: int | None,
        max_calls: int | None,
        collector: Neighbour | None,
        **others: Any,
    ) -> Any:
        usd_nano = None if max_cost is None else round(max_cost * 1e9)
        limit = Limit(calls=max_calls, tokens=max_tokens, usd_nano=usd_nano)
        return command(spending=Spending(limit=limit, neighbour=collector), **others)

    return with_spending


def _neighbour(_: click.Context, __: click.Parameter, config: Path | None) -> Neighbour | None:
    if config is None:
        return None
    with needs_extra("collector"):
        return read_neighbour(config)
