"""``ragtrace outbox``: what back ends refused, and sending it again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.accounts import store_options
from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import many, one_line, print_json, print_line, talk

if TYPE_CHECKING:
    from ragtrace_collector.store.maintenance import RefusedDeliveries


@click.command()
@store_options
@click.option("--retry", is_flag=True, help="Send again what was refused.")
@click.option("--sink", metavar="ENDPOINT", help="Only what this endpoint of `export` refused.")
@json_option
def outbox(store: Path, retry: bool, sink: str | None, as_json: bool) -> None:
    """Show the requests that back ends refused for good, by reason; with --retry, send them again.

    The collector may run meanwhile: it sends them within seconds. What a back end turns away because of a
    token, a permission or a path is not here: the collector keeps that in its queue, and tries by itself.

    \b
    Examples:
      ragtrace outbox --config collector.yaml
      ragtrace outbox --retry --sink http://localhost:4317
    """
    from ragtrace_collector.store.maintenance import refused, send_again

    found = [each for each in refused(store) if sink in (None, each.sink)]
    for each in found:
        _print(each, as_json=as_json)
    if retry:
        talk(f"{many(send_again(store, sink=sink), 'request')} sent again")
    elif not found:
        talk("nothing was refused")


def _print(each: RefusedDeliveries, *, as_json: bool) -> None:
    if as_json:
        print_json(each._asdict())
        return
    oldest = datetime.fromtimestamp(each.oldest_ns / 1e9, UTC).isoformat(timespec="seconds")
    requests = many(each.requests, "request")
    print_line(f"{each.sink}: {requests} since {oldest}: {one_line(each.reason)}")
