"""The committed history: a file of JSON lines for each benchmark, the oldest run first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ragtrace.errors import InputError
from tests.benchmarks.recording.entry import Entry, line_of, parse_line

__all__ = ["HISTORY", "append", "read"]

HISTORY: Final = Path(__file__).parents[1] / "history"


def read(folder: Path = HISTORY) -> list[Entry]:
    """Return every entry, each benchmark's in the order of its runs.

    Raises:
        InputError: a line is no entry, or stands in another benchmark's file; the message has file and line.
    """
    return [entry for path in sorted(folder.glob("*.jsonl")) for entry in _read_file(path)]


def _read_file(path: Path) -> list[Entry]:
    entries = []
    for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = parse_line(line)
        except InputError as exc:
            raise InputError(
                f"{path}:{number}: this line of the history cannot be read: {exc}."
                " Restore it from git, or delete it"
            ) from exc
        if entry.benchmark != path.stem:
            raise InputError(
                f"{path}:{number}: this line is of the benchmark {entry.benchmark!r}:"
                f" move it to {entry.benchmark}.jsonl"
            )
        entries.append(entry)
    return entries


def append(entries: Sequence[Entry], folder: Path = HISTORY) -> None:
    """Write entries behind those that are there."""
    folder.mkdir(exist_ok=True)
    for entry in entries:
        with (folder / f"{entry.benchmark}.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line_of(entry)}\n")
