"""Recorded spans and log records of real instrumentations, sent in either order: judged on what was said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.cli.program import run
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.test_log_records import SCORE, send_logs
from tests.unit.traces.recordings import FOLDER, Recording, all_recordings

pytestmark = pytest.mark.slow

LOGS = {file.name.removesuffix(".logs.jsonl"): file for file in sorted(FOLDER.glob("*.logs.jsonl"))}
RECORDINGS = tuple(each for each in all_recordings() if each.name in LOGS)
WITHOUT_PASSAGES = {f"otel-genai.{agent}.events" for agent in ("langchain-agent", "llamaindex-agent")} | {
    f"otel-genai.openai-agents{how}.events" for how in ("", "-streaming")
}
"""What their tools found is in no log record, and in no attribute."""


def trace_of(recording: Recording) -> str:
    return recording.spans[0].trace_id


@pytest.mark.parametrize(
    "order",
    [pytest.param(("spans", "logs"), marks=pytest.mark.night), ("logs", "spans")],
    ids=" before ".join,
)
async def test_each_is_judged_on_its_question_its_passages_and_its_answer(
    tmp_path: Path, order: Sequence[str]
) -> None:
    written = tmp_path / "out.jsonl"
    judged = {trace_of(each) for each in RECORDINGS if each.name not in WITHOUT_PASSAGES}
    async with running_collector(
        config_of(tmp_path, store={"path": str(tmp_path / "store.db")})
    ) as collector:
        for signal in order:
            for each in RECORDINGS:
                if signal == "spans":
                    await post(collector, request_of(*each.spans))
                    continue
                for line in LOGS[each.name].read_text("utf-8").splitlines():
                    assert (await send_logs(collector, line.encode(), "application/json")).json() == {}
        await until(
            lambda: {each.trace_id for each in carriers_in(written) if SCORE in each.attributes} >= judged
        )
        for each in RECORDINGS:
            place = ("--from", f"store:{tmp_path / 'store.db'}", "--json")
            shown = await asyncio.to_thread(run, "explain", trace_of(each), *place)
            (record,) = json.loads(shown.stdout)["records"]
            assert (record["question"], record["answer"]) == (each.question, each.answer), each.name
            context = "\n".join(chunk["text"] for chunk in record["contexts"])
            assert all(chunk["text"] in context for chunk in each.chunks) == (
                each.name not in WITHOUT_PASSAGES
            ), each.name
            if each.name in WITHOUT_PASSAGES:
                assert [gap["reason"] for gap in record["gaps"] if gap["part"] == "context"] == ["no_content"]
