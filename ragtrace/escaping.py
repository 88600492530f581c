"""Strangers' text for terminals, logs and files of lines: it ends no line, and steers no terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_CONTROLS: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1 controls, which terminals obey; what turns the order of what is seen (Trojan Source); what some
readers take for the end of a line; and lone surrogates, which no UTF-8 holds."""
_IN_JSON: Final = re.compile(f"[{_CONTROLS}]")
_IN_TEXT: Final = re.compile(rf"[\x00-\x1f{_CONTROLS}]")


def one_json_line(value: Mapping[str, Any], *, allow_nan: bool = True) -> str:
    """Write an object as JSON that no reader takes for several lines; without the line break."""
    return escaped_json(json.dumps(value, ensure_ascii=False, allow_nan=allow_nan))


def escaped_json(line: str) -> str:
    """Return JSON that parses to the same. Only its strings hold controls, and any may hold their escapes."""
    return line if line.isascii() and "\x7f" not in line else _IN_JSON.sub(_escape, line)


def escaped_line(text: str) -> str:
    """Return a text as one line, its controls as the escapes that JSON has for them."""
    return _IN_TEXT.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
