"""Back-fill from a real Jaeger into the same Jaeger."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ragtrace.backends import open_sink
from ragtrace.traces.otlp import encode
from tests.backends.jaeger_server import Jaeger
from tests.integration.cli.program import json_lines, run
from tests.unit.backfill.stored_traces import WRONG, rag_trace, trace_id
from tests.unit.reports.reading import Page


async def store(jaeger: Jaeger, number: int) -> str:
    sink = open_sink(jaeger.otlp_http)
    await sink.send(encode(rag_trace(number, WRONG).spans))
    await sink.aclose()
    return trace_id(number)


async def test_a_stored_answer_gets_its_verdict_once_and_without_a_warning(
    jaeger: Jaeger, tmp_path: Path
) -> None:
    (tmp_path / "script.json").write_text("{}")
    stored = await store(jaeger, 0xBF)
    await asyncio.to_thread(jaeger.wait_for_trace, stored, spans=2)
    args = (
        "backfill",
        "--from",
        f"jaeger:{jaeger.query_url}",
        "--trace-id",
        stored,
        "--to",
        jaeger.otlp_grpc,
        "--judge",
        f"scripted:{tmp_path / 'script.json'}",
        "--json",
    )
    (first,) = json_lines((await asyncio.to_thread(run, *args)).stdout)
    trace = await asyncio.to_thread(jaeger.wait_for_trace, stored, spans=3)
    (second,) = json_lines((await asyncio.to_thread(run, *args)).stdout)

    assert (first["sent"], second["sent"], second["already_evaluated"]) == (1, 0, 1)
    (carrier,) = [span for span in trace["spans"] if span["operationName"] == "evaluation fail"]
    assert carrier["references"][0]["spanID"] == "0000000000000001"
    assert [span["warnings"] for span in trace["spans"]] == [None, None, None]


async def test_a_trace_in_the_page_leads_to_jaegers_own(jaeger: Jaeger, tmp_path: Path) -> None:
    stored, page = await store(jaeger, 0xDF), tmp_path / "report.html"
    await asyncio.to_thread(jaeger.wait_for_trace, stored, spans=2)
    source = ("--from", f"jaeger:{jaeger.query_url}/", "--trace-id", stored)
    into = ("--to", f"otlp-file:{tmp_path / 'verdicts'}", "--out", str(page))
    result = await asyncio.to_thread(run, "backfill", *source, *into, "--judge", "lexical")
    assert result.exit_code == 0
    assert ("href", f"{jaeger.query_url}/trace/{stored}") in Page(page).attributes
