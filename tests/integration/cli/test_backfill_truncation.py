"""``ragtrace backfill`` of texts that were cut on their way."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.backends import open_sink
from ragtrace.traces.otlp import decode_json, encode, encode_json
from ragtrace.traces.trace import Span
from tests.backends.process import eventually
from tests.backends.tempo_server import Tempo
from tests.integration.cli.program import json_lines, run
from tests.rag_spans import rag_trace

WHOLE, CUT = "Refunds take 14 days.", "Orders are packed by hand. " * 100


def trace(number: int, *chunks: str, cut: int | None = None, start_ns: int | None = None) -> list[Span]:
    """Return a trace whose chunks stand in one JSON string, cut after so many characters."""
    documents = json.dumps([{"id": f"c{rank}", "content": text} for rank, text in enumerate(chunks)])[:cut]
    spans = rag_trace(number, **({} if start_ns is None else {"start_ns": start_ns}))
    return [
        replace(span, attributes={**span.attributes, semconv.RAG_DOCUMENTS: documents})
        if semconv.RAG_DOCUMENTS in span.attributes
        else span
        for span in spans
    ]


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text("{}")
    return f"scripted:{tmp_path / 'script.json'}"


def backfill(source: str, out: Path, judge: str, *args: str) -> tuple[dict[str, Any], list[Span]]:
    """Return the report and the carriers."""
    to = ("--to", f"otlp-file:{out}", "--judge", judge, "--json")
    (report,) = json_lines(run("backfill", "--from", source, *to, *args).stdout)
    return report, [span for line in out.read_text().splitlines() for span in decode_json(line)]


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A whole context, one of which a chunk is whole, and one of which none is."""
    stored = [trace(0, WHOLE), trace(1, WHOLE, CUT, cut=2_048), trace(2, CUT, cut=2_048)]
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(f"{encode_json(spans)}\n" for spans in stored))
    return f"otlp-file:{file}"


def test_what_was_cut_is_ineligible_and_says_so(source: str, scripted: str, tmp_path: Path) -> None:
    report, carriers = backfill(source, tmp_path / "out.jsonl", scripted)
    assert (report["judged"], report["ineligible"]) == (1, {"truncated": 2})
    reasons = [span.attributes.get(semconv.EVAL_SKIP_REASON) for span in carriers]
    assert reasons == [None, "truncated", "truncated"]


def test_on_request_whole_chunks_are_judged_and_the_verdict_is_marked(
    source: str, scripted: str, tmp_path: Path
) -> None:
    report, carriers = backfill(
        source, tmp_path / "out.jsonl", scripted, "--set", "evaluate.metrics.*.options.judge_truncated=true"
    )
    assert (report["judged"], report["ineligible"]) == (2, {"truncated": 1})
    marks = [span.attributes.get(semconv.EVAL_INPUT_TRUNCATED) for span in carriers]
    assert marks == [False, True, False]
    assert carriers[1].attributes["ragtrace.label.faithfulness"] == "pass"


def test_a_list_whose_elements_an_sdk_cut_is_judged_without_them(scripted: str, tmp_path: Path) -> None:
    documents = [json.dumps({"id": f"c{rank}", "content": text}) for rank, text in enumerate((WHOLE, CUT))]
    cut = tuple(each[:200] for each in documents)
    spans = [
        replace(span, attributes={**span.attributes, semconv.RAG_DOCUMENTS: cut})
        if semconv.RAG_DOCUMENTS in span.attributes
        else span
        for span in rag_trace(0)
    ]
    file = tmp_path / "traces.jsonl"
    file.write_text(encode_json(spans))
    report, _ = backfill(f"otlp-file:{file}", tmp_path / "out.jsonl", scripted)
    assert (report["judged"], report["ineligible"]) == (0, {"truncated": 1})
    report, carriers = backfill(
        f"otlp-file:{file}",
        tmp_path / "out.jsonl",
        scripted,
        "--set",
        "evaluate.metrics.*.options.judge_truncated=true",
    )
    assert report["judged"] == 1
    assert carriers[-1].attributes[semconv.EVAL_INPUT_TRUNCATED] is True


@pytest.mark.slow
def test_what_tempo_cut_is_found_out(tempo: Tempo, scripted: str, tmp_path: Path) -> None:
    number, start_ns = 0x7A0C, time.time_ns() - 20 * 10**9
    spans = trace(number, WHOLE, CUT, start_ns=start_ns)
    stored = spans[0].trace_id
    asyncio.run(_send(tempo.otlp_http, spans))
    eventually(lambda: tempo.trace(stored) is not None, what="the trace in Tempo")
    named = (f"tempo:{tempo.url}", tmp_path / "out.jsonl", scripted, "--trace-id", stored)
    report, _ = backfill(*named)
    assert (report["judged"], report["ineligible"]) == (0, {"truncated": 1})
    report, carriers = backfill(*named, "--set", "evaluate.metrics.*.options.judge_truncated=true")
    assert (report["judged"], report["ineligible"]) == (1, {})
    assert carriers[-1].attributes[semconv.EVAL_INPUT_TRUNCATED] is True


async def _send(endpoint: str, spans: list[Span]) -> None:
    sink = open_sink(endpoint)
    await sink.send(encode(spans))
    await sink.aclose()
