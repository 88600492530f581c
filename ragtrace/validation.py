"""Turn pydantic's validation errors into messages that say what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import ErrorDetails

_OTHERWISE: Final = "it cannot be used as it is"


def in_words(error: ErrorDetails) -> str:
    """Return the message of a validation error. It does not quote the value, which may be a secret."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return error["msg"].partition(", ")[2]  # our message, after pydantic's prefix
    if kind == "literal_error":
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
