"""``ragtrace backup``: copy a collector's store while it runs."""

from __future__ import annotations

from pathlib import Path

import click

from ragtrace.cli.accounts import store_options
from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import print_json, talk

__all__ = ["backup"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@store_options
@json_option
def backup(file: Path, store: Path, as_json: bool) -> None:
    """Copy a collector's store to FILE, as it stands at one moment.

    The collector may run meanwhile. To go back to the copy: stop the collector, move its store away with the
    files beside it (PATH, PATH-wal, PATH-shm), put FILE in the place of PATH, start the collector. Like the
    store, FILE holds what was asked and answered: only its owner may read it.

    \b
    Examples:
      ragtrace backup /backups/ragtrace-$(date +%F).db --config collector.yaml
      ragtrace backup copy.db --store ragtrace.db
    """
    from ragtrace_collector.store.upkeep import back_up

    size = back_up(store, file)
    if as_json:
        print_json({"store": str(store), "file": str(file), "bytes": size})
    else:
        talk(f"{file} is a copy of {store}: {size:,} bytes")
