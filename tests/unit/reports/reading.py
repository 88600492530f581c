"""Reports read back, by other means than they were written."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet

_VOID = frozenset({"meta"})


def json_rows(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Read CSV, without the apostrophes that stand before formulas."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    return [{name: _bare(cell) for name, cell in row.items()} for row in rows]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Read Parquet, with moments and objects as JSON has them."""
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    for row in rows:
        for name in ("time", "judged_at"):
            row[name] = row[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for name in ("metrics", "judged"):
            row[name] = json.loads(row[name])
    return rows


class Page(HTMLParser):
    """A page, parsed: its tags, attributes and texts. Every tag has to be closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text("utf-8"))
        self.close()
        assert not self._open

    @property
    def text(self) -> str:
        """All that is shown, white space made one."""
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.texts.append(data)


def _bare(cell: str) -> str:
    return re.sub("^'('*[=+\\-@\t\r\n\0\uff1d\uff0b\uff0d\uff20])", r"\1", cell)
