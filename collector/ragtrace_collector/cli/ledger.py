"""``ragtrace ledger``: the state of every RAG answer that the collector saw, and what judging cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

import click

from ragtrace.cli.options import JsonOption, command, duration, group, option, takes
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json, talk, utc
from ragtrace.process import SystemClock
from ragtrace_collector.cli.places import LedgerOptions

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.budget import LimitUsage
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.ledger import Ledger
    from ragtrace_collector.store.database import Database
    from ragtrace_collector.store.open import RefusedDeliveries


Key = Literal["state", "reason", "rule", "service", "tenant"]

_NANO: Final = 1_000_000_000
_FIELDS: Final = {"reason": "outcome"}
"""Of an account, where a key is not the name of its field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """What is counted, and how it is shown."""

    since: timedelta | None = option(
        "--since",
        parse=duration,
        metavar="DURATION",
        help="Only answers seen in the last 90s, 15m, 1h, 7d that are still in the store.",
    )
    by: Key = option(
        "--by",
        type=click.Choice(get_args(Key)),
        default="state",
        show_default=True,
        help="How to group the answers. `state` and `reason` also explain each group.",
    )
    sends_refused: bool = option(
        "--send-refused", is_flag=True, help="Send again what back ends refused for good."
    )
    json: JsonOption = group(JsonOption)


@command()
@takes(place=LedgerOptions, count=CountOptions)
def ledger(place: LedgerOptions, count: CountOptions) -> None:
    """Count the RAG answers that the collector saw, by state; with what judging cost, and what was refused.

    Seen answers are always the sum of pending and ended ones. Every answer ends in one state, with a reason.
    Totals survive restarts, and also count what the store has deleted. Limits of `budget` are those of
    --config: spent, left, and when each resets; requests in progress count by their estimates. Refused are
    requests that a back end rejects for good; those that fail because of a token, a permission or a path the
    collector retries by itself. The collector may run meanwhile. Exit code 1 if the numbers do not add up.

    \b
    Examples:
      ragtrace ledger
      ragtrace ledger --config collector.yaml --by reason
      ragtrace ledger --since 1h --by service
      ragtrace ledger --config collector.yaml --send-refused
      ragtrace ledger --from http://127.0.0.1:4329 --json | jq .pending
    """
    report = _read(place, count)
    if count.json.wanted:
        print_json(_as_json(report))
    else:
        _print(open_console(), report)
    click.get_current_context().exit(0 if report.ledger.adds_up else 1)


class _Report(NamedTuple):
    ledger: Ledger
    by: Key
    since: timedelta | None
    now_ns: int
    limits: Sequence[tuple[str, LimitUsage]] = ()
    """Of the budget of this name."""
    refused: Sequence[RefusedDeliveries] = ()


def _read(place: LedgerOptions, count: CountOptions) -> _Report:
    now_ns = SystemClock().now_ns()
    since_ns = None if count.since is None else now_ns - int(count.since.total_seconds() * 1e9)
    if count.by == "service" and since_ns is None:
        since_ns = 0  # the totals go without services: a sender may name any number of them
    if place.url is not None:
        if count.sends_refused:
            raise click.UsageError(
                "--send-refused writes into the store: name it with --config or --from store:PATH"
            )
        return _Report(place.ledger_at(place.url, since_ns=since_ns), count.by, count.since, now_ns)
    config = place.config()
    from ragtrace.process import wait_for
    from ragtrace_collector.store.ledger import take_stock
    from ragtrace_collector.store.open import database_of, refused, send_again

    database = database_of(place.section_of(config))
    if count.sends_refused:
        talk(f"{many(wait_for(send_again(database)), 'request')} sent again")
    found = take_stock(database, since_ns=since_ns)
    limits = _limits(config, database, now_ns) if config else ()
    return _Report(found, count.by, count.since, now_ns, limits, refused(database))


def _limits(config: CollectorConfig, database: Database, now_ns: int) -> Sequence[tuple[str, LimitUsage]]:
    from ragtrace_collector.drift import drift_budget
    from ragtrace_collector.judge import budget_of
    from ragtrace_collector.store.budget import status

    budgets = [budget_of("live", config.budget.live), budget_of("backfill", config.budget.backfill)]
    if config.drift.anchors is not None:
        budgets.append(drift_budget(config))
    with database.reading() as db:
        return [(each.name, left) for each in budgets for left in status(db, each, now_ns=now_ns).left()]


