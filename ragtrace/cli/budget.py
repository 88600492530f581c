"""``ragtrace budget``: what judging has cost, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import open_console, print_json
from ragtrace.clock import SystemClock

if TYPE_CHECKING:
    from ragtrace_collector.budget import BudgetStatus, LimitUsage


_NANO: Final = 1_000_000_000


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The collector's configuration: it names the limits, and the store.",
)
@json_option
def budget(file: Path, as_json: bool) -> None:
    """Show what judging has cost in this minute, day and month, what is left, and when it begins anew.

    Requests under way count by their estimates. The collector may run meanwhile.

    \b
    Examples:
      ragtrace budget --config collector.yaml
      ragtrace budget --config collector.yaml --json \\
          | jq '.limits[] | select(.left == 0)'
    """
    with needs_extra("collector"):
        found = list(_standings(file))
    if as_json:
        print_json({"limits": [_as_json(each.budget.name, left) for each in found for left in each.left()]})
        return
    console = open_console()
    for each in found:
        console.print(f"{each.budget.name}: {'' if each.left() else 'no limits'}".rstrip(": "), style="bold")
        for left in each.left():
            console.print(f"  {_line(left)}", soft_wrap=True)


def _standings(file: Path) -> Iterator[BudgetStatus]:
    from ragtrace_collector.config import load_config
    from ragtrace_collector.judge.guard import budget_of
    from ragtrace_collector.store.budget import status
    from ragtrace_collector.store.ledger import reading

    config = load_config(file)
    now_ns = SystemClock().now_ns()
    with reading(config.store.file) as db:
        for name, budget in (("live", config.budget.live), ("backfill", config.budget.backfill)):
            yield status(db, budget_of(name, budget), now_ns=now_ns)


def _as_json(budget: str, left: LimitUsage) -> dict[str, object]:
    unit = _NANO if left.limit.endswith("_usd") else 1
    return {
        "purse": budget,
        "limit": left.limit,
        "spent": left.spent / unit,
        "most": left.most / unit,
        "left": max(0, left.most - left.spent) / unit,
        "resets_at": _moment(left).isoformat(),
    }


def _line(left: LimitUsage) -> str:
    is_money = left.limit.endswith("_usd")
    spent, most = (
        f"{number / _NANO:,.4f} USD" if is_money else f"{number:,}" for number in (left.spent, left.most)
    )
    until = f"until {_moment(left):%Y-%m-%d %H:%M} UTC"
    return f"{left.limit:<14} {spent} of {most} ({left.spent / left.most:.0%}), {until}"


def _moment(left: LimitUsage) -> datetime:
    return datetime.fromtimestamp(left.resets_ns // _NANO, UTC)
