"""``ragtrace metrics``."""

from __future__ import annotations

from tests.integration.cli.program import json_lines, run


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
