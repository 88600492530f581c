"""Reports as Parquet: one typed row per answer, with metrics, claims and chunks as nested lists."""

from __future__ import annotations

import builtins
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints, is_typeddict

from ragtrace.answers.rows import SCHEMA_VERSION
from ragtrace.errors import ConfigError
from ragtrace.escaping import one_json_line
from ragtrace.extras import install_command
from ragtrace.outcomes import JudgedAnswer
from ragtrace.reports._files import replaced_file
from ragtrace.reports._rows import AnswerRow, answer_row
from ragtrace.reports.report import RunEnd

if TYPE_CHECKING:
    import pyarrow as pa


_MOST_ROWS: Final = 1_000
_MOST_CHARS: Final = 8_000_000
"""A row group is written at either limit, so that memory does not grow with the run."""
_MOMENTS: Final = ("time", "judged_at")


class ParquetReport:
    """Writes a row group whenever there are enough answers."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ModuleNotFoundError as exc:
            raise ConfigError(
                f"a report like {str(path)!r} needs pyarrow, which is not installed: "
                f"{install_command('parquet')}, or write .jsonl"
            ) from exc
        self.path = path
        self._schema = _schema()
        self._batch_of = pa.RecordBatch.from_pylist
        self._file = replaced_file(path)
        self._writer = parquet.ParquetWriter(self._file.file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._chars = 0

    def add(self, answer: JudgedAnswer) -> None:
        """Add a row; write a row group if there are enough."""
        row: dict[str, Any] = {**answer_row(answer)}
        for name in _MOMENTS:
            row[name] = datetime.fromisoformat(row[name]) if row[name] else None
        for metric in row["metrics"]:
            metric["details"] = list(metric["details"].items())
        self._rows.append(row)
        self._chars += sum(len(chunk["text"] or "") for chunk in row["chunks"]) + len(row["answer"] or "")
        if len(self._rows) >= _MOST_ROWS or self._chars >= _MOST_CHARS:
            self._write()

    def close(self, ending: RunEnd) -> None:
        """Write the remaining rows, and the run's end as ``ragtrace.report`` in the file's metadata."""
        self._write()
        metadata = {
            "version": SCHEMA_VERSION,
            "cut_short": ending.cut_short,
            "left_out": {skipped.what: skipped.number for skipped in ending.left_out},
        }
        self._writer.add_key_value_metadata({"ragtrace.report": one_json_line(metadata)})
        self._writer.close()
        self._file.commit()

    def abandon(self) -> None:
        """Keep the earlier file."""
        with suppress(OSError):  # the disk may be the cause
            self._writer.close()
        self._file.abandon()

    def _write(self) -> None:
        if self._rows:
            self._writer.write_batch(self._batch_of(self._rows, schema=self._schema))
        self._rows, self._chars = [], 0


@cache
def _schema() -> pa.Schema:
    """Return the types of an ``AnswerRow``."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    fields = get_type_hints(AnswerRow).items()
    return pa.schema([(name, moment if name in _MOMENTS else _type(pa, hint)) for name, hint in fields])


def _type(pa: Any, hint: Any) -> pa.DataType:
    plain = {str: pa.string, float: pa.float64, int: pa.int64, bool: pa.bool_}
    if hint in plain:
        return plain[hint]()
    if is_typeddict(hint):
        return pa.struct([(name, _type(pa, field)) for name, field in get_type_hints(hint).items()])
    parts = [_type(pa, part) for part in get_args(hint) if part is not NoneType]
    match get_origin(hint):
        case builtins.list:
            return pa.list_(*parts)
        case builtins.dict:
            return pa.map_(*parts)
        case _:
            (optional,) = parts
            return optional
