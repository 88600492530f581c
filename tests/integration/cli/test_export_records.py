"""``ragtrace export-records``: from production to a file that `evaluate` and `calibrate` read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from click.testing import Result

from ragtrace.answers.summary import AnswerKey
from ragtrace.model import Chunk, RagRecord, VerdictLabel
from ragtrace.reviews import Review, ReviewFile
from ragtrace_collector.service.collector import Collector
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.rag_spans import rag_trace

CHUNK = "Refunds take 14 days."
WRONG = "Refunds take 14 days. Shipping takes 3 days."
MAIL = "Refunds take 14 days. Write to ada@example.org within 3 days."
ANSWERS = [CHUNK, WRONG, CHUNK, MAIL, WRONG]


async def receive(collector: Collector, out: Path, number: int) -> None:
    spans = rag_trace(number, answer=ANSWERS[number], start_ns=time_ns())
    await post(collector, request_of(*spans))
    await until(lambda: out.exists() and out.read_bytes().count(b"ragtrace.schema") > number)


async def judged_in(folder: Path, **sections: Any) -> str:
    out = folder / "out.jsonl"
    export = [{"endpoint": f"otlp-file:{out}", "forward": True}]
    config = config_of(folder, judge={"use": "lexical"}, export=export, **sections)
    async with running_collector(config) as collector:
        for number in range(len(ANSWERS)):
            await receive(collector, out, number)
        await collector.pipeline._expire()
    return f"store:{folder}/store.db"


@pytest.fixture
async def store(tmp_path: Path) -> str:
    """Return a store: 1, 3 and 4 fail; 2 and 4 say again what others said."""
    return await judged_in(tmp_path)


async def export(*args: str) -> tuple[Result, list[dict[str, Any]]]:
    result = await asyncio.to_thread(run, "export-records", *args)
    return result, json_lines(result.stdout)


async def review(path: str, number: int, key: AnswerKey, label: VerdictLabel) -> None:
    file = ReviewFile(Path(path))
    said = Review(
        key=key,
        carrier_span_id="c",
        claim=ANSWERS[number],
        start=0,
        end=9,
        verdict=VerdictLabel.SUPPORTED,
        label=label,
        time_ns=1,
    )
    record = RagRecord(
        id="r",
        question="How long do refunds take?",
        chunks=(Chunk(id="faq", text=CHUNK),),
        answer=ANSWERS[number],
    )
    await file.add([said], record=record, claims=1)
    await file.aclose()


def key_of(row: dict[str, Any]) -> AnswerKey:
    return AnswerKey(*row["id"].split(":"))


async def test_failed_answers_become_records_each_text_once(store: str) -> None:
    result, rows = await export("--failed", "--from", store)
    assert result.exit_code == 0, result.stderr
    assert sorted(row["answer"] for row in rows) == sorted([WRONG, MAIL])
    assert {row["question"] for row in rows} == {"How long do refunds take?"}
    assert rows[0]["contexts"][0]["text"] == CHUNK
    assert "2 answers with 0 labeled claims" in result.stderr
    assert "left out: 1 answer with question and answer of another" in result.stderr


async def test_evaluate_and_calibrate_read_the_file_without_a_word(store: str) -> None:
    _, rows = await export("--sample", "9", "--from", store)
    by_answer = {row["answer"]: key_of(row) for row in rows}
    await review("reviews.db", 0, by_answer[CHUNK], VerdictLabel.SUPPORTED)
    await review("reviews.db", 1, by_answer[WRONG], VerdictLabel.UNSUPPORTED)
    options = ("--reviews", "reviews.db", "--failed", "--reviewed", "--from", store, "--out", "set.jsonl")
    result, _ = await export(*options)
    assert "3 answers with 2 labeled claims; people and judge agree on 1 of 2 claims" in result.stderr

    def read_back() -> None:
        evaluated = run("evaluate", "set.jsonl", "--judge", "scripted", "--json")
        assert (evaluated.exit_code, evaluated.stderr) == (0, "judge: scripted (scripted)\n")
        assert len(json_lines(evaluated.stdout)) == 3
        calibrated = run("calibrate", "set.jsonl", "--judge", "scripted")
        assert calibrated.exit_code == 0
        assert "warning" not in calibrated.stderr
        assert "left out" not in calibrated.stderr
        assert "2 claims" in calibrated.stdout

    await asyncio.to_thread(read_back)


async def test_a_sample_is_the_same_each_time_and_says_with_which_probability(store: str) -> None:
    first, rows = await export("--sample", "2", "--from", store)
    again, _ = await export("--sample", "2", "--from", store)
    assert first.stdout == again.stdout
    assert [row["sample_probability"] for row in rows] == pytest.approx([2 / 5] * len(rows))


async def test_of_answers_alike_one_stands_for_all(store: str) -> None:
    _, rows = await export("--sample", "5", "--from", store)
    stands_for = {row["answer"]: 1 / row["sample_probability"] for row in rows}
    assert stands_for == {CHUNK: 2.0, WRONG: 2.0, MAIL: 1.0}


async def test_texts_are_redacted_as_the_environment_says(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGTRACE_CAPTURE_CONTENT", "redacted")
    result, rows = await export("--failed", "--from", store)
    assert result.exit_code == 0, result.stderr
    assert "ada@example.org" not in result.stdout
    assert "Refunds take 14 days. Write to <EMAIL_1> within 3 days." in [row["answer"] for row in rows]
    monkeypatch.setenv("RAGTRACE_CAPTURE_CONTENT", "off")
    refused, _ = await export("--failed", "--from", store)
    assert (refused.exit_code, "records without texts cannot be judged" in refused.stderr) == (2, True)


@pytest.mark.parametrize("advice", [("--set", "index.content=false"), ()])
async def test_without_texts_it_says_where_they_may_be(tmp_path: Path, advice: tuple[str, ...]) -> None:
    quick = {"quiet_period": "50ms", "deadline": "2s", "linger": "0s"}
    store = await judged_in(tmp_path, index={"content": False}, assemble=quick)
    result, rows = await export("--failed", "--from", store, *advice)
    assert (result.exit_code, rows) == (2, [])
    assert "3 chosen answers, and the texts of none are there" in result.stderr
    assert "ui.traces" in result.stderr
