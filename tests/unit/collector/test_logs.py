"""The log: no content, a stable name for every event, and no storms."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ragtrace_collector.telemetry.logs import JsonLines, LogRateLimit, TextLines, event

SECRET = "Refunds take 14 days."


class Lines(logging.Handler):
    """Keeps what would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.addFilter(LogRateLimit(most_a_minute=3))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("test.lines")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def warn(text: str, *, at_s: float, **fields: Any) -> None:
    record = logging.LogRecord("test.lines", logging.WARNING, __file__, 1, text, (), None)
    record.created = at_s
    for name, value in event("judge_failed", **fields).items():
        setattr(record, name, value)
    logging.getLogger("test.lines").handle(record)


def test_a_json_line_has_the_fields_of_an_opentelemetry_log_record(lines: Lines) -> None:
    warn("the judge is away", at_s=0, trace_id="0af7651916cd43dd8448eb211c80319c", retry_in_s=10)
    assert json.loads(lines.lines[0]) == {
        "timestamp": "1970-01-01T00:00:00.000000+00:00",
        "severity_text": "WARNING",
        "severity_number": 13,
        "event_name": "judge_failed",
        "body": "the judge is away",
        "scope": "test.lines",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "attributes": {"retry_in_s": 10},
    }


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_an_exception_is_told_by_class_and_place_and_never_by_its_text(
    lines: Lines, formatter: logging.Formatter
) -> None:
    lines.setFormatter(formatter)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("test.lines").exception("a stage failed")
    assert SECRET not in lines.lines[0]
    assert "ValueError at " in lines.lines[0]
    assert len(lines.lines[0].splitlines()) == 1


def test_a_storm_of_equal_warnings_is_cut_short_and_counted(lines: Lines) -> None:
    for second in range(50):
        warn("the judge is away", at_s=second)
    assert len(lines.lines) == 3
    warn("the judge is away", at_s=60)
    assert json.loads(lines.lines[3])["body"] == "the judge is away (and 47 more like it)"
