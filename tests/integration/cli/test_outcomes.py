"""What people see of several metrics at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.program import run

RECORD = {
    "id": "returns",
    "question": "How long can I return an order?",
    "contexts": [
        {"id": "faq-12", "text": "Orders can be returned within 14 days."},
        {"id": "faq-3", "text": "The shop is open on Sundays between nine and five, " * 4},
    ],
    "answer": "Orders can be returned within 30 days. Our cat is called Tom.",
    "reference": "Within 14 days. Refunds go to the card.",
}
METRICS = (
    "faithfulness,hallucination,groundedness,answer_relevance,context_precision,context_recall,rag_score"
)


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(RECORD))
    return str(path)


def test_people_see_each_record_with_a_row_a_metric_and_each_fault_once(records: str) -> None:
    output = run("evaluate", records, "--judge", "scripted", "--metrics", METRICS).stdout
    lines = [line.rstrip() for line in output.partition("\n\n")[0].splitlines()]
    assert lines[0].split() == ["id,", "metric", "score", "label", "explanation"]
    assert lines[1] == "returns"
    assert [line.split()[0] for line in lines if line[:2] == "  " and line[2] != " "] == METRICS.split(",")
    assert max(map(len, lines)) <= 80
    for said in (
        "contradicted  Orders can be returned within 30 days.",
        "unsupported   Our cat is called Tom.",
        "chunk 2, faq-3: The shop is open",
    ):
        assert output.count(said) == 1, said
    for said in (
        "unsupported   reference: Refunds go to the card.",
        "chunks   2 (relevant 0, partly relevant 0, irrelevant 2, unjudged 0)",
        "claims   2 (relevant 2, partly relevant 0, irrelevant 0, unjudged 0)",
        "mean score 0.50 over these 1, lower is better",
    ):
        assert said in output, said
    calls, _, told = output.splitlines()[-1].partition(" ")
    assert (int(calls) <= 5, told) == (True, "calls to the judge in all: metrics share steps")


def test_a_gate_knows_which_way_a_metric_is_good(records: str) -> None:
    fail_under = "0.6"
    code = 1
    result = run(
        "evaluate", records, "--judge", "scripted", "--metrics", "hallucination", "--fail-under", fail_under
    )
    assert result.exit_code == code
    assert ("must stay at 0.4 or below, and the mean is 0.5\n" in result.stderr) is bool(code)
