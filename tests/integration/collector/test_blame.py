"""The cause of a bad answer, from the spans of its pipeline to the carrier, the page and the files."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from ragtrace import semconv
from ragtrace.answers.carrier import read_carrier
from ragtrace.answers.port import AnswerFilter
from ragtrace.model import BlameClass
from ragtrace.traces.extract import extract_records
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.test_ui_service import judged, page_of
from tests.unit.scoring.faulty_pipelines import Pipeline, pipeline


def script_of(built: Pipeline, folder: Path) -> str:
    """Write what the judge knows; return its name."""
    script = folder / "script.json"
    relevance = {text: 2 if text in built.relevant else 0 for text in built.retrieved}
    script.write_text(json.dumps({"chunks": relevance}), "utf-8")
    return f"scripted:{script}"


@pytest.mark.parametrize("fault", [BlameClass.RERANK_DROP, BlameClass.TRUNCATED_CONTEXT])
async def test_people_find_an_answer_by_its_cause_and_see_the_evidence(
    tmp_path: Path, fault: BlameClass
) -> None:
    built = pipeline(fault, Random(11))
    config = config_of(
        tmp_path,
        judge={"use": script_of(built, tmp_path)},
        evaluate={"metrics": ["faithfulness", "chunk_precision"]},
        ui={"listen": "127.0.0.1:0"},
    )
    trace = built.trace(0)
    async with running_collector(config) as collector, page_of(collector) as client:
        await post(collector, request_of(*trace.spans))
        (path,) = await judged(client)
        page = (await client.get(path)).text
        listed = await client.get(f"/answers.jsonl?blame={fault.value}")
        others = await client.get("/answers.jsonl?blame=fabricated")
        (carrier,) = await until(lambda: carriers_in(tmp_path / "out.jsonl"))
        index = collector.pipeline.store.answers
        (row,) = (await index.page(AnswerFilter(blame=fault.value))).answers
    assert (carrier.attributes[semconv.BLAME_CLASS], row.blame) == (fault.value, fault.value)
    (event,) = [event.attributes for event in carrier.events if event.name == semconv.BLAME_EVENT]
    assert event[semconv.BLAME_CHUNK_IDS]
    assert f"<b>{fault.value.replace('_', ' ')}</b>" in page
    assert (len(listed.text.splitlines()), others.text) == (1, "")
    (record,) = extract_records(trace).records
    told = read_carrier(carrier, record).judged.evaluation.blame
    assert (told.primary, told.faults[0].chunk_ids) == (fault, event[semconv.BLAME_CHUNK_IDS])


async def test_the_carrier_has_no_quote_without_content(tmp_path: Path) -> None:
    built = pipeline(BlameClass.CONTRADICTED_CONTEXT, Random(13))
    config = config_of(tmp_path, judge={"use": script_of(built, tmp_path)}, attach={"content": False})
    async with running_collector(config) as collector:
        await post(collector, request_of(*built.trace(0).spans))
        (carrier,) = await until(lambda: carriers_in(tmp_path / "out.jsonl"))
    assert carrier.attributes[semconv.BLAME_CLASS] == "contradicted_context"
    assert "pump needs" not in repr(carrier)
