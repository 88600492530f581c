"""``ragtrace metrics``."""

from __future__ import annotations

from tests.integration.cli.program import json_lines, run


def test_metrics_are_listed_for_people() -> None:
    output = run("metrics").stdout
    assert "faithfulness (profile ragtrace)" in output
    assert "needs context and answer; passes from 0.5" in output


def test_metrics_are_listed_for_machines() -> None:
    (faithfulness,) = [
        each for each in json_lines(run("metrics", "--json").stdout) if each["name"] == "faithfulness"
    ]
    assert faithfulness["profile"] == "ragtrace"
    assert faithfulness["needs"] == ["context", "answer"]
    assert faithfulness["direction"] == "higher_is_better"
    assert faithfulness["threshold"] == 0.5
    assert faithfulness["description"]
