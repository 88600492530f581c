"""``ragtrace evaluate`` on files of records as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.program import json_lines, run

FILES = Path(__file__).parents[2] / "data" / "records"


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("columns.json", ["fail", "pass"]),
        ("camel-case.json", ["fail"]),
        ("documents.csv", ["fail"]),
        ("python-list.csv", ["fail"]),
        ("numpy-array.csv", ["fail"]),
        ("objects.jsonl", ["fail"]),
        ("nan.csv", ["skipped", "skipped"]),
    ],
)
def test_each_file_is_judged(name: str, labels: list[str]) -> None:
    result = run("evaluate", str(FILES / name), "--judge", "lexical", "--json")
    lines = json_lines(result.stdout)
    assert (result.exit_code, [line["label"] for line in lines]) == (0, labels)
    assert {line["skip_reason"] for line in lines} == {"no_retrieval" if name == "nan.csv" else None}


def test_a_row_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    rows = [
        "question,contexts,answer",
        "q,\"['a' ... 'z']\",a",
        "q,\"['Refunds take 14 days.']\",Refunds take 14 days.",
    ]
    (tmp_path / "r.csv").write_text("\n".join(rows))
    result = run("evaluate", str(tmp_path / "r.csv"), "--judge", "lexical", "--json")
    assert [line["label"] for line in json_lines(result.stdout)] == ["pass"]
    assert "row 1: field `contexts`: left out items where it has `...`" in result.stderr
    assert result.exit_code == 2
