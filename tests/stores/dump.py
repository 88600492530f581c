"""Everything that a store's file holds, to compare it with another."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from ragtrace_collector.store.changelog.tables import COPY


def dump(path: Path) -> Mapping[str, list[tuple[object, ...]]]:
    """Return the rows of every table with their types, the schema, and its version."""
    with closing(sqlite3.connect(path)) as db:
        names = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if name != COPY
        ]
        rows = {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
        schema = db.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name != ? ORDER BY type, name", (COPY,)
        )
        version = db.execute("PRAGMA user_version")
        return {**rows, "(schema)": schema.fetchall(), "(version)": version.fetchall()}
