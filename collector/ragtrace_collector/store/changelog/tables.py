"""The tables of a store as a log sees them: which columns are the key of a row, and which are its values."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace_collector.store.changelog.log import LoggedRow

COPY: Final = "log_copy"
"""The table that says which log a file is a copy of: it belongs to the file, and is not logged."""
_SEQUENCE: Final = "sqlite_sequence"
"""SQLite's own table of the numbers that it gave: one row for each table with AUTOINCREMENT."""
_ROWID: Final = "rowid"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTable:
    """A table whose rows are logged."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """Those beside the key. Columns that SQLite computes are not among them."""
    blobs: tuple[str, ...]
    """Those that may be large."""
    unique: tuple[tuple[str, ...], ...]
    """What must be unique beside the key."""
    is_numbered: bool
    """Whether SQLite notes the highest number that it gave, so that none is given twice."""

    @property
    def all_columns(self) -> str:
        """The key and the columns, for a statement."""
        return ", ".join((*self.key, *self.columns))

    def row(self, values: tuple[object, ...]) -> LoggedRow:
        """Return a row from the values of all columns."""
        width = len(self.key)
        return LoggedRow(self.name, values[:width], values[width:])  # type: ignore[arg-type]


def tables_of(db: sqlite3.Connection) -> Mapping[str, LoggedTable]:
    """Return the tables of a store, by name."""
    tables = {name: _table(db, name) for name in table_names(db)}
    if any(table.is_numbered for table in tables.values()):
        tables[_SEQUENCE] = LoggedTable(
            name=_SEQUENCE, key=("name",), columns=("seq",), blobs=(), unique=(), is_numbered=False
        )
    return tables


def table_names(db: sqlite3.Connection) -> list[str]:
    """Return the names of a store's own tables."""
    query = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name != ? ORDER BY name"
    return [name for (name,) in db.execute(query, (COPY,)) if not name.startswith("sqlite_")]


def changeable(tables: Mapping[str, LoggedTable]) -> Iterator[LoggedTable]:
    """Yield the tables that can have triggers."""
    return (table for table in tables.values() if table.name != _SEQUENCE)


def all_rows(db: sqlite3.Connection, tables: Mapping[str, LoggedTable]) -> Iterator[LoggedRow]:
    """Yield every row of a store."""
    for table in tables.values():
        for values in db.execute(f"SELECT {table.all_columns} FROM main.{table.name}"):
            yield table.row(values)


def number_given(db: sqlite3.Connection, table: LoggedTable) -> Iterator[LoggedRow]:
    """Yield the highest number that SQLite gave in a table, if it notes that."""
    if table.is_numbered:
        rows = db.execute(f"SELECT name, seq FROM main.{_SEQUENCE} WHERE name = ?", (table.name,))
        yield from (LoggedRow(_SEQUENCE, (name,), (seq,)) for name, seq in rows)


def put(db: sqlite3.Connection, table: LoggedTable, rows: list[LoggedRow]) -> None:
    """Write rows as they are in a log into a table, or delete them."""
    gone = [row.key for row in rows if row.values is None]
    here = [(*row.key, *row.values) for row in rows if row.values is not None]
    if table.name == _SEQUENCE:  # it has no key that SQLite knows
        gone += [row.key for row in rows]
    is_key = " AND ".join(f"{column} = ?" for column in table.key)
    marks = ", ".join("?" * (len(table.key) + len(table.columns)))
    db.executemany(f"DELETE FROM main.{table.name} WHERE {is_key}", gone)
    # REPLACE: two rows of one commit may have exchanged what must be unique.
    db.executemany(f"INSERT OR REPLACE INTO main.{table.name} ({table.all_columns}) VALUES ({marks})", here)


def _table(db: sqlite3.Connection, name: str) -> LoggedTable:
    (sql,) = db.execute("SELECT sql FROM main.sqlite_schema WHERE name = ?", (name,)).fetchone()
    columns = db.execute("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    primary = [(number, column, kind) for column, kind, number in columns if number]
    is_alias = len(primary) == 1 and primary[0][2].upper() == "INTEGER"
    has_rowid = not sql.rstrip().upper().endswith("WITHOUT ROWID")
    key = (_ROWID,) if has_rowid and not is_alias else tuple(column for _, column, _ in sorted(primary))
    return LoggedTable(
        name=name,
        key=key,
        columns=tuple(column for column, _, _ in columns if column not in key),
        blobs=tuple(column for column, kind, _ in columns if kind.upper() == "BLOB" and column not in key),
        unique=tuple(_unique_in(db, name)),
        is_numbered="AUTOINCREMENT" in sql.upper(),
    )


def _unique_in(db: sqlite3.Connection, table: str) -> Iterator[tuple[str, ...]]:
    query = "SELECT name FROM pragma_index_list(?) WHERE \"unique\" AND origin != 'pk'"
    for (index,) in db.execute(query, (table,)).fetchall():
        columns = tuple(column for (column,) in db.execute("SELECT name FROM pragma_index_info(?)", (index,)))
        assert all(columns), f"{index} has an expression: say in which columns rows exclude each other"
        yield columns