def _rows(report: _Report) -> Mapping[str, int]:
    return report.ledger.by(lambda account: getattr(account, _FIELDS.get(report.by, report.by)))


def _as_json(report: _Report) -> dict[str, object]:
    from ragtrace_collector.operations.pages import ledger_form

    found = report.ledger
    return {
        **ledger_form.dump_python(found, mode="json"),
        **found.sums(),
        "adds_up": found.adds_up,
        "by": report.by,
        "rows": _rows(report),
        "limits": [_limit_json(name, left) for name, left in report.limits],
        "refused": [each._asdict() for each in report.refused],
    }


def _limit_json(budget: str, left: LimitUsage) -> dict[str, object]:
    unit = _NANO if left.limit.endswith("_usd") else 1
    return {
        "budget": budget,
        "limit": left.limit,
        "spent": left.spent / unit,
        "most": left.most / unit,
        "left": max(0, left.most - left.spent) / unit,
        "resets_at": datetime.fromtimestamp(left.resets_ns // _NANO, UTC).isoformat(),
    }


def _print(console: Console, report: _Report) -> None:
    from ragtrace_collector.ledger import meaning_of

    found = report.ledger
    console.print(_title(report), style="bold", soft_wrap=True)
    for key, number in _rows(report).items():
        name = one_line(key) or f"(no {report.by})"
        console.print(f"  {number:>12,}  {number / found.seen:>6.1%}  {name}", soft_wrap=True)
        if report.by in ("state", "reason"):
            state, _, reason = key.partition(":")
            told = meaning_of(state, reason)
            advice = f" -> {told.advice}" if told.advice != "nothing" else ""
            print_indented(console, 24, f"{told.meaning}{advice}", style="dim")
    for line in _below(report):
        print_indented(console, 2, line)
    if not found.adds_up:
        console.print("The numbers do not add up: somebody changed the file by hand", style="bold red")


def _title(report: _Report) -> str:
    found = report.ledger
    of = "" if report.since is None else f" in the last {report.since}"
    return (
        f"{many(found.seen, 'answer')} seen{of} = {found.ended:,} ended + {found.pending:,} pending"
        f"{f' (the oldest for {found.age_s(report.now_ns):,.0f} s)' if found.pending else ''}"
    )


def _below(report: _Report) -> Iterator[str]:
    from ragtrace_collector.ledger import PARTLY

    found = report.ledger
    if partly := found.by(lambda account: account.outcome).get(PARTLY):
        yield f"{many(partly, 'judged answer')} partly: a metric failed; --by reason says what to do"
    if found.superseded:
        yield f"besides, {many(found.superseded, 'answer')} superseded: late spans moved them to other spans"
    if found.open_traces or found.held_traces:
        yield f"{many(found.open_traces, 'open trace')}, {many(found.held_traces, 'trace')} held"
    if found.poison_traces:
        yield f"{many(found.poison_traces, 'trace')} quarantined as poison: the log names them"
    for unread in found.unread:
        if unread.number:
            producer = one_line(unread.producer) or "(no name)"
            yield f"besides, {many(unread.number, 'trace')} of {producer} unread: {one_line(unread.advice)}"
    if found.dead_letters:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in found.dead_letters.items())
        yield f"{many(sum(found.dead_letters.values()), 'dead letter')} of Kafka: {reasons}"
    for sink, sums in found.outbox_items.items():
        states = ", ".join(f"{number:,} {state}" for state, number in sums.items() if state != "put")
        yield f"to {one_line(sink)}: {states}"
    for each in report.refused:
        requests = many(each.requests, "request")
        yield f"refused by {each.sink} since {utc(each.oldest_ns)}: {requests}: {one_line(each.reason)}"
    for name, left in report.limits:
        yield f"budget {name}: {_limit_line(left)}"


def _limit_line(left: LimitUsage) -> str:
    spent, most = (
        f"{number / _NANO:,.4f} USD" if left.limit.endswith("_usd") else f"{number:,}"
        for number in (left.spent, left.most)
    )
    return f"{left.limit} {spent} of {most} ({left.spent / left.most:.0%}), until {utc(left.resets_ns)}"
