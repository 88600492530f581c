"""Read hand-made row files: parse rows, validate them against a model and report errors.

A file holds one JSON object per line, one JSON array of objects, or one JSON table. A name that ends in
``.csv``, ``.tsv`` or ``.parquet`` says that the file is such a table; ``.gz`` or ``.zst`` may follow. An
unreadable row is reported with its place and a fix. An unknown field is reported once, when it first appears.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from ragtrace._input import (
    LONGEST_LINE,
    bounded_lines,
    open_standard_input,
    read_bounded,
    unpacked,
    unpacking_errors,
)
from ragtrace._row_fields import FieldConflict, FieldNames, fields_of, plain_name
from ragtrace.errors import ConfigError, InputError
from ragtrace.extras import install_command
from ragtrace.text import in_words

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
    rows = list(value.values())
    if rows and all(_is_row(row, is_field) and row.keys() == rows[0].keys() for row in rows):
        return rows
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


FormT = TypeVar("FormT", bound=BaseModel)


class RowNotices:
    """What becomes of unreadable rows (the first ends the reading) and of unknown fields (nothing)."""

    def row_refused(self, fault: InputError) -> None:
        """Handle an unreadable row. Reading goes on with the next row unless this raises."""
        raise fault

    def fields_ignored(self, warning: str) -> None:
        """Handle unknown fields, once for each name."""


STRICT: Final = RowNotices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[FormT]):
    """A valid row."""

    form: FormT
    place: str
    """``line-7``, ``item-7`` of an array, or ``row-7`` of a table, without its header."""
    where: str
    """File and place, for messages."""
    unknown: frozenset[str]
    """Names of unknown fields."""
    given: Mapping[str, Any]
    """The parsed object."""


def read_rows(
    path: str | Path, form: type[FormT], names: FieldNames, notices: RowNotices
) -> Iterator[Row[FormT]]:
    """Yield the rows of a file, or of standard input for ``-`` (JSON only); empty lines are skipped.

    Raises:
        InputError: the file cannot be read, or ``notices`` raises for a row.
        ConfigError: the file is Parquet, and pyarrow is not installed.
    """
    name = "standard input" if str(path) == "-" else str(path)
    seen: set[str] = set()
    with _opened(path, name) as file:
        for place, content in _contents(file, path, name, names):
            try:
                row = read_row(content, form, names, name=name, place=place)
            except InputError as fault:
                notices.row_refused(fault)
                continue
            tell_unknown(row, names, notices, seen)
            yield row


def read_row(content: object, form: type[FormT], names: FieldNames, *, name: str, place: str) -> Row[FormT]:
    """Check one row: a line of JSON, a mapping, or an object with the fields of a row.

    Raises:
        InputError: it is invalid; names ``name``, ``place`` and the field.
    """
    where = f"{name}, {place}"
    found = _object(content, names, where)
    try:
        chosen = names.chosen(found)
    except FieldConflict as exc:
        raise InputError(f"{where}: {exc}") from None
    return Row(
        form=_checked(chosen.by_field, form, where),
        place=place.replace(" ", "-"),
        where=where,
        unknown=chosen.unknown if _is_written(content) or not chosen.by_field else frozenset(),
        given=found,
    )


def _is_written(content: object) -> bool:
    """Return whether somebody wrote the names of the fields, which an object has from its class."""
    return isinstance(content, bytes | Mapping)


def tell_unknown(row: Row[FormT], names: FieldNames, notices: RowNotices, seen: set[str]) -> None:
    """Tell about unknown fields that were not ``seen`` yet, and add them."""
    if news := [name for name in row.given if name in row.unknown - seen]:
        seen |= row.unknown
        notices.fields_ignored(_warning(news, names, row.where))


def clean_text(value: Any) -> Any:
    """Replace lone surrogates, which UTF-8 cannot encode and no judge accepts."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_ONE_LINE: Final = "write each row as one JSON object on a line of its own (`jq -c . FILE` does)"


@contextmanager
def _opened(path: str | Path, name: str) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield open_standard_input()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  closed below: only the open may fail like this
    except OSError as exc:
        raise InputError(f"{name} cannot be read: {exc.strerror}") from exc
    with file:
        yield file


_PACKED: Final = (".gz", ".gzip", ".zst", ".zstd")


