"""Parses a model's text into a typed reply, and makes the schema of the request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

ReplyT = TypeVar("ReplyT", bound=BaseModel)
JsonSchema: TypeAlias = dict[str, Any]

_BOUNDS = frozenset({"maxLength", "minLength", "maxItems", "minItems", "maximum", "minimum"})
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_MAX_OBJECTS = 50
_MAX_FAULTS = 5


class InvalidReply(ValueError):
    """The reply is JSON of another form. The message tells the model what to correct."""


class NotJson(ValueError):
    """The reply holds no JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """What is done about replies that do not have the form that was asked for."""

    strict_json: bool = False
    """Accept a reply only if it is one bare JSON object: nothing is cut out of prose or repaired."""
    max_corrections: int = 1
    """How often a reply of the wrong form is sent back with its fault."""


def parse_reply(text: str, reply_type: type[ReplyT], *, strict: bool = False) -> ReplyT:
    """Find the reply in a model's text: bare JSON, or JSON in fences, in prose, with trailing commas.

    The last object of the form counts, since models repeat the example before they answer. If ``strict``, the
    text must be one bare JSON object.

    Raises:
        NotJson: the text has no JSON object.
        InvalidReply: no object has the form.
    """
    fault: ValidationError | None = None
    found: list[ReplyT] = []
    for value in [_bare(text)] if strict else _objects(_THOUGHTS.sub("", text)):
        try:
            found.append(reply_type.model_validate(value))
        except ValidationError as exc:
            fault = exc
    if found:
        return found[-1]
    if fault is None:
        raise NotJson("the reply holds no JSON object")
    raise InvalidReply(_describe(fault))


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


def _bare(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NotJson("the reply is not one bare JSON object") from None
    if not isinstance(value, dict):
        raise NotJson("the reply is not one bare JSON object")
    return value


def _objects(text: str) -> Iterator[Any]:
    """Yield the JSON objects of a text, then those of the repaired text."""
    decoder = json.JSONDecoder(strict=False)
    for source in dict.fromkeys((text, _TRAILING_COMMA.sub("", text))):
        yield from _decoded(source, decoder)


def _decoded(text: str, decoder: json.JSONDecoder) -> Iterator[Any]:
    at = text.find("{")
    for _ in range(_MAX_OBJECTS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        yield value
        at = text.find("{", end)


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
