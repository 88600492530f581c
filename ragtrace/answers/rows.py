"""Judged answers as JSON and back without a loss: the entries of transcripts, and the lines of a report."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ragtrace._row_files import clean_text
from ragtrace.answers.port import AnswerVersion
from ragtrace.answers.summary import FACTS, facts_of, metrics_of, summary_of_judged
from ragtrace.errors import InputError
from ragtrace.model import JudgedAnswer

T = TypeVar("T")

SCHEMA_VERSION: Final = 2
"""Increases if a field is removed or changes its meaning, but not for a new field."""
ROW_FIELDS: Final = ("version", "record_id", *FACTS, "metrics", "judged")
_BYTES: Final = "\0bytes"
"""A key that no attribute has."""


@cache
def _form(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def to_json(value: object) -> bytes:
    """Encode a dataclass of the model."""
    plain = _form(cast(Hashable, type(value))).dump_python(value)
    return json.dumps(plain, default=_bytes_out, separators=(",", ":")).encode()


def from_json(kind: type[T], text: bytes) -> T:
    """Decode a dataclass of this kind to an equal value; unknown fields are ignored.

    Raises:
        InputError: the text is not of this kind; quotes nothing.
    """
    try:
        value: T = _form(cast(Hashable, kind)).validate_python(json.loads(text, object_hook=_bytes_in))
    except (ValueError, RecursionError):
        raise InputError(f"the stored value is not a {kind.__name__} of this version of ragtrace") from None
    return value


def _bytes_out(value: object) -> object:
    assert isinstance(value, bytes)
    return {_BYTES: base64.b64encode(value).decode()}


def _bytes_in(node: dict[str, Any]) -> Any:
    return base64.b64decode(node[_BYTES]) if node.keys() == {_BYTES} else node


def answer_row(answer: JudgedAnswer) -> dict[str, Any]:
    """Make the line of an answer in a report: its facts, label and score of each metric, then all of it.

    Lone surrogates, which UTF-8 cannot encode, become U+FFFD; numbers that are not finite are left out.
    """
    told = summary_of_judged(answer)
    row = {**facts_of(told), "metrics": metrics_of(told), "judged": json.loads(to_json(answer))}
    return {"version": SCHEMA_VERSION, "record_id": answer.record.id, **_writable(row)}


def _writable(value: Any) -> Any:
    match value:
        case list():
            return [None if _is_odd(each) else _writable(each) for each in value]
        case dict():
            return {clean_text(key): _writable(each) for key, each in value.items() if not _is_odd(each)}
        case _:
            return clean_text(value)


def _is_odd(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


class ReportLine(NamedTuple):
    """A line of a report, unparsed."""

    where: str
    """File and line, for messages."""
    text: bytes


def report_lines(path: Path) -> Iterator[ReportLine]:
    """Yield the lines of a report that are not empty.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield ReportLine(f"{path}, line {number}", line)
    except OSError as exc:
        raise InputError(f"{path} cannot be read: {exc.strerror or exc}") from exc


def is_report(line: bytes) -> bool:
    """Return whether a file that begins with this line is a report."""
    return line.lstrip().startswith(b'{"version":') and b'"record_id":' in line


def read_line(line: ReportLine) -> AnswerVersion:
    """Read one answer of a report.

    Raises:
        InputError: the line is no answer of a report; names file, line and field, and quotes nothing.
    """
    is_escaped = b"\\u" in line.text
    try:
        row = json.loads(line.text, object_hook=_bytes_in if is_escaped else None)
    except (ValueError, RecursionError):
        raise InputError(f"{line.where}: is not JSON: was the report written to its end?") from None
    version = row.get("version") if isinstance(row, dict) else None
    if not isinstance(version, int) or version < SCHEMA_VERSION:
        raise InputError(f"{line.where}: is no answer of a report that this ragtrace wrote")
    told = row.get("judged")
    try:
        judged = _form(JudgedAnswer).validate_python(_writable(told) if is_escaped else told)
    except ValidationError as exc:
        # the exception's own message would quote the row
        fault = exc.errors(include_input=False, include_url=False)[0]
        field = ".".join(["judged", *map(str, fault["loc"])])
        raise InputError(f"{line.where}: is no answer of a report: `{field}`: {fault['type']}") from None
    newer = (
        f"A newer ragtrace wrote this report (version {version}, and this one reads {SCHEMA_VERSION}): what"
        " is new in it is not shown"
    )
    return AnswerVersion(
        judged=judged,
        evaluation_id=judged.carrier_span_id or "",
        notices=(newer,) if version > SCHEMA_VERSION else (),
    )
