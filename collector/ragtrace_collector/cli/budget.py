"""``ragtrace budget``: what judging has cost, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, JsonOption
from ragtrace.cli.render import open_console, print_json
from ragtrace.cli.settings import command, group, option, takes
from ragtrace.clock import SystemClock

if TYPE_CHECKING:
    from ragtrace.budget import BudgetStatus, LimitUsage


_NANO: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOptions:
    """Whose budget is shown."""

    config_path: Path = option(
        "--config",
        type=EXISTING_FILE,
        required=True,
        metavar="FILE",
        help="The collector's configuration: it names the limits and the store.",
    )
    json: JsonOption = group(JsonOption)


@command()
@takes(options=UsageOptions)
def budget(options: UsageOptions) -> None:
    """Show what judging has cost in this minute, day and month, what is left, and when each limit resets.

    Requests in progress count by their estimates. The collector may run meanwhile.

    \b
    Examples:
      ragtrace budget --config collector.yaml
      ragtrace budget --config collector.yaml --json \\
          | jq '.limits[] | select(.left == 0)'
    """
    with needs_extra("collector"):
        found = list(_statuses(options.config_path))
    if options.json.wanted:
        print_json(
            {"limits": [_as_json(status.budget.name, left) for status in found for left in status.left()]}
        )
        return
    console = open_console()
    for status in found:
        console.print(
            f"{status.budget.name}: {'' if status.left() else 'no limits'}".rstrip(": "), style="bold"
        )
        for left in status.left():
            console.print(f"  {_line(left)}", soft_wrap=True)


def _statuses(file: Path) -> Iterator[BudgetStatus]:
    from ragtrace.budget.reserve import status
    from ragtrace_collector.config import load_config
    from ragtrace_collector.drift.judging import drift_budget
    from ragtrace_collector.judge.guard import budget_of
    from ragtrace_collector.store.budget import SpentRows
    from ragtrace_collector.store.open import database_of

    config = load_config(file, needs_secrets=False)
    now_ns = SystemClock().now_ns()
    with database_of(config.store).reading() as db:
        spent = SpentRows(db)
        budgets = [budget_of("live", config.budget.live), budget_of("backfill", config.budget.backfill)]
        if config.drift.anchors is not None:
            budgets.append(drift_budget(config))
        for each in budgets:
            yield status(spent, each, now_ns=now_ns)


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
