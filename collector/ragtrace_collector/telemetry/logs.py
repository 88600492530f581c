"""The collector's log: one line for each rare event, as text or as OpenTelemetry's log record in JSON.

It never logs the text of an unexpected exception, which may quote content, but its class and place.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from ragtrace.text import escaped_json, escaped_line

LogFormat = Literal["text", "json"]
Field = str | int | float | bool | Mapping[str, object]

_MOST_A_MINUTE: Final = 10
_CHATTY: Final = ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "uvicorn", "asyncio", "opentelemetry")
"""These log one line a request at INFO."""
_SEVERITY: Final = {10: 5, 20: 9, 30: 13, 40: 17, 50: 21}
"""https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber"""


def log_to_stderr(level: str, log_format: LogFormat) -> None:
    """Send every log line of the process to stderr in this format, and rate-limit repeated ones."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    handler.addFilter(LogRateLimit())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def event(name: str, **fields: Field) -> dict[str, object]:
    """Return the ``extra`` of a log line: its stable event name and its fields.

    ``trace_id`` and ``span_id`` become those of the log record. No field may hold content.
    """
    return {"event_name": name, "fields": fields}


class LogRateLimit(logging.Filter):
    """Passes a few lines a minute from one place in the code, and then says how many it suppressed."""

    def __init__(self, most_a_minute: int = _MOST_A_MINUTE) -> None:
        super().__init__()
        self._most = most_a_minute
        self._minutes: dict[tuple[str, int], _Minute] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the line passes."""
        place = (record.pathname, record.lineno)
        minute = self._minutes.get(place)
        if minute is None or not 0 <= record.created - minute.began_s < 60:
            record.held_back = minute.seen - self._most if minute else 0
            minute = self._minutes[place] = _Minute(began_s=record.created)
        minute.seen += 1
        return minute.seen <= self._most


@dataclass(slots=True, kw_only=True)
class _Minute:
    began_s: float
    seen: int = 0


class TextLines(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's own name
        # always one line, so that quoted text cannot forge another
        return escaped_line(super().formatMessage(record) + _held_back(record) + _fault(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 -- the line has its place already
        return ""


class JsonLines(logging.Formatter):
    """One JSON object a line, with the fields of OpenTelemetry's log record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Field names are those of the OpenTelemetry SDK's ``LogRecord.to_json``."""
        fields = dict(getattr(record, "fields", {}))
        ids = {key: fields.pop(key) for key in ("trace_id", "span_id") if key in fields}
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "severity_text": record.levelname,
            "severity_number": _SEVERITY.get(record.levelno, 0),
            "event_name": getattr(record, "event_name", None),
            "body": record.getMessage() + _held_back(record) + _fault(record),
            "scope": record.name,
            **ids,
            "attributes": fields,
        }
        return escaped_json(
            json.dumps({key: value for key, value in line.items() if value not in (None, {})})
        )


def place_of(exc: BaseException) -> str:
    """Return the class and place of an error, without its text, which may quote content."""
    frame = exc.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "?"
    return f"{type(exc).__name__} at {where}"


def _held_back(record: logging.LogRecord) -> str:
    number = getattr(record, "held_back", 0)
    return f" (and {number} more like it)" if number > 0 else ""


def _fault(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return f" [{place_of(error)}]" if error else ""
