"""docs/spans.md and ragtrace/semconv.py say the same names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import groupby, product
from pathlib import Path

from ragtrace import semconv
from ragtrace.traces import carrier_table

PATH = Path(__file__).parents[2] / "docs" / "spans.md"
PAGE = PATH.read_text("utf-8")
REGENERATE = "REGENERATE_GOLDEN"


def table_of(names: str) -> str:
    """Return tables of the carrier as one of the page; neighbors that mean the same share a row."""
    tables = (getattr(carrier_table, name).fields for name in names.split())
    fields = [field for table in tables for field in table if field.meaning]
    lines = ["| attribute | type | meaning |", "| --- | --- | --- |"]
    for (kind, meaning), alike in groupby(fields, key=lambda field: (field.kind.name, field.meaning)):
        lines.append(f"| {', '.join(f'`{field.key}`' for field in alike)} | {kind} | {meaning} |")
    return "\n".join(lines)


def test_the_page_has_the_tables_of_the_carrier() -> None:
    marks = r"(<!-- carrier table: ([A-Z ]+) -->\n).*?(<!-- end -->)"
    made = re.sub(marks, lambda mark: f"{mark[1]}{table_of(mark[2])}\n{mark[3]}", PAGE, flags=re.DOTALL)
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PATH.write_text(made, "utf-8")
    assert made == PAGE, f"run once with {REGENERATE}=1"


def expanded(name: str) -> Iterator[str]:
    """Yield ``a.b`` and ``a.c`` for ``a.{b,c}``; ``a.`` for ``a.<metric>``."""
    parts = re.split(r"\{([^}]*)\}", name.partition("<")[0])
    choices = [part.split(",") if position % 2 else [part] for position, part in enumerate(parts)]
    yield from ("".join(choice) for choice in product(*choices))


def test_the_page_names_every_attribute_and_no_other() -> None:
    told = {name for quoted in re.findall(r"`(ragtrace\.[^`]+)`", PAGE) for name in expanded(quoted)}
    told = {name for name in told if not name.startswith(("ragtrace.claims.", "ragtrace.chunks."))}
    values = {value for key, value in vars(semconv).items() if key.isupper() and isinstance(value, str)}
    known = {value for value in values if value.startswith("ragtrace.")}
    structural = {
        semconv.EVAL_PREFIX,
        semconv.CLAIMS_PREFIX,
        semconv.CHUNKS_PREFIX,
        semconv.FEEDBACK_PREFIX,
        semconv.REVIEW_PREFIX,
        semconv.LOG_RECORDS_SPAN,  # in stores only
    }
    assert told - known == set()
    assert known - told - structural == set()
