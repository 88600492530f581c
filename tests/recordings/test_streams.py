"""Streamed answers: judged if they were read whole, else who ended them is told, everywhere the same.

Those of ragtrace are of capture as it is: when that changes, `python -m tests.recordings ragtrace.` makes
them again.
"""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import config_of, post, running_collector
from tests.patience import PATIENCE_S
from tests.recordings.scenarios import SCENARIOS

FOLDER = Path(__file__).parents[1] / "data" / "recordings" / "streams"
READER_LEFT = ("incomplete", "its reader went away before the end")
STREAM_FAILED = ("incomplete", "broke off with an error")
EXPECTED = {"whole": None, "left": READER_LEFT, "cancelled": READER_LEFT, "broken": STREAM_FAILED}
"""What a person expects of each ending: the reason for which the answer is not judged, if it is not."""
WITHOUT_TEXT = {
    "openllmetry.langchain-broken": ("failed_call", "ended in an error and no answer was recorded")
}
"""Of those nothing came before the error that was recorded: neither a text nor that it was streamed."""
UNREAD = "openllmetry.openai-responses-broken"  # its span has no operation, no prompt and no answer
STREAMS = sorted(name for name, each in SCENARIOS.items() if each.kind == "streams" and name != UNREAD)


class Told(NamedTuple):
    """What a running collector tells of an answer."""

    row: Mapping[str, Any]
    """On the list of answers."""
    page: str
    why: Mapping[str, Any]


def recording(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def reason_of(name: str) -> tuple[str, str] | None:
    return WITHOUT_TEXT.get(name, EXPECTED[name.rpartition("-")[2]])


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Any]]:
    """Return the records that `ragtrace explain` reads, by recording."""
    traces, found = tmp_path_factory.mktemp("explained") / "traces.jsonl", {}
    for name in (*STREAMS, UNREAD):
        traces.write_text(json.dumps(recording(name)["trace"]))
        shown = json_lines(run("explain", str(traces), "--json").stdout)
        found[name] = [record for each in shown for record in each["records"]]
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Told]:
    """Send all of them to one collector; return what it tells, by trace."""
    folder = tmp_path_factory.mktemp("collector")
    rows, pages = asyncio.run(_judged(folder))
    return {
        row["trace_id"]: Told(
            row,
            page,
            json.loads(run("why", row["trace_id"], "--from", f"store:{folder}/store.db", "--json").stdout),
        )
        for row, page in zip(rows, pages, strict=True)
    }


async def _judged(folder: Path) -> tuple[list[Any], list[str]]:
    async with (
        running_collector(config_of(folder, ui={"listen": "127.0.0.1:0"})) as collector,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.ui.port}", timeout=PATIENCE_S) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        for name in (*STREAMS, UNREAD):
            body = json.dumps(recording(name)["trace"]).encode()
            assert (await post(collector, body, {"content-type": "application/json"})).status_code == 200
        rows: list[Any] = []
        while len(rows) < len(STREAMS):
            await asyncio.sleep(0.1)  # the collector's work
            rows = json_lines((await client.get("/answers.jsonl")).text)
        pages = [(await client.get(f"/answers/{row['trace_id']}/{row['span_id']}")).text for row in rows]
        return rows, pages


def test_every_stream_is_recorded() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == {*STREAMS, UNREAD}


def test_stream_is_judged_if_it_was_read_whole_and_else_the_reason_is_told(
    explained: Mapping[str, list[Any]],
) -> None:
    for name in STREAMS:
        truth = recording(name)["truth"]
        (record,) = explained[name]
        texts = [chunk["text"] for chunk in record["contexts"]]
        assert record["question"] == truth["question"], name
        assert texts == [chunk["text"] for chunk in truth["chunks"]], name
        if (reason := reason_of(name)) is None:
            assert (record["answer"], record["gaps"]) == (truth["answer"], []), name
        else:
            (gap,) = record["gaps"]
            assert (gap["part"], gap["reason"]) == ("answer", reason[0]), name
            assert reason[1] in gap["detail"], name


def test_a_stream_that_broke_off_before_anything_was_recorded_is_no_answer(
    explained: Mapping[str, list[Any]],
) -> None:
    assert explained[UNREAD] == []


@pytest.mark.slow
def test_collector_judges_whole_streams_and_tells_of_others_what_explain_tells(
    told: Mapping[str, Told], explained: Mapping[str, list[Any]]
) -> None:
    for name in STREAMS:
        (record,) = explained[name]
        row, page, why = told[record["id"].partition(":")[0]]
        (answer,) = why["answers"]
        if (reason := reason_of(name)) is None:
            assert (row["label"], answer["state"]) == ("pass", "judged"), name
        else:
            assert (row["label"], row["reason"]) == ("skipped", reason[0]), name
            assert (answer["state"], answer["reason"]) == ("ineligible", reason[0]), name
            assert record["gaps"][0]["detail"] in html.unescape(page), name
