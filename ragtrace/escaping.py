"""Escape untrusted text for terminals, logs, line files and spreadsheets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

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


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
