"""``ragtrace explain``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.traces.otlp import encode, parse_request, split_by_trace
from ragtrace.traces.trace import Trace
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.integration.cli.program import json_lines, run
from tests.unit.backfill.stored_traces import CHUNK, RIGHT, plain_trace, rag_trace, trace_id, write_traces

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces.jsonl", [rag_trace(0), rag_trace(1, None), plain_trace(2)])


def test_each_part_is_shown_with_the_span_and_attribute_it_came_from(traces: Path) -> None:
    output = run("explain", str(traces), columns=200).stdout
    assert f"answer: {RIGHT}" in output
    assert "from span 'ask' (0000000000000001), ragtrace.answer [ragtrace]: " in output
    assert f"- faq-12: {CHUNK}" in output
    assert "from span 'retrieval faq' (0000000000000002), ragtrace.retrieval.documents [ragtrace]: " in output


def test_what_was_passed_over_is_named_with_the_rule(tmp_path: Path) -> None:
    recording = json.loads((RECORDINGS / "langfuse.langfuse-langchain.json").read_text())
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps(recording["trace"]))
    output = run("explain", str(traces), columns=200).stdout
    assert "not from 'ChatOpenAI': the answer of the RAG call itself comes first" in output
    (found,) = json_lines(run("explain", str(traces), "--json").stdout)
    passed_over = {(each["part"], each["span_name"]) for each in found["records"][0]["passed_over"]}
    assert ("answer", "ChatOpenAI") in passed_over


def test_gaps_and_traces_without_a_record_are_explained(traces: Path) -> None:
    output = run("explain", str(traces), columns=200).stdout
    assert "answer: missing" in output
    assert "gap, no_content: " in output
    assert "note: no span follows a convention that ragtrace reads" in output


def test_lines_are_wrapped_to_the_columns_there_are(traces: Path) -> None:
    columns = 60
    output = run("explain", str(traces), columns=columns).stdout
    assert max(map(len, output.splitlines())) <= columns


def test_machines_get_a_line_a_trace(traces: Path) -> None:
    whole, damaged, plain = json_lines(run("explain", f"otlp-file:{traces}", "--json").stdout)
    assert whole["trace_id"] == trace_id(0)
    assert whole["records"][0]["answer"] == RIGHT
    assert {"answer", "context", "question"} == {each["part"] for each in whole["records"][0]["provenance"]}
    assert damaged["records"][0]["gaps"][0]["reason"] == "no_content"
    assert (plain["records"], len(plain["notes"])) == ([], 1)


def test_a_file_without_spans_is_told_from_one_that_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    result = run("explain", str(tmp_path / "records.jsonl"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no spans: " in result.stderr


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Path]:
    """A store as a running collector has it open."""
    opened = await Store.open(SqliteFile(tmp_path / "ragtrace.db"), max_bytes=1 << 30)
    request = parse_request(encode(rag_trace(0).spans), encoding="protobuf")
    await opened.append(split_by_trace(request).slices, forward={}, now_ns=1)
    yield tmp_path / "ragtrace.db"
    await opened.aclose()


async def test_a_trace_that_the_store_does_not_have_is_exit_code_1(store: Path) -> None:
    result = await asyncio.to_thread(run, "explain", trace_id(9), "--from", f"store:{store}")
    assert result.exit_code == 1
    assert f"store:{store} has no trace {trace_id(9)}" in result.stderr


def test_what_was_retrieved_and_not_shown_to_the_model_is_said(tmp_path: Path) -> None:
    shown, hidden = "Pumps need 300 liters of water a day.", "Valves are closed at night."
    documents = json.dumps([{"id": "p", "content": shown}, {"id": "v", "content": hidden}])
    prompt = json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": f"Context: {shown}\n\nHow much water?"}]}]
    )
    call, retrieval = rag_trace(0).spans
    model = replace(
        call,
        span_id="00000000000000aa",
        parent_span_id=call.span_id,
        attributes={"gen_ai.operation.name": "chat", "gen_ai.input.messages": prompt},
    )
    asked = replace(retrieval, attributes={**retrieval.attributes, "ragtrace.retrieval.documents": documents})
    traces = write_traces(tmp_path / "traces.jsonl", [Trace.of(trace_id(0), [call, asked, model])])
    output = run("explain", str(traces), columns=200).stdout
    assert f"- v: {hidden}\n        not in the model's prompt\n" in output
    assert output.count("in the model's prompt") == 1
    (found,) = json_lines(run("explain", str(traces), "--json").stdout)
    assert [each["shown_chars"] for each in found["records"][0]["contexts"]] == [None, 0]


def test_text_under_judgment_cannot_steer_the_terminal(tmp_path: Path) -> None:
    traces = write_traces(tmp_path / "traces.jsonl", [rag_trace(0, "Yes.\x1b[2J\x07\u202eevil")])
    output = run("explain", str(traces)).stdout
    assert "Yes." in output
    assert not set(output) & set("\x1b\x07\u202e")
