"""Parses a model's text into a typed reply, and makes the schema of the request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ragtrace._row_fields import written_value

ReplyT = TypeVar("ReplyT", bound=BaseModel)
JsonSchema: TypeAlias = dict[str, Any]

_BOUNDS = frozenset({"maxLength", "minLength", "maxItems", "minItems", "maximum", "minimum"})
_COMMENT = re.compile(r""""(?:[^"\\]++|\\.?)*+"?|//[^\n]*+""", re.DOTALL)
_BARE_INSIDE = frozenset({"arguments", "parameters", "input"})
"""Keys of a tool's call: the object may be written as a text."""
_MOST_OBJECTS = 1_000
_MOST_READ = 4
"""So many times a text's length is decoded at most, from braces that begin no object too."""
_MOST_REPAIRED = 200_000
"""Characters: no model writes more of verdicts."""
_DEEPEST = 3
_MOST_KEYS = 8
_MAX_FAULTS = 5


class InvalidReply(ValueError):
    """The reply is JSON of another form. The message tells the model what to correct."""


class NotJson(ValueError):
    """The reply holds no JSON object."""


def parse_reply(text: str, reply_type: type[ReplyT]) -> ReplyT:
    """Find the reply in a model's text: bare JSON, or JSON in fences, in prose, as Python writes it.

    The last object of the form counts, since models repeat the example before they answer. It may be within
    another object or a tool's call, and the entries of a form's list may stand alone. Takes time
    linear in the text.

    Raises:
        NotJson: the text has no JSON object.
        InvalidReply: no object has the form.
    """
    text = _without_thoughts(text)
    if text.lstrip().startswith('"'):  # the object as a JSON string
        with suppress(ValueError):
            text = str(json.loads(text))
    values, broken = _decoded(text)
    entries = [] if broken else _entries(values, reply_type)
    with suppress(InvalidReply, NotJson):
        return _fitting([*entries, *values], reply_type)
    return _fitting(_repaired(text) or values, reply_type)


def _fitting(values: Sequence[Any], reply_type: type[ReplyT]) -> ReplyT:
    """Return the last of the values that has the form, or has such a value within."""
    fault: ValidationError | None = None
    for value in reversed(values):
        for inner in _with_inner(value, reply_type, _DEEPEST):
            try:
                return reply_type.model_validate(inner)
            except ValidationError as exc:
                fault = fault or exc
    if fault is None:
        raise NotJson("the reply holds no JSON object")
    raise InvalidReply(_describe(fault))


def _with_inner(value: Any, reply_type: type[BaseModel], depth: int) -> Iterator[Any]:
    """Yield a value and what it wraps: ``{"response": {…}}``, ``{"name": …, "arguments": "{…}"}``."""
    yield value
    if depth == 0 or not isinstance(value, Mapping):
        return
    for key, inner in islice(value.items(), _MOST_KEYS):
        if isinstance(inner, Mapping):
            yield from _with_inner(inner, reply_type, depth - 1)
        elif isinstance(inner, list) and key not in reply_type.model_fields:
            yield from _entries(inner, reply_type)
        elif key in _BARE_INSIDE and isinstance(inner, str):
            yield from _decoded(inner)[0]


def _entries(values: Sequence[Any], reply_type: type[BaseModel]) -> Sequence[Mapping[str, Any]]:
    """Return the form with a list whose entries stand alone; none if the form has no list, or of others."""
    for name, info in reply_type.model_fields.items():
        [kind] = get_args(info.annotation)[:1] or [None]
        if get_origin(info.annotation) is list and isinstance(kind, type) and issubclass(kind, BaseModel):
            wanted = {field for field, told in kind.model_fields.items() if told.is_required()}
            found = [value for value in values if isinstance(value, Mapping) and wanted <= value.keys()]
            return [{name: found}] if found else []
    return []


@cache
def reply_schema(reply_type: type[BaseModel], *, bounded: bool = True) -> JsonSchema:
    """Return the JSON schema of a reply in the strict dialect: closed objects, every property required.

    Making one takes milliseconds, so all callers share it. Don't modify it.

    Args:
        reply_type: The form.
        bounded: Include limits of lengths and numbers; some servers refuse them.
    """
    schema = reply_type.model_json_schema()
    schema = _strict(schema, schema.pop("$defs", {}), bounded)
    assert isinstance(schema, dict)
    return schema


def _without_thoughts(text: str) -> str:
    """Remove what is between ``<think>`` and ``</think>``."""
    *thoughts, rest = text.split("</think>")
    said = [part.partition("<think>")[0] if "<think>" in part else f"{part}</think>" for part in thoughts]
    return "".join([*said, rest])


def _decoded(text: str) -> tuple[Sequence[Any], bool]:
    """Return the JSON objects of a text that are in no other, and whether a brace begins none."""
    decoder = json.JSONDecoder(strict=False)
    found: list[Any] = []
    left, broken = _MOST_READ * len(text), False
    at = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if at < 0 or left <= 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as exc:
            left -= getattr(exc, "pos", len(text)) - at
            broken, end = True, at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found, broken


def _repaired(text: str) -> Sequence[Any]:
    """Return the object of a text that Python wrote, or that has comments or commas too many."""
    if len(text) > _MOST_REPAIRED:
        return ()
    bare = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "", text)
    try:
        value = written_value(bare[bare.find("{") : bare.rfind("}") + 1])
    except (ValueError, RecursionError):
        return ()
    return [value] if isinstance(value, Mapping) else ()


def _describe(fault: ValidationError) -> str:
    faults = fault.errors(include_url=False, include_context=False, include_input=False)[:_MAX_FAULTS]
    return "; ".join(f"{'.'.join(map(str, f['loc'])) or 'the object'}: {f['msg']}" for f in faults)


def _strict(schema: Any, defined: Mapping[str, Any], bounded: bool) -> Any:
    if isinstance(schema, list):
        return [_strict(item, defined, bounded) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:  # inlined: each is used once, and some servers don't support references
        return _strict(defined[schema["$ref"].rpartition("/")[2]], defined, bounded)
    kept = {
        key: _strict_properties(value, defined, bounded)
        if key == "properties"
        else _strict(value, defined, bounded)
        for key, value in schema.items()
        if key not in ("title", "description", "default") and (bounded or key not in _BOUNDS)
    }
    if kept.get("type") == "object":
        kept |= {"additionalProperties": False, "required": list(kept.get("properties", {}))}
    return kept


def _strict_properties(named: Any, defined: Mapping[str, Any], bounded: bool) -> Any:
    # here the keys are property names, not schema keywords
    return {name: _strict(value, defined, bounded) for name, value in named.items()}
