"""Agents: what tools returned is context, where they retrieve."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from ragtrace.model import AttributeValue, Part, RagRecord, SkipReason
from ragtrace.traces.extract import AttributeMapping, ExtractRules, extract_records
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import a_span, a_trace, message, messages

OPERATION = "gen_ai.operation.name"
QUESTION, ANSWER = "How long can I return?", "14 days."
CHUNK = "Returns are free within 14 days."


def the_record(*spans: Span, tools: str | None = None) -> RagRecord:
    mapping = AttributeMapping(tools=re.compile(tools)) if tools else None
    (record,) = extract_records(a_trace(*spans), ExtractRules(mapping=mapping)).records
    return record


def agent() -> Span:
    said = {
        "gen_ai.input.messages": messages("user", QUESTION),
        "gen_ai.output.messages": messages("assistant", ANSWER),
    }
    return a_span(1, attributes={OPERATION: "invoke_agent", **said})


def tool(name: str, result: AttributeValue, *, at: tuple[int, int] = (10, 20), number: int = 2) -> Span:
    called = {OPERATION: "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.result": result}
    arguments = {"gen_ai.tool.call.arguments": '{"query": "return period"}'}
    return a_span(number, 1, at=at, attributes={**called, **arguments})


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(CHUNK, id="text"),
        pytest.param(json.dumps([{"id": "a", "text": CHUNK}]), id="documents"),
        pytest.param(json.dumps({"results": [{"content": CHUNK, "score": 0.4}]}), id="wrapped"),
        pytest.param(json.dumps({"output": {"kwargs": {"type": "tool", "content": CHUNK}}}), id="langchain"),
        pytest.param(json.dumps({"content": [{"type": "text", "text": CHUNK}], "isError": False}), id="mcp"),
        pytest.param(({"text": CHUNK},), id="structured"),
    ],
)
def test_result_of_a_retrieving_tool_is_context(result: AttributeValue) -> None:
    record = the_record(agent(), tool("search_docs", result))
    assert [chunk.text for chunk in record.chunks] == [CHUNK]
    assert record.retrieval_query == "return period"
    assert record.gaps == ()


def test_tool_of_an_mcp_server_is_a_tool() -> None:
    span = tool("search_docs", CHUNK)
    called = {**span.attributes, OPERATION: None, "mcp.method.name": "tools/call"}
    assert [chunk.text for chunk in the_record(agent(), replace(span, attributes=called)).chunks] == [CHUNK]


@pytest.mark.parametrize(
    "result", ["x" * 3_000, json.dumps([{"id": "a", "text": "first"}, {"text": "x" * 3_000}])]
)
def test_result_cut_by_tempo_is_truncated(result: str) -> None:
    gap = the_record(agent(), tool("search_docs", result[:2_048])).gap(Part.CONTEXT)
    assert gap is not None
    assert gap.reason is SkipReason.TRUNCATED


def test_object_without_a_text_is_context_as_the_model_saw_it() -> None:
    record = the_record(agent(), tool("lookup_order", '{"order": 7, "state": "sent"}'))
    assert [chunk.text for chunk in record.chunks] == ['{"order": 7, "state": "sent"}']


def test_other_tools_are_named_where_nothing_was_retrieved() -> None:
    record = the_record(agent(), tool("send_mail", "sent"))
    gap = record.gap(Part.CONTEXT)
    assert gap is not None
    assert gap.reason is SkipReason.NO_RETRIEVAL
    assert "'send_mail'" in gap.detail


def test_user_names_the_tools_that_retrieve() -> None:
    assert len(the_record(agent(), tool("send_mail", "sent"), tools="mail").chunks) == 1
    assert the_record(agent(), tool("search_docs", CHUNK), tools="mail").chunks == ()


def test_tools_of_several_hops_are_joined_in_order() -> None:
    second = tool("search_docs", "Refunds take 5 days.", at=(30, 40), number=3)
    texts = [chunk.text for chunk in the_record(agent(), tool("search_docs", CHUNK), second).chunks]
    assert texts == [CHUNK, "Refunds take 5 days."]


def test_retriever_inside_a_tool_gives_the_chunks() -> None:
    outer = tool("search_docs", f"{CHUNK}\n\nRefunds take 5 days.")
    found = json.dumps([{"id": "a", "content": CHUNK}, {"id": "b", "content": "Refunds take 5 days."}])
    inner = a_span(
        3, 2, at=(11, 19), attributes={OPERATION: "retrieval", "gen_ai.retrieval.documents": found}
    )
    assert [chunk.id for chunk in the_record(agent(), outer, inner).chunks] == ["a", "b"]


def test_tool_that_made_something_else_of_what_it_retrieved_is_the_context_itself() -> None:
    found = json.dumps([{"id": "a", "content": CHUNK}])
    inner = a_span(
        3, 2, at=(11, 19), attributes={OPERATION: "retrieval", "gen_ai.retrieval.documents": found}
    )
    record = the_record(agent(), tool("search_docs", "A fortnight."), inner)
    assert [chunk.text for chunk in record.chunks] == ["A fortnight."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CHUNK}\n\nRefunds take 5 days.", [("a", CHUNK), ("b", "Refunds take 5 days.")]),
        (f"{CHUNK}\n\nRefunds take 5 days.\n\nAsk us.", None),
    ],
    ids=["a paragraph each", "other paragraphs"],
)
def test_documents_without_text_inside_a_tool_name_the_paragraphs_it_returned(
    text: str, expected: list[tuple[str, str]] | None
) -> None:
    found = json.dumps([{"id": "a", "score": None}, {"id": "b", "score": None}])
    inner = a_span(
        3, 2, at=(11, 19), attributes={OPERATION: "retrieval", "gen_ai.retrieval.documents": found}
    )
    chunks = [
        (chunk.id, chunk.text) for chunk in the_record(agent(), tool("search_docs", text), inner).chunks
    ]
    assert chunks == expected if expected else [each for _, each in chunks] == [text]


def conversation(*turns: dict[str, AttributeValue]) -> Span:
    asked = {
        "gen_ai.input.messages": json.dumps(turns),
        "gen_ai.output.messages": messages("assistant", ANSWER),
    }
    return a_span(1, at=(30, 90), attributes={OPERATION: "chat", **asked})


def called(name: str) -> dict[str, AttributeValue]:
    return {"role": "assistant", "parts": [{"type": "tool_call", "id": f"c-{name}", "name": name}]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "returned",
    [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c-search_docs", "response": CHUNK}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c-search_docs", "result": CHUNK}]},
        {"role": "tool", "tool_call_id": "c-search_docs", "content": CHUNK},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c-search_docs", "content": CHUNK}],
        },
    ],
    ids=["response", "result", "openai", "anthropic"],
)
def test_tool_message_in_the_prompt_is_context_where_no_span_is_of_the_tool(
    returned: dict[str, AttributeValue],
) -> None:
    record = the_record(conversation(message("user", QUESTION), called("search_docs"), returned))
    assert (record.question, [chunk.text for chunk in record.chunks]) == (QUESTION, [CHUNK])
    assert record.gaps == ()


def test_tool_messages_of_other_tools_and_of_earlier_turns_are_no_context() -> None:
    earlier = {"role": "tool", "tool_call_id": "c-search_docs", "content": "old"}
    mailed = {"role": "tool", "tool_call_id": "c-send_mail", "content": "sent"}
    record = the_record(
        conversation(
            message("user", "Hi"),
            called("search_docs"),
            earlier,
            message("assistant", "Hello"),
            message("user", QUESTION),
            called("send_mail"),
            mailed,
        )
    )
    assert record.chunks == ()


def test_openinference_tool_messages_are_context() -> None:
    flat: dict[str, AttributeValue] = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION,
        "llm.input_messages.1.message.role": "assistant",
        "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "retrieve",
        "llm.input_messages.2.message.role": "tool",
        "llm.input_messages.2.message.tool_call_id": "c1",
        "llm.input_messages.2.message.content": CHUNK,
        "llm.output_messages.0.message.content": ANSWER,
    }
    record = the_record(a_span(1, attributes=flat))
    assert (record.question, record.answer, [c.text for c in record.chunks]) == (QUESTION, ANSWER, [CHUNK])