def _contents(
    file: BinaryIO, path: str | Path, name: str, names: FieldNames
) -> Iterator[tuple[str, bytes | object]]:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    suffix = next((each for each in reversed(suffixes) if each not in _PACKED), "")
    if suffix == ".parquet":
        yield from parquet_rows(path, name)
        return
    try:
        lines = bounded_lines(plain := unpacked(file, name), name)
        yield from (
            csv_rows(lines, name, names.is_known)
            if suffix in (".csv", ".tsv")
            else _values(lines, lambda: read_bounded(plain, name), name, names)
        )
    except unpacking_errors() as exc:
        raise InputError(f"{name}: cannot be decompressed to its end: {exc}") from exc


def _values(
    lines: Iterator[bytes], rest: Callable[[], bytes], name: str, names: FieldNames
) -> Iterator[tuple[str, bytes | object]]:
    """Yield each non-empty line undecoded, or the rows if the file is one array, one table or one object."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    for number, line in numbered:
        bare = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        text = bare.strip()
        if text.startswith(b"["):
            for place, item in enumerate(_parsed(bare + rest(), name), start=1):
                yield f"item {place}", item
        elif text.endswith((b"{", b"[", b",")):  # the first of several lines
            yield from _documents(_parsed(bare + rest(), name), f"line {number}", name, names)
        else:
            yield from _first(bare, f"line {number}", name, names)
        break
    for number, line in numbered:
        yield f"line {number}", line


def _first(line: bytes, place: str, name: str, names: FieldNames) -> Iterator[tuple[str, object]]:
    """Yield the first line of several, or the rows if it is a table by itself."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        yield place, line
        return
    yield from _documents(value, place, name, names)


def _documents(value: object, place: str, name: str, names: FieldNames) -> Iterator[tuple[str, object]]:
    rows = table_rows(value, name, names.is_known)
    if rows is None:
        yield place, value
        return
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row


def _parsed(content: bytes, where: str) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise InputError(f"{where}: is not UTF-8 (byte {exc.start + 1}): save the file as UTF-8") from exc
    except json.JSONDecodeError as exc:
        at = f"line {exc.lineno}, column {exc.colno}" if exc.lineno > 1 else f"column {exc.colno}"
        raise InputError(f"{where}: is not JSON: {exc.msg} at {at}: {_ONE_LINE}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is not JSON: it nests too deeply, or a number is too long") from None


def _object(content: object, names: FieldNames, where: str) -> Mapping[str, Any]:
    value = _parsed(content, where) if isinstance(content, bytes) else content
    if isinstance(value, Misfit):
        raise InputError(
            f"{where}: cells: {value.cells}, columns: {value.columns}:"
            " put quotes around a cell with separators"
        )
    found = fields_of(value)
    if found is None:
        raise InputError(f"{where}: is not a JSON object: {_ONE_LINE}")
    sides = [key for key in found if plain_name(key) in _SIDES and _is_row(found[key], names.is_known)]
    within = {name: value for key in sides for name, value in found[key].items()}
    return {**within, **{key: value for key, value in found.items() if key not in sides}}


_SIDES: Final = frozenset(
    ("input", "inputs", "task", "request", "output", "outputs", "result", "response", "prediction")
)
"""Objects in a row that hold its fields, as LangSmith, MLflow and Braintrust export a run."""


def _checked(given: Mapping[str, tuple[str, Any]], form: type[FormT], where: str) -> FormT:
    try:
        return form.model_validate({field: value for field, (_, value) in given.items()})
    except ValidationError as exc:
        # the exception's own message would quote the row
        fault = exc.errors(include_input=False, include_url=False)[0]
    top, *below = fault["loc"]
    written = given[str(top)][0] if str(top) in given else str(top)
    field = ".".join([written, *map(str, below)])
    said = fault["msg"] if fault["type"] == "said" else in_words(fault)
    raise InputError(f"{where}: field `{field}`: {said}")


def _warning(news: Sequence[str], names: FieldNames, where: str) -> str:
    fields = "field" if len(news) == 1 else "fields"
    shown = ", ".join(f"`{str(name)[:60]}`{_note(name, names)}" for name in news)
    return f"{where}: unknown {fields} ignored, here and below: {shown}"


def _note(name: str, names: FieldNames) -> str:
    if names.is_known(name):
        return " (the row has this part under another name)"
    near = names.nearest(str(name))
    return f" (did you mean `{near}`?)" if near else ""
