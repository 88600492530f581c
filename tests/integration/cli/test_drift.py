"""``ragtrace drift``: runs beside a collector, told in a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.integration.cli.program import run
from tests.integration.collector.drifting_model import DriftingModel, running_drifting_model, write_anchors

pytestmark = pytest.mark.slow


@pytest.fixture
def model() -> Iterator[DriftingModel]:
    with running_drifting_model() as served:
        yield served


@pytest.fixture
def config(tmp_path: Path, model: DriftingModel) -> Path:
    judge = {"use": "openai:m", "base_url": model.url, "api_key": "not-a-key", "sentinel_rate": 0}
    file = tmp_path / "collector.yaml"
    settings = {
        "judge": judge,
        "drift": {"anchors": str(write_anchors(tmp_path))},
        "export": [{"endpoint": f"otlp-file:{tmp_path / 'out.jsonl'}"}],
        "store": {"path": str(tmp_path / "store.db")},
    }
    file.write_text(json.dumps(settings))
    return file


def drift(action: str, config: Path, *options: str) -> Result:
    return run("drift", action, "--config", str(config), *options)


def test_a_changed_judge_is_told_with_the_anchors_that_flipped_and_exit_code_1(
    config: Path, model: DriftingModel
) -> None:
    for _ in range(4):
        steady = drift("run", config)
        assert steady.exit_code == 0
    assert "24 of 24 anchors judged, 24 of 24 as labeled" in steady.output
    model.strictness = 1.0
    changed = drift("run", config)
    assert changed.exit_code == 1
    assert "DRIFT: the judge has changed" in changed.output
    assert "16 of 24 anchors" in changed.output
    assert "anchor-1  faithfulness  1.00 -> 0.00" in changed.output
    assert max(map(len, changed.output.splitlines())) <= 90
    told = json.loads(drift("status", config, "--json").stdout)
    assert (told["drifted"], len(told["flips"])) == (True, 16)
    assert [run["result"] for run in told["runs"]] == ["baseline", *["steady"] * 3, "drifted"]
    assert "Refunds" not in json.dumps(told)


def test_accepting_the_judge_begins_a_new_baseline(config: Path, model: DriftingModel) -> None:
    drift("run", config)
    assert drift("accept", config).exit_code == 0
    model.strictness = 1.0
    assert "baseline" in drift("run", config).output


def test_a_configuration_without_anchors_says_what_to_write(config: Path) -> None:
    settings = json.loads(config.read_text())
    del settings["drift"]
    config.write_text(json.dumps(settings))
    result = drift("run", config)
    assert result.exit_code != 0
    assert "`drift.anchors` is not set" in result.output
