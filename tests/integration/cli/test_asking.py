"""How claims are asked about: a second judge, canaries, the form of verdicts, a second look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gullible_model import running_gullible_model
from tests.injections import injected, injections, victims
from tests.integration.cli.program import json_lines, run

pytestmark = pytest.mark.slow  # a judge's or a back end's server

ORDER = next(each for each in injections() if each.where == "chunk" and each.wants == "supported")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_gullible_model() as served:
        yield served


@pytest.fixture
def records(tmp_path: Path) -> str:
    victim = next(victims())
    lines = [
        json.dumps(
            {
                "id": name,
                "question": record.question,
                "contexts": [{"id": chunk.id, "text": chunk.text} for chunk in record.chunks],
                "answer": record.answer,
            }
        )
        for name, record in (("clean", victim), ("attacked", injected(victim, ORDER)))
    ]
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return str(path)


def test_a_judge_that_was_talked_round_gives_no_score(records: str, url: str) -> None:
    result = run("evaluate", records, "--judge", "openai:gullible", "--base-url", url, "--json")
    clean, attacked = json_lines(result.stdout)
    assert (clean["score"], attacked.get("score")) == (0.5, None)
    assert "judge_compromised" in json.dumps(attacked)
    assert result.exit_code == 1


def test_a_second_judge_scores_what_the_first_was_talked_round_about(records: str, url: str) -> None:
    judges = ("--judge", "openai:gullible", "--base-url", url, "--set", "judge.second=scripted")
    result = run("evaluate", records, *judges, "--json")
    clean, attacked = json_lines(result.stdout)
    assert (clean["score"], attacked["score"]) == (0.5, 0.5)
    assert (clean["judge"], attacked["judge"]) == ("openai:gullible", "scripted:scripted")
    assert result.exit_code == 0
