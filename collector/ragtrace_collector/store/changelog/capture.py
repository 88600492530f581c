"""Which rows a transaction changed: triggers of one connection note their keys.

They are temporary, so the file's schema stays as it is, and other connections do not know them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Final

from ragtrace_collector.store.changelog.log import LoggedRow
from ragtrace_collector.store.changelog.tables import LoggedTable, changeable, number_given, tables_of

_NOTED: Final = "changed_row"


class RowCapture:
    """Notes what its connection changes, until it is asked."""

    def __init__(self, db: sqlite3.Connection, *, most_row_bytes: int) -> None:
        """Begin to note. A statement that makes a row of more than ``most_row_bytes`` fails, alone."""
        self._db = db
        self._tables: Mapping[str, LoggedTable] = tables_of(db)
        self._most_bytes = most_row_bytes
        self._keys = tuple(f"k{number}" for number in range(max(len(t.key) for t in self._tables.values())))
        db.execute("PRAGMA temp_store=MEMORY")
        # Without a key of its own: the clause ON CONFLICT of a statement would hold in the trigger, too.
        db.execute(f"CREATE TEMP TABLE {_NOTED} (name, {', '.join(self._keys)})")
        for table in changeable(self._tables):
            for trigger in self._triggers(table):
                db.execute(trigger)

    def changed(self) -> list[LoggedRow]:
        """Return the rows that this transaction changed, as they are now, and forget that they changed."""
        names = [name for (name,) in self._db.execute(f"SELECT DISTINCT name FROM {_NOTED}")]
        rows = [row for name in names for row in self._changed_in(self._tables[name])]
        if names:
            self._db.execute(f"DELETE FROM {_NOTED}")
        return rows

    def _changed_in(self, table: LoggedTable) -> Iterator[LoggedRow]:
        keys = self._keys[: len(table.key)]
        is_key = " AND ".join(
            f"now.{column} = noted.{key}" for column, key in zip(table.key, keys, strict=True)
        )
        noted = f"SELECT DISTINCT {', '.join(keys)} FROM {_NOTED} WHERE name = ?"
        wanted = [f"noted.{key}" for key in keys] + [f"now.{column}" for column in table.columns]
        query = (
            f"SELECT now.{table.key[0]} IS NULL, {', '.join(wanted)} FROM ({noted}) AS noted"
            f" LEFT JOIN main.{table.name} AS now ON {is_key}"
        )
        for is_gone, *values in self._db.execute(query, (table.name,)):
            row = table.row(tuple(values))
            yield row._replace(values=None) if is_gone else row
        yield from number_given(self._db, table)

    def _triggers(self, table: LoggedTable) -> Iterator[str]:
        old, new = _columns("OLD", table.key), _columns("NEW", table.key)
        into = f"INSERT INTO {_NOTED} (name, {', '.join(self._keys[: len(table.key)])})"
        begin = "CREATE TEMP TRIGGER"
        note_old, note_new = (
            f"{into} VALUES ('{table.name}', {old});",
            f"{into} VALUES ('{table.name}', {new});",
        )
        moved = f"{into} SELECT '{table.name}', {new} WHERE ({old}) IS NOT ({new});"
        on = f"ON main.{table.name}"
        yield f"{begin} {table.name}_is_new AFTER INSERT {on} BEGIN {note_new} END"
        yield f"{begin} {table.name}_is_changed AFTER UPDATE {on} BEGIN {note_old} {moved} END"
        yield f"{begin} {table.name}_is_gone AFTER DELETE {on} BEGIN {note_old} END"
        for number, columns in enumerate(table.unique):
            # A row that REPLACE removes is not said to be deleted.
            same = " AND ".join(f"{column} = NEW.{column}" for column in columns)
            rows = f"SELECT '{table.name}', {', '.join(table.key)} FROM {table.name} WHERE {same}"
            yield f"{begin} {table.name}_is_replaced_{number} BEFORE INSERT {on} BEGIN {into} {rows}; END"
        if table.blobs:
            size = " + ".join(f"coalesce(length(NEW.{column}), 0)" for column in table.blobs)
            what = (
                f"a row of {table.name} is larger than a message of the log may be ({self._most_bytes} bytes)"
            )
            for number, change in enumerate(("INSERT", "UPDATE")):
                yield (
                    f"{begin} {table.name}_is_large_{number} BEFORE {change} {on}"
                    f" WHEN {size} > {self._most_bytes} BEGIN SELECT RAISE(ABORT, '{what}'); END"
                )


def _columns(row: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"{row}.{name}" for name in names)
