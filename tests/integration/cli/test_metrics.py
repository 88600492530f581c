"""``ragtrace metrics``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.program import json_lines, run

CASE = json.dumps(
    {
        "question": "How long?",
        "contexts": ["Refunds take 14 days."],
        "answer": "Refunds take 14 days. It rains.",
    }
)


def test_metrics_are_listed_for_people() -> None:
    output = run("metrics").stdout
    assert "faithfulness (profile ragtrace, version 1)" in output
    assert "needs context and answer\n" in output
    assert "  passes when contradicted == 0 and unsupported == 0 and coverage >= 0.5\n" in output
    assert "needs question and context\n  passes when score >= 0.5\n" in output
    assert "needs context and answer; lower is better\n  passes when contradicted == 0 and cov" in output
    assert "other profiles: ragas, ragas-legacy, deepeval-3, deepeval-4, promptfoo,\n  rag_evals" in output
    assert "also called answer_relevancy" in output
    assert max(map(len, output.splitlines())) <= 80


def test_metrics_are_listed_for_machines() -> None:
    (faithfulness,) = [
        each for each in json_lines(run("metrics", "--json").stdout) if each["name"] == "faithfulness"
    ]
    assert faithfulness["profile"] == "ragtrace"
    assert faithfulness["needs"] == ["context", "answer"]
    assert faithfulness["direction"] == "higher_is_better"
    assert faithfulness["threshold"] is None
    assert faithfulness["pass_when"] == "contradicted == 0 and unsupported == 0 and coverage >= 0.5"
    assert faithfulness["version"] == "1"
    assert "deepeval-4" in faithfulness["profiles"]
    assert faithfulness["description"]


def test_prompts_are_listed_with_what_they_change() -> None:
    listed = {line["name"]: line for line in json_lines(run("metrics", "prompts", "--json").stdout)}
    assert listed["extract"]["text"].startswith("You")
    assert "faithfulness" in listed["extract"]["used_by"]
    assert max(map(len, run("metrics", "prompts").stdout.splitlines())) <= 80


def test_exported_prompts_change_nothing_until_they_are_edited(tmp_path: Path) -> None:
    cases, folder = tmp_path / "cases.jsonl", tmp_path / "prompts"
    cases.write_text(CASE)
    assert run("metrics", "prompts", "--export", str(folder)).exit_code == 0
    names = "faithfulness,context_relevance"
    judged = ("evaluate", str(cases), "--judge", "scripted", "--metrics", names, "--json")
    plain, exported = versions(judged), versions((*judged, "--prompts", str(folder)))
    assert exported == plain
    (folder / "verify.md").write_text((folder / "verify.md").read_text() + "Be brief.\n")
    edited = versions((*judged, "--prompts", str(folder)))
    assert edited["faithfulness"] != plain["faithfulness"]
    assert edited["context_relevance"] == plain["context_relevance"]
    again = run("metrics", "prompts", "--export", str(folder))
    assert "verify.md is there already: kept as it is" in again.stderr
    assert "Be brief." in (folder / "verify.md").read_text()


def versions(arguments: tuple[str, ...]) -> dict[str, str]:
    return {line["metric"]: line["evaluator_version"] for line in json_lines(run(*arguments).stdout)}


def test_options_and_weights_of_metrics_come_from_the_command_line(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(CASE)
    options = (
        "--metric-option",
        "faithfulness.truths=true",
        "--metric-option",
        "faithfulness.truths_limit=3",
    )
    weights = ("--weights", "faithfulness=0.5, answer_relevance=0.5")
    lines = json_lines(
        run(
            *("evaluate", str(cases), "--judge", "scripted", "--metrics", "faithfulness,rag_score", "--json"),
            *options,
            *weights,
        ).stdout
    )
    faithfulness, composite = lines
    assert faithfulness["evaluator_version"].startswith("1-truths-3+")
    assert faithfulness["intermediate"]["truths_limit"] == 3
    assert composite["evaluator_version"].startswith("1-0.5-0.5-0+")
    parts = composite["details"]
    assert composite["score"] == (parts["faithfulness"] + parts["answer_relevance"]) / 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric-option", "recall.x=1"], "--metrics does not name 'recall', but faithfulness"),
        (["--metric-option", "x=1"], "write METRIC.NAME=VALUE"),
        (["--metric-option", "faithfulness.x=1"], "its options: "),
        (["--weights", "faithfulness=1"], "--weights needs --metrics rag_score"),
        (["--weights", "faithfulness=much"], "a weight is a number"),
        (["--prompts", "strange"], "replaces no prompt: the names are extract"),
        (["--prompts", "empty"], "has no prompt: `ragtrace metrics prompts --export DIR`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_metrics_cannot_take_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "foo.md").write_text("Hello.")
    (tmp_path / "cases.jsonl").write_text(CASE)
    told = run("evaluate", "cases.jsonl", "--judge", "scripted", *arguments)
    assert told.exit_code == 2
    assert said in " ".join(told.stderr.split())


def test_only_prompts_are_exported() -> None:
    told = run("metrics", "--export", "somewhere")
    assert told.exit_code == 2
    assert "ragtrace metrics prompts --export DIR" in told.stderr
