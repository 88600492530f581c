"""``ragtrace backfill`` of texts that were cut on their way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode_json
from ragtrace.traces.trace import Span
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
