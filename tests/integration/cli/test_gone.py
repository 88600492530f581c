"""What is gone says in one sentence what took its place: commands, options, and keys of the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.program import run

RULES = "`ragtrace rules` writes Prometheus and Grafana rules, and Alertmanager sends their alerts"
PROCESSES = "one collector is one process; docs/scale.md says how to run several"
FORMULA = "docs/scale.md has a formula for what one process carries"
STORE = "`receive.kafka` reads spans from Kafka, and the store is a SQLite file (`store.path`)"


@pytest.mark.parametrize(
    ("name", "arguments", "instead"),
    [
        ("alerts", ["alerts", "list"], f"the command `alerts` is gone: {RULES}"),
        ("slo", ["slo", "rules"], f"the command `slo` is gone: {RULES}"),
        ("plan", ["plan", "--rps", "5"], f"the command `plan` is gone: {FORMULA}"),
        ("--role", ["collector", "--role", "ingest"], f"the option --role is gone: {PROCESSES}"),
        ("--workers", ["collector", "--workers=2"], f"the option --workers is gone: {PROCESSES}"),
    ],
)
def test_a_command_or_an_option_that_is_gone_says_what_took_its_place(
    name: str, arguments: list[str], instead: str
) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert told.stderr.splitlines()[-1] == f"Error: {instead}"


@pytest.mark.parametrize(
    ("key", "section", "instead"),
    [
        ("alerts", {"alerts": {}}, f"`alerts` is gone: {RULES}"),
        ("slo", {"slo": []}, f"`slo` is gone: {RULES}"),
        ("role", {"role": "all"}, f"`role` is gone: {PROCESSES}"),
        ("store: kafka://…", {"store": "kafka://127.0.0.1:9/a"}, f"`store: kafka://…` is gone: {STORE}"),
        ("store.kafka", {"store": {"kafka": "kafka://127.0.0.1:9/a"}}, f"`store.kafka` is gone: {STORE}"),
    ],
)
def test_a_key_of_the_configuration_that_is_gone_says_what_took_its_place(
    key: str, section: dict[str, object], instead: str, tmp_path: Path
) -> None:
    config = tmp_path / "collector.yaml"
    config.write_text(json.dumps({"export": [{"endpoint": "http://127.0.0.1:9"}], **section}))
    told = run("collector", "--config", str(config), "--check")
    assert told.exit_code == 2
    assert told.stderr.splitlines() == [f"Error: {config}: {instead}"]
