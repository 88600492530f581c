"""``--check`` opens what the configuration names, leaves nothing behind, and says all faults at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import run


def config_of(folder: Path, **others: Any) -> dict[str, Any]:
    return {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}],
        "store": {"path": str(folder / "store.db")},
        "telemetry": {"listen": None},
        **others,
    }


def checked(folder: Path, **others: Any) -> Any:
    file = folder / "collector.yaml"
    file.write_text(json.dumps(config_of(folder, **others)))
    before = sorted(folder.rglob("*"))
    result = run("collector", "--config", str(file), "--check")
    assert sorted(folder.rglob("*")) == before, "the check left something behind"
    return result


def test_what_is_fine_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache" / "judge.db")
    result = checked(tmp_path, judge={"use": "openai:m", "api_key": "k", "cache": cache})
    assert result.exit_code == 0, result.output
    assert "is fine" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"export": [{"endpoint": "otlp-file:/no/such/o"}]}, "`export[0].endpoint`: the folder '/no/such'"),
        ({"store": {"path": "/no/such/store.db"}}, "`store.path`: the folder '/no/such' does not exist"),
        ({"judge": {"cache": "/dev/null/judge.db"}}, "`judge.cache`: the folder"),
        ({"receive": {"tokens_file": "no-tokens.yaml"}}, "`receive.tokens_file`"),
        ({"receive": {"tls": {"cert": "no.crt", "key": "no.key"}}}, "no.crt"),
        (
            {"receive": {"kafka": {"brokers": "k:9092", "options": {"fetch.max": "1"}}}},
            '`receive.kafka`: No such configuration property: "fetch.max"',
        ),
        ({"judge": {"use": "openai:m", "api_key": "k", "tls": {"ca": "no-ca.crt"}}}, "no-ca.crt"),
        ({"judge": {"prices": "no-prices.toml"}}, "no-prices.toml"),
        ({"judge": {"calibration": "no-calibration.json"}}, "no-calibration.json"),
        ({"judge": {"use": "./no_judge.py:open_it"}}, "no_judge.py"),
        (
            {"evaluate": {"metrics": [{"name": "faithfulness", "prompts": {"verify": "no-prompt.md"}}]}},
            "no-prompt.md",
        ),
        ({"evaluate": {"metrics": ["./no_metric.py:Mine"]}}, "no_metric.py"),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_is_named(others: dict[str, Any], said: str, tmp_path: Path) -> None:
    result = checked(tmp_path, **others)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.stderr.split())


def test_a_wrong_option_of_kafka_is_not_quoted(tmp_path: Path) -> None:
    kafka = {"brokers": "k:9092", "options": {"fetch.min.bytes": "a-secret"}}
    result = checked(tmp_path, receive={"kafka": kafka})
    assert result.exit_code == 2
    assert "fetch.min.bytes" in result.stderr
    assert "a-secret" not in result.stderr
