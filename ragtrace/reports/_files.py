"""Reports that grow by rows: JSON lines, CSV and Parquet. They have content: only the owner reads them."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from ragtrace.answers.rows import ROW_FIELDS, SCHEMA_VERSION, answer_row
from ragtrace.answers.summary import facts_of, summary_of_judged
from ragtrace.errors import ConfigError
from ragtrace.escaping import one_json_line, spreadsheet_text
from ragtrace.extras import install_command
from ragtrace.files import PendingFile, open_private, sync_folder
from ragtrace.model import JudgedAnswer, VerdictLabel
from ragtrace.reports.report import RunEnd


class AppendedReport:
    """A report that grows by the complete rows of each answer, which stay even if the run is interrupted.

    Rows of earlier runs stay in front. A row that a crash truncated is removed.
    """

    def __init__(
        self,
        path: Path,
        rows: Callable[[JudgedAnswer], bytes],
        *,
        head: bytes = b"",
        starts_with: bytes,
        is_quoted: bool,
    ) -> None:
        """Open it.

        ``head`` is written into an empty file; every file of this format begins with ``starts_with``.
        ``is_quoted``: a row may contain line breaks between quotation marks.

        Raises:
            ConfigError: it cannot be written, or has other content.
        """
        self.path = path
        self._rows = rows
        self._head = head
        try:
            self._descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
        except OSError as exc:
            raise _unwritable(path, exc) from exc
        with open(self._descriptor, "rb", closefd=False) as file:
            start = file.read(len(starts_with))
            if not starts_with.startswith(start):
                os.close(self._descriptor)
                raise ConfigError(f"{str(path)!r} exists and is no such report: name another file")
            file.seek(0)
            whole = _whole_until(file, is_quoted=is_quoted)
        self._is_empty = whole == 0
        if start:
            os.ftruncate(self._descriptor, whole)

    def add(self, answer: JudgedAnswer) -> None:
        """Write the complete rows of an answer, or nothing."""
        self._append(self._rows(answer))

    def _append(self, row: bytes) -> None:
        before = os.fstat(self._descriptor).st_size
        rest = memoryview(self._head + row if self._is_empty else row)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise
        self._is_empty = False

    def close(self, ending: RunEnd) -> None:
        """Flush the file to disk, and close it."""
        try:
            if self._is_empty:
                self._append(b"")
            os.fsync(self._descriptor)
            sync_folder(self.path.parent)
        finally:
            os.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file, and delete it if nothing was written."""
        if not os.fstat(self._descriptor).st_size:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def replaced_file(path: Path) -> PendingFile:
    """Open a file that replaces an earlier one when it is complete.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        return PendingFile(path)
    except OSError as exc:
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> ConfigError:
    return ConfigError(f"the report {str(path)!r} cannot be written: {exc.strerror or exc}")


def _whole_until(file: BinaryIO, *, is_quoted: bool) -> int:
    """Return the end of the last complete row."""
    whole = position = marks = 0
    for line in file:
        position += len(line)
        marks += line.count(b'"') if is_quoted else 0
        if line.endswith(b"\n") and marks % 2 == 0:
            whole = position
    return whole


def _json_row(answer: JudgedAnswer) -> bytes:
    return f"{one_json_line(answer_row(answer))}\n".encode()


def json_lines_report(path: Path) -> AppendedReport:
    """Open JSON lines: one line per answer."""
    start = f'{{"version": {SCHEMA_VERSION}, '.encode()
    return AppendedReport(path, _json_row, starts_with=start, is_quoted=False)


_OF_ANSWER: Final = (
    *("version", "record_id", "trace_id", "span_id", "tenant", "carrier_span_id", "service", "time", "model"),
    *("prompt_version", "session"),
)
_OF_METRIC: Final = (
    *("metric", "profile", "label", "score", "threshold", "pass_when", "direction", "skip_reason"),
    *("error_type", "explanation", "diagnosis", "evaluator_version"),
)
_LABELS: Final = tuple(label.value for label in VerdictLabel)
COLUMNS: Final = (
    *_OF_ANSWER,
    *(*_OF_METRIC, "judge", "calls", "input_tokens", "output_tokens", *_LABELS, "blame", "sample_rule"),
    *("sample_rate", "sample_probability", "question", "answer", "reference", "chunk_ids"),
)


def csv_report(path: Path) -> AppendedReport:
    """Open CSV: one row per answer and metric, for spreadsheets."""
    head = "\ufeff".encode() + _line(COLUMNS)  # the mark by which spreadsheets recognize UTF-8
    return AppendedReport(path, _csv_rows, head=head, starts_with=head, is_quoted=True)


def _csv_rows(answer: JudgedAnswer) -> bytes:
    return b"".join(_line([cells[name] for name in COLUMNS]) for cells in _cells(answer))


def _cells(answer: JudgedAnswer) -> Iterator[Mapping[str, Any]]:
    record, facts = answer.record, facts_of(summary_of_judged(answer))
    for outcome in answer.evaluation.outcomes:
        verdicts = (*getattr(outcome, "verdicts", ()), *getattr(outcome, "chunk_verdicts", ()))
        labels = [verdict.label for verdict in verdicts]
        yield {
            **facts,
            "version": SCHEMA_VERSION,
            "record_id": record.id,
            **{name: getattr(outcome, name, None) for name in _OF_METRIC},
            "explanation": getattr(outcome, "message", None) or getattr(outcome, "explanation", None),
            "judge": (getattr(outcome, "judge", None) or answer.evaluation.judge).name,
            "calls": outcome.usage.calls,
            "input_tokens": outcome.usage.input_tokens,
            "output_tokens": outcome.usage.output_tokens,
            **{label: labels.count(VerdictLabel(label)) for label in _LABELS},
            "sample_rate": answer.sample.rate if answer.sample else None,
            "question": record.question,
            "answer": record.answer,
            "reference": record.reference,
            "chunk_ids": " ".join(chunk.id for chunk in record.chunks),
        }


def _line(cells: tuple[str, ...] | list[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue().encode("utf-8", "replace")


_MOST_ROWS: Final = 1_000
_MOST_CHARS: Final = 8_000_000
"""A row group is written at either limit, so that memory does not grow with the run."""
_MOMENTS: Final = ("time", "judged_at")
_NUMBERS: Final = ("sample_probability", "suspicion", "cost_usd")


class ParquetReport:
    """Parquet: a typed row per answer, with its metrics and all of it as JSON."""

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
        self._batch_of = pa.RecordBatch.from_pylist
        self._file = replaced_file(path)
        types = {
            **dict.fromkeys(_MOMENTS, pa.timestamp("us", tz="UTC")),
            **dict.fromkeys(_NUMBERS, pa.float64()),
            "version": pa.int64(),
        }
        self._schema = pa.schema(
            [
                (name, pa.int64() if name.startswith("claims_") else types.get(name, pa.string()))
                for name in ROW_FIELDS
            ]
        )
        self._writer = parquet.ParquetWriter(self._file.file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._chars = 0

    def add(self, answer: JudgedAnswer) -> None:
        """Add a row; write a row group if there are enough."""
        row = answer_row(answer)
        row |= {name: datetime.fromisoformat(row[name]) for name in _MOMENTS}
        row |= {name: one_json_line(row[name]) for name in ("metrics", "judged")}
        self._rows.append(row)
        self._chars += len(row["judged"])
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
