"""Read hand-made row files: parse rows, validate them against a model and report errors.

A file holds one JSON object per line, or one JSON array of objects. A name that ends in ``.csv`` or
``.parquet`` says that the file is such a table. An unreadable row is reported with its place and a fix. An
unknown field is reported once, when it first appears.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ragtrace.errors import ConfigError, InputError
from ragtrace.extras import install_command

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

FormT = TypeVar("FormT", bound=BaseModel)


class RowNotices(Protocol):
    """Receives notices about skipped rows and ignored fields."""

    def row_refused(self, fault: InputError) -> None:
        """Handle an unreadable row. Reading goes on with the next row unless this raises."""
        ...

    def fields_ignored(self, warning: str) -> None:
        """Handle unknown fields, once for each name."""
        ...


class _Strict:
    """Stops at the first unreadable row and accepts unknown fields."""

    def row_refused(self, fault: InputError) -> None:
        raise fault

    def fields_ignored(self, warning: str) -> None:
        pass


STRICT: Final[RowNotices] = _Strict()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNames:
    """The accepted names of a row's fields."""

    written: Mapping[str, Sequence[str]]
    """The names of each field of the form, our own first."""
    likely: Mapping[str, str]
    """Common wrong names and the field they mean: used in hints, never read."""
    lists: frozenset[str] = frozenset()
    """The fields whose cells in a CSV file may be JSON lists."""

    @property
    def known(self) -> frozenset[str]:
        """All accepted names."""
        return frozenset(name for names in self.written.values() for name in names)

    def nearest(self, name: str) -> str | None:
        """Return the accepted name that is most likely meant."""
        if name.lower() in self.likely:
            return self.likely[name.lower()]
        near = get_close_matches(name.lower(), sorted(self.known), n=1, cutoff=_NEAR)
        return near[0] if near else None


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
    with _opened(path, name) as lines:
        for place, content in _contents(lines, path, name, names):
            try:
                row = read_row(content, form, names, name=name, place=place)
            except InputError as fault:
                notices.row_refused(fault)
                continue
            tell_unknown(row, names, notices, seen)
            yield row


def read_row(content: object, form: type[FormT], names: FieldNames, *, name: str, place: str) -> Row[FormT]:
    """Check one row: a line of JSON, or an object.

    Raises:
        InputError: it is invalid; names ``name``, ``place`` and the field.
    """
    where = f"{name}, {place}"
    found = _object(content, where)
    unknown = _unknown(found, names.known)
    given = _by_field(found, names, unknown, where)
    checked = _checked(given, form, where)
    return Row(form=checked, place=place.replace(" ", "-"), where=where, unknown=unknown, given=found)


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


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NEAR: Final = 0.75
_ONE_LINE: Final = "write each row as one JSON object on a line of its own (`jq -c . FILE` does)"
_FAULTS: Final = {
    "missing": "is missing",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
}


@contextmanager
def _opened(path: str | Path, name: str) -> Iterator[Iterable[bytes]]:
    if str(path) == "-":
        yield _stdin()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  closed below: only the open may fail like this
    except OSError as exc:
        raise InputError(f"{name} cannot be read: {exc.strerror}") from exc
    with file:
        yield file


def _stdin() -> Iterable[bytes]:
    # A separate reader: if a daemon thread blocks in that of `sys.stdin`, the interpreter cannot exit.
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, OSError):  # a replacement stream without a descriptor
        return sys.stdin.buffer


def _contents(
    lines: Iterable[bytes], path: str | Path, name: str, names: FieldNames
) -> Iterator[tuple[str, bytes | object]]:
    match Path(path).suffix.lower():
        case ".csv":
            lists = frozenset(written for field in names.lists for written in names.written[field])
            return _csv_rows(lines, name, lists)
        case ".parquet":
            return _parquet_rows(path, name)
        case _:
            return _values(lines, name)


def _csv_rows(lines: Iterable[bytes], name: str, lists: frozenset[str]) -> Iterator[tuple[str, object]]:
    """Yield the rows below the header; an empty cell is ``None``.

    Commas separate the cells (RFC 4180). A line break within quotes is part of its cell.
    """
    csv.field_size_limit(_LONGEST_CELL)  # 128 KiB without it, for the whole process
    rows = csv.reader(_decoded(lines, name), strict=True)
    try:
        header = next(rows, [])
        if twice := next((column for column in header if header.count(column) > 1), None):
            raise InputError(f"{name}: two columns are named `{twice[:60]}`: rename one of them")
        for number, cells in enumerate(filter(None, rows), start=1):
            yield f"row {number}", _table_row(header, cells, lists)
    except csv.Error as exc:
        raise InputError(f"{name}, line {rows.line_num}: is not CSV: {exc}") from None


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        bare = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        try:
            yield bare.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{name}, line {number}: is not UTF-8: save the file as UTF-8") from None


