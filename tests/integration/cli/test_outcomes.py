"""What people see of several metrics at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.program import json_lines, run

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


@pytest.fixture
def output(records: str) -> str:
    return run("evaluate", records, "--judge", "scripted", "--metrics", METRICS).stdout


def test_the_record_is_a_heading_and_each_metric_a_row(output: str) -> None:
    lines = [line.rstrip() for line in output.partition("\n\n")[0].splitlines()]
    assert lines[0].split() == ["id,", "metric", "score", "label", "explanation"]
    assert lines[1] == "returns"
    assert [line.split()[0] for line in lines if line[:2] == "  " and line[2] != " "] == METRICS.split(",")
    assert max(map(len, lines)) <= 80


def test_what_several_metrics_count_is_shown_once(output: str) -> None:
    assert output.count("contradicted  Orders can be returned within 30 days.") == 1
    assert output.count("unsupported   Our cat is called Tom.") == 1
    assert output.count("chunk 2, faq-3: The shop is open") == 1


def test_a_sentence_of_the_reference_is_told_from_a_claim(output: str) -> None:
    assert "unsupported   reference: Refunds go to the card." in output


def test_the_summary_counts_chunks_and_statements_in_their_own_words(output: str) -> None:
    assert "chunks   2 (relevant 0, partly relevant 0, irrelevant 2, unjudged 0)" in output
    assert "claims   2 (relevant 2, partly relevant 0, irrelevant 0, unjudged 0)" in output
    assert "mean score 0.50 over these 1, lower is better" in output


def test_the_calls_of_steps_that_metrics_share_are_counted_once_in_all(output: str) -> None:
    assert output.splitlines()[-1].endswith("to the judge in all: metrics share steps")
    assert int(output.splitlines()[-1].split()[0]) <= 5


@pytest.mark.parametrize(("fail_under", "code"), [("0.5", 0), ("0.6", 1)])
def test_a_gate_knows_which_way_a_metric_is_good(records: str, fail_under: str, code: int) -> None:
    result = run(
        "evaluate", records, "--judge", "scripted", "--metrics", "hallucination", "--fail-under", fail_under
    )
    assert result.exit_code == code
    assert ("must stay at 0.4 or below, and the mean is 0.5\n" in result.stderr) is bool(code)


def test_machines_get_the_verdicts_on_chunks(records: str) -> None:
    lines = json_lines(
        run("evaluate", records, "--judge", "scripted", "--metrics", "chunk_precision", "--json").stdout
    )
    assert [verdict["chunk_id"] for verdict in lines[0]["chunk_verdicts"]] == ["faq-12", "faq-3"]
    assert lines[0]["chunk_verdicts"][0]["label"] == "irrelevant"
