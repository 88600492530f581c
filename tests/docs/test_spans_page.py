"""docs/spans.md and ragtrace/semconv.py say the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from ragtrace import semconv

PAGE = (Path(__file__).parents[2] / "docs" / "spans.md").read_text("utf-8")


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
        semconv.SESSION_PREFIX,
        semconv.LOG_RECORDS_SPAN,  # in stores only
    }
    assert told - known == set()
    assert known - told - structural == set()
