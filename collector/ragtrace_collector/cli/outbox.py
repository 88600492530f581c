"""``ragtrace outbox``: the requests that back ends rejected, and how to send them again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ragtrace.cli.options import JsonOption
from ragtrace.cli.render import many, one_line, print_json, print_line, talk
from ragtrace.cli.settings import command, group, option, takes
from ragtrace_collector.cli.accounts import StoreOptions

if TYPE_CHECKING:
    from ragtrace_collector.store.maintenance import RefusedDeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxOptions:
    """Which requests are shown, and whether they are sent again."""

    at: StoreOptions = group(StoreOptions)
    retry: bool = option("--retry", is_flag=True, help="Send the rejected requests again.")
    sink: str | None = option(
        "--sink", metavar="ENDPOINT", help="Only what this endpoint of `export` rejected."
    )
    json: JsonOption = group(JsonOption)


@command()
@takes(options=OutboxOptions)
def outbox(options: OutboxOptions) -> None:
    """Show the requests that back ends rejected for good, by reason; with --retry, send them again.

    The collector may run meanwhile: it sends them within seconds. Requests that fail because of a token, a
    permission or a path are not listed: the collector keeps them in its queue and retries by itself.

    \b
    Examples:
      ragtrace outbox --config collector.yaml
      ragtrace outbox --retry --sink http://localhost:4317
    """
    section, sink = options.at.section(), options.sink
    from ragtrace.sync import wait_for
    from ragtrace_collector.store.maintenance import refused, send_again
    from ragtrace_collector.store.open import database_of

    store = database_of(section)
    found = [each for each in refused(store) if sink in (None, each.sink)]
    for each in found:
        _print(each, as_json=options.json.wanted)
    if options.retry:
        talk(f"{many(wait_for(send_again(store, sink=sink)), 'request')} sent again")
    elif not found:
        talk("nothing was refused")


def _print(each: RefusedDeliveries, *, as_json: bool) -> None:
    if as_json:
        print_json(each._asdict())
        return
    oldest = datetime.fromtimestamp(each.oldest_ns / 1e9, UTC).isoformat(timespec="seconds")
    requests = many(each.requests, "request")
    print_line(f"{each.sink}: {requests} since {oldest}: {one_line(each.reason)}")
