"""Reports: files with the judged answers, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from ragtrace.errors import ConfigError
from ragtrace.reports._files import AppendedReport, ParquetReport, csv_report, json_lines_report
from ragtrace.reports._page import WORST, PageReport
from ragtrace.reports.report import RunEnd, RunInfo, SkippedAnswers

Report: TypeAlias = AppendedReport | PageReport | ParquetReport
"""A file with the judged answers: ``add`` each, then ``close`` it; ``abandon`` keeps an earlier one.

``add`` and ``close`` raise OSError if the file cannot be written.
"""
SUFFIXES: Final = (".html", ".jsonl", ".csv", ".parquet")


def open_report(path: str | Path, about: RunInfo, *, worst: int = WORST) -> Report:
    """Open a report: ``.html``, ``.jsonl``, ``.csv`` or ``.parquet``.

    JSON lines and CSV files grow with each answer, after the rows of earlier runs. A page or Parquet file
    replaces an earlier one when it is closed. ``worst``: the number of answers on a page.

    Raises:
        ConfigError: the suffix is none of these, the file cannot be written, or a library is not installed.
    """
    path = Path(path)
    match path.suffix.lower():
        case ".html":
            return PageReport(path, about, worst=worst)
        case ".jsonl":
            return json_lines_report(path)
        case ".csv":
            return csv_report(path)
        case ".parquet":
            return ParquetReport(path)
        case _:
            raise ConfigError(f"{path.name!r} is no report: use a name that ends with {', '.join(SUFFIXES)}")
