"""Streamed answers under `ragtrace.instrument()`: judged if they were read whole, else the reason is told.

They are of capture as it is: when that changes, `python -m tests.recordings ragtrace.` makes them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import json_lines, run
from tests.recordings.scenarios import SCENARIOS

FOLDER = Path(__file__).parents[1] / "data" / "recordings" / "streams"
PRODUCERS = ("openai-chat", "openai-responses", "langchain", "llamaindex", "pydantic-ai")
READER_LEFT = "reader went away"
STREAM_FAILED = "broke off with an error"
EXPECTED = {"whole": None, "left": READER_LEFT, "cancelled": READER_LEFT, "broken": STREAM_FAILED}
"""What a person expects of each ending: the reason for which the answer is not judged, if it is not."""
_HALF = "an error on the spans of the call is not taken for the end of its stream: half an answer is judged"
_SPLITTER = "the root was never ended, and spans of a text splitter without a parent are taken for calls"
NOT_YET = {
    "langchain-broken": _HALF,
    "llamaindex-left": _SPLITTER,
    "llamaindex-cancelled": _SPLITTER,
    "llamaindex-broken": _HALF,
    "pydantic-ai-broken": _HALF,
}


def cases() -> list[Any]:
    return [
        pytest.param(
            f"{producer}-{ending}",
            reason,
            marks=pytest.mark.xfail(reason=NOT_YET[name], strict=True) if name in NOT_YET else (),
            id=name,
        )
        for producer in PRODUCERS
        for ending, reason in EXPECTED.items()
        for name in [f"{producer}-{ending}"]
    ]


def test_every_stream_is_recorded() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == {
        scenario.name for scenario in SCENARIOS.values() if scenario.kind == "streams"
    }


@pytest.mark.parametrize(("name", "reason"), cases())
def test_stream_is_judged_if_it_was_read_whole_and_else_the_reason_is_told(
    name: str, reason: str | None, tmp_path: Path
) -> None:
    recording = json.loads((FOLDER / f"ragtrace.{name}.json").read_text(encoding="utf-8"))
    truth = recording["truth"]
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps(recording["trace"]))
    (shown,) = json_lines(run("explain", str(traces), "--json").stdout)
    (record,) = shown["records"]
    assert record["question"] == truth["question"]
    assert [chunk["text"] for chunk in record["contexts"]] == [chunk["text"] for chunk in truth["chunks"]]
    gaps = [(gap["part"], gap["reason"]) for gap in record["gaps"]]
    if reason is None:
        assert (record["answer"], gaps) == (truth["answer"], [])
    else:
        assert gaps == [("answer", "incomplete")]
        assert reason in record["gaps"][0]["detail"]
