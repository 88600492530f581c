"""The JSON schema of the configuration: current, named by the printed file, at one with the program."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig, parse_config, schema_text
from ragtrace_collector.config.load import made_schema
from tests.integration.cli.program import run

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "collector" / "collector.schema.json"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
EXPORT = "export: [{endpoint: 'http://localhost:4317'}]\n"


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
