"""Rows of tables: CSV with any usual separator, Parquet, and JSON as data frames are written."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ragtrace._unpacking import LONGEST_LINE
from ragtrace.errors import ConfigError, InputError
from ragtrace.extras import install_command

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

IsField = Callable[[object], bool]
"""Says whether this is the name of a field."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SEPARATORS: Final = ",;\t|"
_SEPARATOR_LINE: Final = "sep="
"""Excel's first line, before the header, such as ``sep=;``."""
_ROWS_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A row that does not fit the columns."""

    cells: int
    columns: int


def csv_rows(lines: Iterable[bytes], name: str, is_field: IsField) -> Iterator[tuple[str, object]]:
    """Yield the rows below the header; an empty cell is ``None``.

    What separates the cells is told by the header: the character that gives the most names of fields. A line
    break within quotes is part of its cell.

    Raises:
        InputError: it is not CSV, or not UTF-8; names the line.
    """
    csv.field_size_limit(LONGEST_LINE)  # 128 KiB without it, for the whole process
    decoded = _decoded(lines, name)
    head = next(decoded, "")
    named = head.strip().removeprefix(_SEPARATOR_LINE)
    if len(named) == 1 and head.startswith(_SEPARATOR_LINE):
        separator, skipped = named, 1
    else:
        separator, skipped, decoded = _separator(head, is_field), 0, chain([head], decoded)
    rows = csv.reader(decoded, strict=True, delimiter=separator)
    try:
        header = next(rows, [])
        if twice := next((column for column in header if header.count(column) > 1), None):
            raise InputError(f"{name}: two columns are named `{twice[:60]}`: rename one of them")
        for number, cells in enumerate(filter(None, rows), start=1):
            yield f"row {number}", _fitted(header, [cell or None for cell in cells])
    except csv.Error as exc:
        raise InputError(f"{name}, line {rows.line_num + skipped}: is not CSV: {exc}") from None


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        bare = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        try:
            yield bare.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{name}, line {number}: is not UTF-8: save the file as UTF-8") from None


def _separator(head: str, is_field: IsField) -> str:
    def fields(separator: str) -> int:
        try:
            [columns] = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
        except (csv.Error, ValueError):  # a column's name with a line break
            columns = head.split(separator)
        return sum(map(is_field, columns))

    return max(_SEPARATORS, key=fields)  # the first of equal ones: the comma


def _fitted(columns: Sequence[Any], cells: Sequence[Any]) -> object:
    if len(cells) != len(columns):
        return Misfit(cells=len(cells), columns=len(columns))
    return dict(zip(columns, cells, strict=True))


def parquet_rows(path: str | Path, name: str) -> Iterator[tuple[str, object]]:
    """Yield the rows of a Parquet file.

    Raises:
        InputError: it is no such file, or damaged.
        ConfigError: pyarrow is not installed.
    """
    number = 0
    with _parquet_file(path, name) as file:
        try:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
        except (ValueError, OSError):  # pyarrow's own errors are of these classes
            raise InputError(f"{name}: is damaged behind row {number}: write it again") from None


def _parquet_file(path: str | Path, name: str) -> ParquetFile:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(
            f"{name!r} needs pyarrow, which is not installed: {install_command('parquet')}"
        ) from None
    try:
        return ParquetFile(path)
    except (ValueError, OSError):
        raise InputError(f"{name}: is not a Parquet file") from None


def table_rows(value: object, name: str, is_field: IsField) -> Sequence[object] | None:
    """Return the rows of a JSON value that is a whole table, or ``None`` if it is one row.

    Tables are columns of lists, as ``Dataset.to_dict`` gives; the orientations ``columns``, ``index``,
    ``split`` and ``table`` of pandas; and an object with one list of rows, as DeepEval's ``testCases``.

    Raises:
        InputError: its columns do not fit each other.
    """
    if not isinstance(value, Mapping):
        return None
    fields = {key: column for key, column in value.items() if is_field(key)}
    lists = {key: column for key, column in fields.items() if _is_column(column)}
    if len(lists) > 1 and len(lists) == len(fields):
        return _of_lists(
            {key: column for key, column in value.items() if isinstance(column, list)}, lists, name
        )
    mappings = {key: column for key, column in fields.items() if isinstance(column, Mapping)}
    if len(mappings) > 1 and len(mappings) == len(fields):
        return _of_mappings({key: each for key, each in value.items() if isinstance(each, Mapping)}, name)
    if fields:
        return None
    columns, data = value.get("columns"), value.get("data")
    if isinstance(columns, list) and isinstance(data, list) and any(map(is_field, columns)):
        return [_fitted(columns, row) if isinstance(row, list) else row for row in data]
    if value and all(_is_row(row, is_field) for row in value.values()):
        return list(value.values())
    inner = [
        rows for rows in value.values() if isinstance(rows, list) and rows and _is_row(rows[0], is_field)
    ]
    return inner[0] if len(inner) == 1 else None


def _is_column(value: object) -> bool:
    """Return whether it is a list that is no list of an object's parts, such as messages."""
    return isinstance(value, list) and not any(isinstance(item, Mapping) for item in value)


def _is_row(value: object, is_field: IsField) -> bool:
    return isinstance(value, Mapping) and any(map(is_field, value))


def _of_lists(columns: Mapping[Any, Any], fields: Mapping[Any, Any], name: str) -> Sequence[object]:
    lengths = {key: len(column) for key, column in fields.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"`{key}` {length}" for key, length in lengths.items())
        raise InputError(f"{name}: columns differ in length: {told}")
    [length] = set(lengths.values())
    whole = {key: column for key, column in columns.items() if len(column) == length}
    return [dict(zip(whole, cells, strict=True)) for cells in zip(*whole.values(), strict=True)]


def _of_mappings(columns: Mapping[Any, Mapping[Any, Any]], name: str) -> Sequence[object]:
    first, *others = columns.values()
    if any(other.keys() != first.keys() for other in others):
        raise InputError(f"{name}: columns differ in their index: write it with `orient='records'`")
    return [{key: column[index] for key, column in columns.items()} for index in first]
