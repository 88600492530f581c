"""Programs that are no RAG call, under the instrumentations of others: nothing of them is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.program import json_lines, run
from tests.recordings.scenarios import SCENARIOS

FOLDER = Path(__file__).parents[1] / "data" / "recordings" / "negatives"
FILES = sorted(FOLDER.glob("*.json"))


def test_every_negative_is_recorded() -> None:
    negatives = [scenario for scenario in SCENARIOS.values() if scenario.kind == "negatives"]
    assert {file.stem for file in FILES} == {scenario.name for scenario in negatives}
    assert len(FILES) >= 20
    assert len({scenario.instrumentation for scenario in negatives}) >= 6


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_answer_of_it_is_judged(file: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8"))["trace"]))
    shown = json_lines(run("explain", str(traces), "--json").stdout)
    judged = [record for each in shown for record in each["records"] if not record["gaps"]]
    assert [(record["question"], record["answer"]) for record in judged] == []
