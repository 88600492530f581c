"""What a number was made of, as people see it: in the terminal's JSON, in a report's row and on its page."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cli.program import json_lines, run
from tests.integration.cli.test_evaluate_peers import write

ROW = {
    "id": "a",
    "question": "How long do refunds take?",
    "contexts": ["Our shop opened in 1998. It is blue. Refunds take 14 days. We sell shoes. Come by!"],
    "answer": "Refunds take 14 days.",
}


def test_every_metric_names_the_steps_that_it_used(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW)
    metrics = "faithfulness,answer_relevance,context_relevance"
    lines = json_lines(run("evaluate", cases, "--judge", "scripted", "--metrics", metrics, "--json").stdout)
    assert {line["metric"]: [run["step"] for run in line["steps"]] for line in lines} == {
        "faithfulness": ["extract", "verify"],
        "answer_relevance": ["extract", "relevance"],
        "context_relevance": ["chunks"],
    }
    for line in lines:
        assert line["calls"] == sum(run["calls"] for run in line["steps"])
        assert line["usage"]["unmetered_calls"] == 0
        assert line["duration_ms"] >= max(run["duration_ms"] for run in line["steps"])


def test_a_page_opens_a_number_down_to_its_steps_and_questions(tmp_path: Path) -> None:
    cases, page, rows = write(tmp_path / "cases.jsonl", ROW), tmp_path / "page.html", tmp_path / "rows.jsonl"
    metrics = ("--metrics", "question_similarity", "--set", "judge.embedder=wordllama")
    run("evaluate", cases, "--judge", "scripted", *metrics, "--out", str(page), "--out", str(rows))
    (row,) = json_lines(rows.read_text())
    (metric,) = row["judged"]["evaluation"]["outcomes"]
    (question,) = metric["intermediate"]["questions"]
    (similarity,) = metric["intermediate"]["similarities"]
    text = page.read_text()
    assert "How the numbers were made" in text
    assert question in text
    assert f"<b><bdi>{similarity:.3f}</bdi></b>" in text
    assert [run["step"] for run in metric["steps"]] == ["questions", "embed"]
    assert "<li><bdi>questions: " in text
