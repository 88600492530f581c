"""Reports as JSON lines: one line per answer."""

from __future__ import annotations

from pathlib import Path

from ragtrace.answers.rows import SCHEMA_VERSION
from ragtrace.escaping import one_json_line
from ragtrace.outcomes import JudgedAnswer
from ragtrace.reports._files import AppendedFile
from ragtrace.reports._rows import answer_row
from ragtrace.reports.report import RunEnd


class JsonLinesReport:
    """Writes a line as soon as an answer is judged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        start = f'{{"version": {SCHEMA_VERSION}, '.encode()
        self._file = AppendedFile(path, head=b"", starts_with=start, is_quoted=False)

    def add(self, answer: JudgedAnswer) -> None:
        """Append a line."""
        self._file.append(f"{one_json_line(answer_row(answer))}\n".encode())

    def close(self, ending: RunEnd) -> None:
        """Close the file."""
        self._file.commit()

    def abandon(self) -> None:
        """Close the file."""
        self._file.abandon()
