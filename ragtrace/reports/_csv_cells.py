"""Reports as CSV: one row per answer and metric, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias, cast

from ragtrace.escaping import spreadsheet_text
from ragtrace.model import VerdictLabel
from ragtrace.outcomes import JudgedAnswer
from ragtrace.reports._files import AppendedFile
from ragtrace.reports._rows import AnswerRow, MetricRow, answer_row
from ragtrace.reports.report import RunEnd

_Cell: TypeAlias = "str | int | float | None"
_Cells: TypeAlias = Mapping[str, _Cell]

_MARK: Final = "\ufeff".encode()
"""The byte order mark, by which spreadsheets recognize UTF-8."""
_OF_ANSWER: Final = (
    "version",
    "record_id",
    "trace_id",
    "span_id",
    "carrier_span_id",
    "service",
    "time",
    "model",
    "session_id",
    "conversation_id",
    "prompt_version",
)
_OF_METRIC: Final = (
    "metric",
    "profile",
    "status",
    "label",
    "score",
    "threshold",
    "pass_when",
    "direction",
    "skip_reason",
    "error_type",
    "message",
    "explanation",
    "diagnosis",
    "judge",
    "evaluator_version",
    "calls",
)
_TOKENS: Final = ("input_tokens", "output_tokens")
_LAST: Final = (
    "blame",
    "sample_rule",
    "sample_rate",
    "sample_probability",
    "question",
    "answer",
    "reference",
    "chunk_ids",
)
_LABELS: Final = tuple(label.value for label in VerdictLabel)
COLUMNS: Final = (*_OF_ANSWER, *_OF_METRIC, *_TOKENS, *_LABELS, *_LAST)


class CsvReport:
    """Writes the rows of an answer as soon as it is judged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        head = _MARK + _line(COLUMNS)
        self._file = AppendedFile(path, head=head, starts_with=head, is_quoted=True)

    def add(self, answer: JudgedAnswer) -> None:
        """Append one row per metric."""
        row = answer_row(answer)
        self._file.append(b"".join(_line(tuple(_cells(row, metric))) for metric in row["metrics"]))

    def close(self, ending: RunEnd) -> None:
        """Close the file."""
        self._file.commit()

    def abandon(self) -> None:
        """Close the file."""
        self._file.abandon()


def _cells(row: AnswerRow, metric: MetricRow) -> Iterator[_Cell]:
    sample, of_answer, of_metric = row["sample"], cast("_Cells", row), cast("_Cells", metric)
    tokens = cast("_Cells", metric["usage"])
    verdicts = [verdict["label"] for verdict in (*metric["verdicts"], *metric["chunk_verdicts"])]
    yield from (of_answer[name] for name in _OF_ANSWER)
    yield from (of_metric[name] for name in _OF_METRIC)
    yield from (tokens[name] for name in _TOKENS)
    yield from (verdicts.count(label) for label in _LABELS)
    yield next(iter(row["blame"]["classes"]), None)
    yield from (sample["rule"], sample["rate"], sample["probability"]) if sample else (None, None, None)
    yield from (row["question"], row["answer"], row["reference"])
    yield " ".join(chunk["id"] for chunk in row["chunks"])


def _line(cells: tuple[_Cell, ...]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue().encode()
