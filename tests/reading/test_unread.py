"""Traces that nothing reads: what is there is said, and the mapping that is proposed works when it is pasted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragtrace.traces.otlp import encode_json
from tests.integration.cli.program import run
from tests.reading.cases import PAID, A, Q
from tests.reading.kinds import Node, chat, dumped, node, parts, spans_of, tool

FLAT = node(
    "ask",
    {"acme.user_question": Q, "acme.reply": A, "acme.hits": dumped([{"text": PAID}]), "http.url": "a b c"},
)
NESTED = node("ask", {"acme.io": dumped({"in": {"question": Q}, "out": {"answer": A}, "docs": [PAID]})})
IN_EVENTS = node("ask", {}, events=(("turn", {"acme.query": Q, "acme.output": A, "acme.context": [PAID]}),))


@pytest.mark.parametrize("root", [FLAT, NESTED, IN_EVENTS], ids=["flat", "nested", "in events"])
def test_the_proposed_mapping_reads_the_trace(root: Node, tmp_path: Path) -> None:
    file, mapping = tmp_path / "traces.jsonl", tmp_path / "mapping.yaml"
    file.write_text(encode_json(spans_of("unread", root)), encoding="utf-8")
    shown = json.loads(run("explain", str(file), "--json").stdout)
    assert shown["records"] == []
    assert shown["unread"]["producer"] == "app"
    mapping.write_text(json.dumps({"extract": {"mapping": shown["unread"]["mapping"]}}), encoding="utf-8")
    (record,) = json.loads(run("explain", str(file), "--json", "--config", str(mapping)).stdout)["records"]
    assert (record["question"], record["answer"]) == (Q, A)
    assert [chunk["text"] for chunk in record["contexts"]] == [PAID]


def test_a_person_is_shown_the_mapping_on_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(encode_json(spans_of("unread", FLAT)), encoding="utf-8")
    shown = " ".join(run("explain", str(file), columns=400).stdout.split())
    assert "{question: [acme.user_question], context: [acme.hits], answer: [acme.reply]}" in shown


def test_a_trace_of_a_machine_is_not_unread(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    root = node(
        "GET /",
        {"http.route": "/a b", "db.statement": "select a from b", "exception.message": "no such thing"},
    )
    file.write_text(encode_json(spans_of("machine", root)), encoding="utf-8")
    assert json.loads(run("explain", str(file), "--json").stdout)["unread"] is None


def test_content_is_never_said_to_be_off_where_it_is_on(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    agent = {"gen_ai.operation.name": "invoke_agent", "acme.asked": Q, "acme.said": A}
    roots = (
        node("invoke_agent", agent, tool("search_docs", [PAID])),
        chat([parts("user", Q)], None, tool("search_docs", [PAID])),
    )
    for i, root in enumerate(roots):
        file.write_text(encode_json(spans_of(f"on-{i}", root)), encoding="utf-8")
        (record,) = json.loads(run("explain", str(file), "--json").stdout)["records"]
        details = [gap["detail"] for gap in record["gaps"] if gap["part"] in ("question", "answer")]
        assert details
        assert not any("turn on content" in each or "CAPTURE_MESSAGE_CONTENT" in each for each in details)