def _table_row(header: Sequence[str], cells: Sequence[str], lists: frozenset[str]) -> object:
    if len(cells) != len(header):
        return _Misfit(cells=len(cells), columns=len(header))
    return {
        column: (_list_or_text(cell) if column in lists else cell) if cell else None
        for column, cell in zip(header, cells, strict=True)
    }


def _list_or_text(cell: str) -> object:
    """Return the list in a cell, or the cell: a text too may begin with a bracket."""
    if not cell.lstrip().startswith("["):
        return cell
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return _UNREADABLE_LIST if cell.lstrip().startswith(("['", '["')) else cell
    return value if all(isinstance(item, str | dict) for item in value) else cell


@dataclass(frozen=True, slots=True, kw_only=True)
class _Misfit:
    """A row of a CSV file that does not fit the header."""

    cells: int
    columns: int


class _UnreadableList:
    """A cell that looks like a list and is not JSON, such as Python's own form of a list."""


_UNREADABLE_LIST: Final = _UnreadableList()
_LONGEST_CELL: Final = 2**31 - 1


def _parquet_rows(path: str | Path, name: str) -> Iterator[tuple[str, object]]:
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


_ROWS_AT_ONCE: Final = 256


def _values(lines: Iterable[bytes], name: str) -> Iterator[tuple[str, bytes | object]]:
    """Yield each non-empty line undecoded, or the items if the file is one array."""
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        bare = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        if not bare.strip():
            continue
        if bare.lstrip().startswith(b"["):
            rest = b"".join(chain([bare], (line for _, line in numbered)))
            yield from _items(rest, name)
            return
        yield f"line {number}", bare
        break
    for number, line in numbered:
        if line.strip():
            yield f"line {number}", line


def _items(array: bytes, name: str) -> Iterator[tuple[str, object]]:
    for number, item in enumerate(_parsed(array, name), start=1):
        yield f"item {number}", item


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


def _object(content: object, where: str) -> Mapping[str, Any]:
    value = _parsed(content, where) if isinstance(content, bytes) else content
    if isinstance(value, _Misfit):
        raise InputError(
            f"{where}: cells: {value.cells}, columns of the header: {value.columns}:"
            " put quotes around a cell with commas"
        )
    if not isinstance(value, dict):
        raise InputError(f"{where}: is not a JSON object: {_ONE_LINE}")
    if broken := next((column for column in value if value[column] is _UNREADABLE_LIST), None):
        raise InputError(f"{where}: field `{broken}`: is a list, but not JSON: write it by `json.dumps`")
    return value


def _by_field(
    found: Mapping[str, Any], names: FieldNames, unknown: frozenset[str], where: str
) -> dict[str, tuple[str, Any]]:
    """Return the name and value of each known field in the row.

    Raises:
        InputError: the row has one field under two names, with different values.
    """
    by_field: dict[str, tuple[str, Any]] = {}
    for field, written in names.written.items():
        there = [name for name in written if name in found and name not in unknown]
        said = [name for name in there if found[name] is not None] or there
        if not said:
            continue
        first, *others = said
        for other in others:
            if _listed(found[other]) != _listed(found[first]):
                raise InputError(
                    f"{where}: fields `{first}` and `{other}` both name the {field}, but differ:"
                    " keep one of them"
                )
        by_field[field] = first, found[first]
    return by_field


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _checked(given: Mapping[str, tuple[str, Any]], form: type[FormT], where: str) -> FormT:
    try:
        return form.model_validate({field: value for field, (_, value) in given.items()})
    except ValidationError as exc:
        # the exception's own message would quote the row
        fault = exc.errors(include_input=False, include_url=False)[0]
    top, *below = fault["loc"]
    written = given[str(top)][0] if str(top) in given else str(top)
    field = ".".join([written, *map(str, below)])
    raise InputError(f"{where}: field `{field}`: {_said(fault)}")


def _said(fault: ErrorDetails) -> str:
    if fault["type"] == "said":  # by our own check
        return fault["msg"]
    if expected := fault.get("ctx", {}).get("expected"):
        return f"must be {expected}"
    return _FAULTS.get(fault["type"], "has an unsupported form")


def _unknown(found: Mapping[str, Any], known: frozenset[str]) -> frozenset[str]:
    """Return the row's unknown field names."""
    unknown = found.keys() - known
    if found.get("retrieval_context") is not None and found.get("context") is not None:
        unknown.add(_IDEAL)
    return frozenset(unknown)


_IDEAL: Final = "context"
"""Next to ``retrieval_context`` it is DeepEval's ideal context, which the generator did not see."""


def _warning(news: Sequence[str], names: FieldNames, where: str) -> str:
    fields = "field" if len(news) == 1 else "fields"
    shown = ", ".join(f"`{name[:60]}`{_note(name, names)}" for name in news)
    return f"{where}: unknown {fields} ignored, here and below: {shown}"


def _note(name: str, names: FieldNames) -> str:
    if name == _IDEAL:
        return " (DeepEval's ideal context: `retrieval_context` is used)"
    near = names.nearest(name)
    return f" (did you mean `{near}`?)" if near else ""
