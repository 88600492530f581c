"""``ragtrace backup``: copy a collector's store while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from ragtrace.cli.options import FILE, JsonOption
from ragtrace.cli.render import many, print_json, talk
from ragtrace.cli.settings import command, group, option, takes
from ragtrace.errors import ConfigError
from ragtrace_collector.cli.accounts import StoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """What is copied."""

    at: StoreOptions = group(StoreOptions)
    salvage: bool = option(
        "--salvage", is_flag=True, help="Copy what is readable of a damaged store. Stop the collector first."
    )
    json: JsonOption = group(JsonOption)


@command()
@click.argument("file", type=FILE, metavar="FILE")
@takes(options=BackupOptions)
def backup(file: Path, options: BackupOptions) -> None:
    """Copy a collector's store to FILE, as of one moment.

    The collector may run meanwhile. To restore the copy: stop the collector, move its store away together
    with its other files (PATH, PATH-wal, PATH-shm), put FILE in place of PATH, start the collector. Like the
    store, FILE contains questions and answers: only its owner can read it.

    With --salvage, FILE gets every readable row of a store that the collector rejects as damaged.

    \b
    Examples:
      ragtrace backup /backups/ragtrace-$(date +%F).db --config collector.yaml
      ragtrace backup copy.db
      ragtrace backup saved.db --salvage --config collector.yaml
    """
    section = options.at.section()
    if section.url is not None:
        raise ConfigError(
            "`ragtrace backup` copies a file, and the store is in PostgreSQL: use "
            "`pg_dump --schema=ragtrace`, or the database's own backups"
        )
    store = section.file
    from ragtrace_collector.store.maintenance import back_up
    from ragtrace_collector.store.recovery import save_readable

    if options.salvage:
        rows = save_readable(store, file)
        said = f"{file} contains what is readable of {store}: {many(sum(rows.values()), 'row')}"
        fields: Mapping[str, object] = {"rows": rows}
    else:
        size = back_up(store, file)
        said, fields = f"{file} is a copy of {store}: {size:,} bytes", {"bytes": size}
    if options.json.wanted:
        print_json({"store": str(store), "file": str(file), **fields})
    else:
        talk(said)
