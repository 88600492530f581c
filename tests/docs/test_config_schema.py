"""The JSON schema of the configuration: current, named by the printed file, at one with the program."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig, default_config_text, parse_config, schema_text
from tests.integration.cli.program import run

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "collector" / "collector.schema.json"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
EXPORT = "export: [{endpoint: 'http://localhost:4317'}]\n"


_REFERENCE_DEFINITION: Final = {
    "title": "Reference",
    "description": "To the environment or to a file: ${env:NAME}, ${env:NAME:-default}, ${file:PATH}.",
    "type": "string",
    "pattern": r"\$\{(env|file):[^}]+\}",
}
_TO_REFERENCE: Final = {"$ref": "#/$defs/Reference"}
_NOISE: Final = ("title", "default", "writeOnly", "gt", "ge", "lt")
_SUBSCHEMAS: Final = ("items", "additionalProperties")


def made_schema() -> str:
    """Generate the schema from the sections."""
    made = CollectorConfig.model_json_schema()
    definitions = {name: _cleaned(each) for name, each in made.pop("$defs").items()}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_cleaned(made),
        "title": "The ragtrace collector's configuration",
        "$defs": {**definitions, "Reference": _REFERENCE_DEFINITION},
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


def test_the_shipped_schema_is_what_the_sections_make() -> None:
    if os.environ.get("REGENERATE_GOLDEN"):
        SHIPPED.write_text(made_schema(), "utf-8")
    assert SHIPPED.read_text("utf-8") == made_schema(), "run this test with REGENERATE_GOLDEN=1"


def test_the_printed_configuration_names_the_printed_schema_in_its_first_line(tmp_path: Path) -> None:
    printed = run("collector", "--print-config").stdout
    first = printed.splitlines()[0]
    assert (named := re.fullmatch(r"# yaml-language-server: \$schema=\./(\S+)", first))
    assert f"--print-schema > {named[1]}" in printed
    assert run("collector", "--print-schema").stdout == schema_text() == SHIPPED.read_text("utf-8")


SCHEMA: dict[str, Any] = json.loads(schema_text())
WHOLE = Draft202012Validator(SCHEMA)
PART = Draft202012Validator({name: value for name, value in SCHEMA.items() if name != "required"})


def faults(document: Any, validator: Draft202012Validator = WHOLE) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def test_the_default_configuration_keeps_to_it() -> None:
    assert faults(yaml.safe_load(run("collector", "--print-config").stdout)) == []


def test_the_deployed_configuration_keeps_to_it() -> None:
    text = (ROOT / "examples" / "deploy" / "compose" / "collector.yaml").read_text("utf-8")
    assert faults(yaml.safe_load(text)) == []


def test_what_a_page_shows_keeps_to_it() -> None:
    shown = 0
    for page in PAGES:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and document.keys() <= CollectorConfig.model_fields.keys():
                assert faults(document, PART) == [], f"{page}: {block}"
                shown += 1
    assert shown > 10


TAKEN = (
    "assemble: {quiet_period: '${env:QUIET:-2s}', max_open_traces: '${env:MANY:-50}'}",
    "sample: {ratio: '${env:RATIO:-0.5}', rules: [{name: a, service: [shop, web], rate: 0.5}]}",
    "sample: {rules: [{name: a, attributes: {tier: 3, vip: true, x: /y/}, slower_than: 1.5s}]}",
    "receive: {insecure: '${env:OPEN:-false}', grpc: null, max_message_bytes: 1048576}",
    "receive: {max_message_bytes: 16 MB}",
    "receive: {kafka: {brokers: 'k:9092', topics: [a], options: {client.rack: '${env:HOME}'}}}",
    "receive: {grpc: null, http: null, kafka: {brokers: ['k:9092', 'l:9092'], dead_letter: null}}",
    "judge: {use: openai:m, second: openai:n, cache: j.db, headers: {x: '${env:HOME}'}}",
    "judge: {use: openai:m, extra_body: {a: [1]}}",
    "judge: {verify: '${env:HOW:-json}', tls: {ca: ca.crt}, timeout: 90s}",
    "evaluate: {metrics: [faithfulness, {name: rag_score, options: {weights: {faithfulness: 1}}}]}",
    "extract: {mapping: {question: app.question, context: [a, 'b[].c']}}",
    "store: {path: null, max_bytes: 500MB, retention: 30d}",
    "attach: {carrier_time: now, content: false}",
    "budget: {live: {day: [1.5 USD, 100 calls]}}",
)
REFUSED = (
    "assemble: {quiet_period: 5}",
    "assemble: {quiet_period: 5 parsecs}",
    "judge: {vrify: json}",
    "judge: {verify: text}",
    "judge: {max_concurrency: 0}",
    "sample: {ratio: 1.5}",
    "sample: {rules: [{service: shop}]}",
    "receive: {max_message_bytes: lots}",
    "receive: {insecure: 7}",
    "receive: {kafka: {topics: [a]}}",
    "receive: {kafka: {brokers: 'k:9092', topics: []}}",
    "attach: {carrier_time: late}",
    "evaluate: {metrics: []}",
    "evaluate: {metrics: [{profile: ragtrace}]}",
    "log_level: loud",
    "nonsense: 1",
)


def test_the_schema_takes_and_refuses_what_the_program_does() -> None:
    for text in TAKEN:
        parse_config(EXPORT + text, where="my.yaml", environ={"HOME": "h"})
        assert faults(yaml.safe_load(EXPORT + text)) == [], text
    for text in REFUSED:
        with pytest.raises(ConfigError):
            parse_config(EXPORT + text, where="my.yaml", environ={})
        assert faults(yaml.safe_load(EXPORT + text)) != [], text
