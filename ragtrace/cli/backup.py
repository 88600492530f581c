"""``ragtrace backup``: copy a collector's store while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ragtrace.cli.accounts import store_options
from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import many, print_json, talk


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@store_options
@click.option("--salvage", is_flag=True, help="Of a damaged store, with the collector stopped.")
@json_option
def backup(file: Path, store: Path, salvage: bool, as_json: bool) -> None:
    """Copy a collector's store to FILE, as it stands at one moment.

    The collector may run meanwhile. To go back to the copy: stop the collector, move its store away with the
    files beside it (PATH, PATH-wal, PATH-shm), put FILE in the place of PATH, start the collector. Like the
    store, FILE holds what was asked and answered: only its owner may read it.

    With --salvage, FILE gets every row that can be read of a store that the collector refuses as damaged.

    \b
    Examples:
      ragtrace backup /backups/ragtrace-$(date +%F).db --config collector.yaml
      ragtrace backup copy.db
      ragtrace backup saved.db --salvage --config collector.yaml
    """
    from ragtrace_collector.store.maintenance import back_up
    from ragtrace_collector.store.recovery import save_readable

    if salvage:
        rows = save_readable(store, file)
        said = f"{file} has what can be read of {store}: {many(sum(rows.values()), 'row')}"
        fields: Mapping[str, object] = {"rows": rows}
    else:
        size = back_up(store, file)
        said, fields = f"{file} is a copy of {store}: {size:,} bytes", {"bytes": size}
    if as_json:
        print_json({"store": str(store), "file": str(file), **fields})
    else:
        talk(said)
