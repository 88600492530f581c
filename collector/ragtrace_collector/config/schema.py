"""The configuration's JSON schema, for editors, generated from its sections."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from ragtrace_collector.config.load import default_config_text
from ragtrace_collector.config.sections import CollectorConfig

_REFERENCE: Final = {
    "title": "Reference",
    "description": "To the environment or to a file: ${env:NAME}, ${env:NAME:-default}, ${file:PATH}.",
    "type": "string",
    "pattern": r"\$\{(env|file):[^}]+\}",
}
_TO_REFERENCE: Final = {"$ref": "#/$defs/Reference"}
_NOISE: Final = ("title", "default", "writeOnly", "gt", "ge", "lt")
_SUBSCHEMAS: Final = ("items", "additionalProperties")


def schema_text() -> str:
    """Return the collector's schema."""
    return (files("ragtrace_collector") / "collector.schema.json").read_text("utf-8")


def made_schema() -> str:
    """Generate the schema from the sections."""
    import yaml  # the core reads settings without it

    made = CollectorConfig.model_json_schema()
    definitions = {name: _cleaned(each) for name, each in made.pop("$defs").items()}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_cleaned(made),
        "title": "The ragtrace collector's configuration",
        "$defs": {**definitions, "Reference": _REFERENCE},
    }
    _set_defaults(schema, yaml.safe_load(default_config_text()), schema["$defs"])
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _cleaned(schema: Any) -> Any:
    """Remove entries without information, and allow a reference for each value."""
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name not in _NOISE}
    for name in _SUBSCHEMAS:
        if isinstance(kept.get(name), dict):
            kept[name] = _or_reference(_cleaned(kept[name]))
    if "anyOf" in kept:
        kept["anyOf"] = [_cleaned(each) for each in kept["anyOf"]]
    if "properties" in kept:
        kept["properties"] = {
            name: _or_reference(_cleaned(each)) for name, each in schema["properties"].items()
        }
    return kept


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    if _takes_any_text(schema):
        return schema
    if set(schema) == {"anyOf"}:
        return {"anyOf": [*schema["anyOf"], _TO_REFERENCE]}
    return {"anyOf": [schema, _TO_REFERENCE]}


def _takes_any_text(schema: Mapping[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_takes_any_text(each) for each in schema["anyOf"])
    return schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "const", "maxLength"}


def _set_defaults(schema: dict[str, Any], values: Mapping[str, Any], definitions: Mapping[str, Any]) -> None:
    """Write the defaults as in the commented file: ``5s``, not the parsed value."""
    for name, value in values.items():
        place = schema["properties"][name]
        if not isinstance(value, dict | list):
            place["default"] = value
        elif isinstance(value, dict):
            for section in _sections(place, definitions):
                _set_defaults(section, value, definitions)


def _sections(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for each in schema.get("anyOf", [schema]):
        found = definitions.get(each.get("$ref", "").removeprefix("#/$defs/"))
        if found and "properties" in found:
            yield found
