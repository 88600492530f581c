"""A user's own attributes and tools: paths, what they win over, and what tools returned."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.model import AttributeValue, Part, RagRecord, SkipReason
from ragtrace.traces.extract import AttributeMapping, AttributePath, ExtractRules, extract_records
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import a_span, a_trace, documents, message, messages

MAPPING = AttributeMapping(
    question=(AttributePath("app.q"),),
    context=(AttributePath("app.result.hits"),),
    answer=(AttributePath("app.a"),),
    reference=(AttributePath("app.expected"),),
    session=(AttributePath("app.chat"),),
)
HITS = '{"hits": [{"id": "faq-12", "text": "14 days."}, "Shipping is free."]}'


def the_record(*spans: Span, mapping: AttributeMapping = MAPPING) -> RagRecord:
    (record,) = extract_records(a_trace(*spans), ExtractRules(mapping=mapping)).records
    return record


@pytest.mark.parametrize(
    ("path", "attributes", "found"),
    [
        ("a.b", {"a.b": "x"}, "x"),
        ("a.b", {"a": {"b": "x"}}, "x"),
        ("a.b", {"a": '{"b": "x"}'}, "x"),
        ("a.b", {"a": '{"b": "deeper"}', "a.b": "x"}, "x"),
        ("a.b[0]", {"a.b": ("x", "y")}, "x"),
        ("a.b[-1].c", {"a.b": '[{"c": "w"}, {"c": "x"}]'}, "x"),
        ("a.b[].c", {"a.b": '[{"c": "x"}, {"d": 1}, {"c": "y"}]'}, ("x", "y")),
        ("a.b[0]", {"a.b[0]": "x"}, "x"),
        ("a.b[7]", {"a.b": ("x",)}, None),
        ("a.b[0]", {"a.b": "a text"}, None),
        ("a.b.c", {"a.b": "a text"}, None),
        ("a", {}, None),
    ],
)
def test_a_path_is_an_attribute_and_the_way_into_its_json(
    path: str, attributes: dict[str, AttributeValue], found: AttributeValue
) -> None:
    assert AttributePath(path).find(attributes) == found


@pytest.mark.parametrize("text", ["", " ", "a b", "a..b", ".a", "a.", "a[x]", "a[", "[0]", "a[0]b"])
def test_what_is_no_path_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not an attribute path: write"):
        AttributePath(text)


PLAIN = st.characters(codec="utf-8", exclude_characters='\0[{("', exclude_categories=("Cs",))
KEYS = st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), min_size=1, max_size=5)


@given(KEYS, st.integers(1, 5), st.text(PLAIN, min_size=1))
def test_a_value_is_found_wherever_the_attribute_ends_and_its_json_begins(
    keys: list[str], length: int, value: str
) -> None:
    inner: object = value
    for key in reversed(keys[length:]):
        inner = {key: inner}
    stored = json.dumps(inner) if keys[length:] else value
    assert AttributePath(".".join(keys)).find({".".join(keys[:length]): stored}) == value


def test_one_span_with_attributes_of_its_own_is_a_rag_call() -> None:
    own = {"app.q": "How long?", "app.result": HITS, "app.a": "14 days.", "app.expected": "Two weeks."}
    record = the_record(a_span(1, attributes=own))
    assert (record.question, record.answer, record.reference) == ("How long?", "14 days.", "Two weeks.")
    assert [chunk.text for chunk in record.chunks] == ["14 days.", "Shipping is free."]
    assert record.chunks[0].id == "faq-12"
    assert {each.convention for each in record.provenance} == {"mapping"}
    assert record.gaps == ()


def test_a_mapping_wins_over_the_conventions_beside_it() -> None:
    root = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.input.messages": messages("user", "other")}
    chunks = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents(d1="other")}
    said = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": messages("assistant", "other")}
    record = the_record(
        a_span(1, attributes={**root, "app.q": "How long?"}),
        a_span(2, 1, at=(10, 20), attributes=chunks),
        a_span(3, 1, at=(20, 30), attributes={"app.result": HITS}),
        a_span(4, 1, at=(30, 40), attributes={**said, "app.a": "14 days."}),
    )
    assert (record.question, record.answer) == ("How long?", "14 days.")
    assert [chunk.text for chunk in record.chunks] == ["14 days.", "Shipping is free."]
    passed_over = {(each.part, each.span_name): each.why for each in record.passed_over}
    assert passed_over[Part.CONTEXT, "span 2"] == "the mapping names another place"


def test_a_mapping_that_leads_nowhere_changes_nothing() -> None:
    root = a_span(1, attributes={"gen_ai.operation.name": "invoke_workflow"})
    said = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": messages("assistant", "Yes.")}
    trace = a_trace(root, a_span(2, 1, attributes=said))
    assert extract_records(trace, ExtractRules(mapping=MAPPING)) == extract_records(trace)


OPERATION = "gen_ai.operation.name"
QUESTION, ANSWER = "How long can I return?", "14 days."
CHUNK = "Returns are free within 14 days."


def record_of(*spans: Span, tools: str | None = None) -> RagRecord:
    mapping = AttributeMapping(tools=re.compile(tools)) if tools else None
    (record,) = extract_records(a_trace(*spans), ExtractRules(mapping=mapping)).records
    return record


def agent() -> Span:
    said = {
        "gen_ai.input.messages": messages("user", QUESTION),
        "gen_ai.output.messages": messages("assistant", ANSWER),
    }
    return a_span(1, attributes={OPERATION: "invoke_agent", **said})


def called_tool(
    name: str, result: AttributeValue, *, at: tuple[int, int] = (10, 20), number: int = 2
) -> Span:
    called = {OPERATION: "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.result": result}
    arguments = {"gen_ai.tool.call.arguments": '{"query": "return period"}'}
    return a_span(number, 1, at=at, attributes={**called, **arguments})


@pytest.mark.parametrize(
    "result", ["x" * 3_000, json.dumps([{"id": "a", "text": "first"}, {"text": "x" * 3_000}])]
)
def test_result_cut_by_tempo_is_truncated(result: str) -> None:
    gap = record_of(agent(), called_tool("search_docs", result[:2_048])).gap(Part.CONTEXT)
    assert gap is not None
    assert gap.reason is SkipReason.TRUNCATED


def test_object_without_a_text_is_context_as_the_model_saw_it() -> None:
    record = record_of(agent(), called_tool("lookup_order", '{"order": 7, "state": "sent"}'))
    assert [chunk.text for chunk in record.chunks] == ['{"order": 7, "state": "sent"}']


def test_other_tools_are_named_where_nothing_was_retrieved() -> None:
    record = record_of(agent(), called_tool("send_mail", "sent"))
    gap = record.gap(Part.CONTEXT)
    assert gap is not None
    assert gap.reason is SkipReason.NO_RETRIEVAL
    assert "'send_mail'" in gap.detail


def test_user_names_the_tools_that_retrieve() -> None:
    assert len(record_of(agent(), called_tool("send_mail", "sent"), tools="mail").chunks) == 1
    assert record_of(agent(), called_tool("search_docs", CHUNK), tools="mail").chunks == ()


def test_tool_that_made_something_else_of_what_it_retrieved_is_the_context_itself() -> None:
    found = json.dumps([{"id": "a", "content": CHUNK}])
    inner = a_span(
        3, 2, at=(11, 19), attributes={OPERATION: "retrieval", "gen_ai.retrieval.documents": found}
    )
    record = record_of(agent(), called_tool("search_docs", "A fortnight."), inner)
    assert [chunk.text for chunk in record.chunks] == ["A fortnight."]


def conversation(*turns: dict[str, AttributeValue]) -> Span:
    asked = {
        "gen_ai.input.messages": json.dumps(turns),
        "gen_ai.output.messages": messages("assistant", ANSWER),
    }
    return a_span(1, at=(30, 90), attributes={OPERATION: "chat", **asked})


def called(name: str) -> dict[str, AttributeValue]:
    return {"role": "assistant", "parts": [{"type": "tool_call", "id": f"c-{name}", "name": name}]}  # type: ignore[dict-item]


def test_tool_messages_of_other_tools_and_of_earlier_turns_are_no_context() -> None:
    earlier = {"role": "tool", "tool_call_id": "c-search_docs", "content": "old"}
    mailed = {"role": "tool", "tool_call_id": "c-send_mail", "content": "sent"}
    record = record_of(
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
