"""One verdict has one name wherever people read: `unsupported`. Judges are asked for `not_mentioned`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.cli.program import json_lines, run

ROOT = Path(__file__).parents[2]
READ = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
OTHER_NAME = re.compile(r"not[ _]mentioned|\bneutral\b", re.IGNORECASE)


def test_no_page_calls_it_by_another_name() -> None:
    lines = [(page.name, line) for page in READ for line in page.read_text("utf-8").splitlines()]
    other = [(page, line) for page, line in lines if OTHER_NAME.search(line)]
    assert [each for each in other if "(also `neutral`, `not_mentioned`)" not in each[1]] == []


@pytest.mark.parametrize("word", ["unsupported", "not_mentioned"])
def test_a_command_s_output_says_it_by_its_name(word: str, tmp_path: Path) -> None:
    script, records = tmp_path / "script.json", tmp_path / "records.jsonl"
    script.write_text(json.dumps({"claims": {"Postage is free.": word}}))
    row = {"question": "Postage?", "contexts": ["Refunds take 14 days."], "answer": "Postage is free."}
    records.write_text(json.dumps(row))
    table = run("evaluate", str(records), "--judge", f"scripted:{script}", columns=200).output
    told = run("evaluate", str(records), "--judge", f"scripted:{script}", "--json").stdout
    assert "unsupported" in table
    assert "1 of 1 claim unsupported" in json_lines(told)[0]["explanation"]
    assert not OTHER_NAME.search(table + told)
