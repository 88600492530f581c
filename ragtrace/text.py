"""Texts of people and for people: durations, what pydantic finds wrong, and what must be escaped."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


UNITS_S: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_WAIT_S: Final = 86_400.0
"""One day: if a server asks for a longer wait, it is a mistake or an attack."""
_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_LONGEST_S: Final = 3650 * 86400.0


def duration_of(text: str, units_s: Mapping[str, float] = UNITS_S) -> timedelta | None:
    """Parse a number and its unit; ``None`` if the text is something else.

    Raises:
        ValueError: it is longer than 3650 days.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None or match[2] not in units_s:
        return None
    seconds = float(match[1]) * units_s[match[2]]
    if seconds > _LONGEST_S:
        raise ValueError("write a duration of at most 3650d")
    return timedelta(seconds=seconds)


def bounded_wait_s(seconds: float | None) -> float | None:
    """Clamp a wait to between zero and one day; ``None`` if it is not a number of seconds."""
    if seconds is None or seconds != seconds:  # NaN; `isnan` cannot take 10**400
        return None
    return float(min(max(0, seconds), LONGEST_WAIT_S))


_OTHERWISE: Final = "it cannot be used as it is"


def in_words(error: ErrorDetails) -> str:
    """Return the message of a validation error. It does not quote the value, which may be a secret."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return error["msg"].partition(", ")[2]  # our message, after pydantic's prefix
    if kind in ("literal_error", "enum"):
        return f"choose {str(context['expected']).replace(chr(39), '`')}"
    words = _WORDS.get(kind)
    return words.format_map(_bounds(context)) if words else _OTHERWISE


def _bounds(context: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        name: f"{value:g}" if isinstance(value, int | float) else value for name, value in context.items()
    }


_FLAG, _WHOLE, _NUMBER = "write true or false", "write a whole number", "write a number"
_TEXT, _KEYS = "write a string", "write keys with values, not a single value"
_LIST = "write a list, such as [a, b]"
_SIZE = "write a size with its unit, such as 500kB or 64MiB"
_WORDS: Final[Mapping[str, str]] = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such key",
    "bool_parsing": _FLAG,
    "bool_type": _FLAG,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "write a smaller whole number",
    "int_type": _WHOLE,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "finite_number": "write a number that is not infinite",
    "greater_than": "write a number above {gt}",
    "greater_than_equal": "write {ge} or more",
    "less_than_equal": "write {le} or less",
    "byte_size": _SIZE,
    "byte_size_unit": _SIZE,
    "string_type": _TEXT,
    "string_unicode": "write text in UTF-8",
    "string_too_short": "write at least {min_length} characters",
    "string_too_long": "write at most {max_length} characters",
    "path_type": "write a path",
    "json_invalid": "write JSON",
    "dict_type": _KEYS,
    "mapping_type": _KEYS,
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "dataclass_type": _KEYS,
    "dataclass_exact_type": _KEYS,
    "invalid_key": "write keys that are strings",
    "unexpected_keyword_argument": "there is no such key",
    "tuple_type": _LIST,
    "list_type": _LIST,
    "too_short": "name at least {min_length}",
    "too_long": "name at most {max_length}",
    "invalid-json-value": "write strings, numbers, true, false, null, lists or keys with values; quote dates",
}
"""Messages by pydantic's error type, for values from YAML, TOML and JSON."""


_CONTROLS: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1 controls, which terminals obey; bidirectional controls (Trojan Source); characters that some
readers treat as line ends; and lone surrogates, which UTF-8 cannot encode."""
_IN_JSON: Final = re.compile(f"[{_CONTROLS}]")
_IN_TEXT: Final = re.compile(rf"[\x00-\x1f{_CONTROLS}]")
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\0\uff1d\uff0b\uff0d\uff20]")


def one_json_line(value: Mapping[str, Any], *, allow_nan: bool = True) -> str:
    """Serialize an object as JSON on one line for every reader, without the final line break."""
    return escaped_json(json.dumps(value, ensure_ascii=False, allow_nan=allow_nan))


def escaped_json(line: str) -> str:
    """Return JSON that parses to the same value. Controls occur in strings only, where escapes are legal."""
    return line if line.isascii() and "\x7f" not in line else _IN_JSON.sub(_escape, line)


def escaped_line(text: str) -> str:
    """Return the text as one line, with controls as JSON escapes."""
    return _IN_TEXT.sub(_escape, text)


def spreadsheet_text(text: str) -> str:
    """Prefix a text that a spreadsheet would read as a formula with an apostrophe.

    Source: OWASP, "CSV Injection", and ASVS 5.0, 1.2.10. Texts that begin with apostrophes and such a formula
    get one more, so that removing one restores the text.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def spreadsheet_line(cells: Iterable[object]) -> bytes:
    """Encode a line of CSV in which no text is read as a formula."""
    line = io.StringIO()
    csv.writer(line).writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue().encode("utf-8", "replace")


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
