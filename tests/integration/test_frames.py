"""`ragtrace.evaluate_records`: frames of pandas and polars in and out, lists, bad rows and notebooks."""

from __future__ import annotations

import asyncio
from typing import Any

import pandas as pd
import polars as pl
import pytest

import ragtrace
from ragtrace.errors import InputError
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.model import RagRecord

ROWS: list[dict[str, Any]] = [
    {
        "question": "How long do refunds take?",
        "contexts": ["Refunds take 14 days.", "We sell shoes."],
        "answer": "Refunds take 14 days.",
    },
    {
        "question": "How long do refunds take?",
        "contexts": ["Refunds take 14 days."],
        "answer": "Refunds take 30 days.",
    },
]


def judged(frame: Any, **options: Any) -> Any:
    return ragtrace.evaluate_records(frame, judge=options.pop("judge", "scripted"), **options)


def test_a_frame_of_pandas_gets_columns_of_the_results_and_keeps_its_index() -> None:
    frame = pd.DataFrame(ROWS, index=["first", "second"])
    result = judged(frame, metrics=["faithfulness", "context_relevance"])
    assert isinstance(result, pd.DataFrame)
    assert list(result.index) == ["first", "second"]
    assert list(result.columns) == [
        *(*frame.columns, "faithfulness", "faithfulness_label", "faithfulness_explanation"),
        *("faithfulness_wrong_claims", "context_relevance", "context_relevance_label"),
        *("context_relevance_explanation", "context_relevance_wrong_claims", "ragtrace_error"),
    ]
    assert list(result["faithfulness"]) == [1.0, 0.0]
    assert list(result["faithfulness_label"]) == ["pass", "fail"]
    assert result["faithfulness_wrong_claims"]["second"] == ["Refunds take 30 days."]
    assert result["faithfulness"].mean() == 0.5
    assert "faithfulness" not in frame


def test_a_frame_of_polars_gets_typed_columns() -> None:
    result = judged(pl.DataFrame(ROWS))
    assert isinstance(result, pl.DataFrame)
    assert result["faithfulness"].to_list() == [1.0, 0.0]
    assert result.schema["faithfulness"] == pl.Float64
    assert result.schema["faithfulness_wrong_claims"] == pl.List(pl.String)
    assert result.filter(pl.col("faithfulness_label") == "fail")["faithfulness_wrong_claims"].to_list() == [
        ["Refunds take 30 days."]
    ]


def test_a_list_gives_a_list_with_everything_in_it() -> None:
    first, second = judged([ROWS[0], RagRecord.of(**ROWS[1])])
    assert first.record.question == ROWS[0]["question"]
    assert [outcome.score for outcome in second.evaluation.results] == [0.0]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_bad_row_is_told_and_stops_nothing(kind: Any) -> None:
    rows = [
        ROWS[0] | {"id": "a"},
        {**ROWS[1], "contexts": None, "id": "b"},
        ROWS[1] | {"id": "a"},
        ROWS[1] | {"id": "d"},
    ]
    result = judged(kind(rows))
    labels, errors = list(result["faithfulness_label"]), list(result["ragtrace_error"])
    assert labels[0] == "pass"
    assert labels[1] == "skipped"
    assert labels[3] == "fail"
    assert "row 3: field `id`: 'a' is already used at row 1" in errors[2]
    assert [bool(isinstance(error, str)) for error in errors] == [False, False, True, False]
    scores = result["faithfulness"].to_list()
    assert [score is None or score != score for score in scores] == [False, True, True, False]


async def test_it_works_inside_a_running_loop_and_in_a_thread() -> None:
    sync = await asyncio.to_thread(judged, pd.DataFrame(ROWS))
    inside = judged(pd.DataFrame(ROWS))  # as in a cell of Jupyter
    assert list(sync["faithfulness"]) == list(inside["faithfulness"])


def test_a_failure_of_the_judge_is_an_error_and_no_score() -> None:
    result = judged(pd.DataFrame(ROWS), judge=ScriptedJudge(Script(error="judge_timeout")))
    assert list(result["faithfulness_label"]) == ["error", "error"]
    assert result["faithfulness"].isna().all()


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ("a text", "a str: give a frame of pandas or polars, or a list of mappings"),
        (pl.DataFrame(ROWS).lazy(), "lazy frame: call `.collect()` first"),
        (pd.DataFrame(ROWS).assign(faithfulness=1.0), "has a column `faithfulness` already"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_frame_is_refused(records: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        judged(records)
    assert said in str(caught.value)
