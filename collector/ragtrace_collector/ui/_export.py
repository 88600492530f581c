"""Exports of a list: JSON lines and CSV, a row an answer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ragtrace.answers.facts import FACTS, metrics_of, row_of
from ragtrace.answers.summary import AnswerSummary
from ragtrace.escaping import escaped_json, spreadsheet_text


class ExportHead(Protocol):
    """Writes what comes before the rows."""

    def __call__(self, metrics: Sequence[str], *, searched: bool) -> bytes:
        """Return it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """How rows are written, with the names of the metrics, one or two columns each.

    A list that was searched for words has the column ``search``: ``found``, or why nobody knows.
    """

    suffix: str
    media_type: str
    head: ExportHead
    row: Callable[[AnswerSummary, Sequence[str], str | None], bytes]


def _json_row(answer: AnswerSummary, metrics: Sequence[str], search: str | None) -> bytes:
    row = {
        **row_of(answer),
        "disputed": answer.is_disputed,
        **({} if search is None else {"search": search}),
        "metrics": metrics_of(answer),
    }
    return (escaped_json(json.dumps(row, ensure_ascii=False)) + "\n").encode("utf-8", "replace")


_COLUMNS: Final = (*FACTS[:9], "question", *FACTS[9:])


def _no_head(metrics: Sequence[str], *, searched: bool) -> bytes:
    return b""


def _csv_head(metrics: Sequence[str], *, searched: bool) -> bytes:
    names = [f"{what}_{name}" for name in metrics for what in ("score", "label")]
    return "\ufeff".encode() + _csv_line([*_COLUMNS, "disputed", *names, *(["search"] if searched else [])])


def _csv_row(answer: AnswerSummary, metrics: Sequence[str], search: str | None) -> bytes:
    facts = row_of(answer)
    cells = [*(facts[name] for name in _COLUMNS), "true" if answer.is_disputed else "false"]
    for name in metrics:
        metric = answer.metric(name)
        cells += [metric.score, metric.label.value] if metric else [None, None]
    return _csv_line([*cells, *([] if search is None else [search])])


def _csv_line(cells: Sequence[str | float | None]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue().encode("utf-8", "replace")


FORMATS: Final[Mapping[str, ExportFormat]] = {
    "jsonl": ExportFormat(suffix="jsonl", media_type="application/x-ndjson", head=_no_head, row=_json_row),
    "csv": ExportFormat(suffix="csv", media_type="text/csv; charset=utf-8", head=_csv_head, row=_csv_row),
}
