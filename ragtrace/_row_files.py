"""Read hand-made row files: parse rows, validate them against a model and report errors.

A file holds one JSON object per line, one JSON array of objects, or one JSON table. A name that ends in
``.csv``, ``.tsv`` or ``.parquet`` says that the file is such a table; ``.gz`` or ``.zst`` may follow. An
unreadable row is reported with its place and a fix. An unknown field is reported once, when it first appears.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ragtrace._row_fields import FieldConflict, FieldNames, fields_of
from ragtrace._row_tables import BYTE_ORDER_MARK, Misfit, csv_rows, parquet_rows, table_rows
from ragtrace._standard_input import open_standard_input
from ragtrace._unpacking import bounded_lines, read_bounded, unpacked, unpacking_errors
from ragtrace.errors import InputError

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
            yield from _items(_parsed(bare + rest(), name), names)
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


def _items(array: Any, names: FieldNames) -> Iterator[tuple[str, object]]:
    for number, item in enumerate(array, start=1):
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
    return found


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


def _warning(news: Sequence[str], names: FieldNames, where: str) -> str:
    fields = "field" if len(news) == 1 else "fields"
    shown = ", ".join(f"`{str(name)[:60]}`{_note(name, names)}" for name in news)
    return f"{where}: unknown {fields} ignored, here and below: {shown}"


def _note(name: str, names: FieldNames) -> str:
    if name == _IDEAL:
        return " (DeepEval's ideal context: `retrieval_context` is used)"
    if names.is_known(name):
        return " (the row has this part under another name)"
    near = names.nearest(str(name))
    return f" (did you mean `{near}`?)" if near else ""


_IDEAL: Final = "context"
"""Ignored only next to ``retrieval_context``."""
