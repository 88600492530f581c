"""A user's own attributes: paths, and what they win over."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.model import AttributeValue, Part, RagRecord, SkipReason
from ragtrace.traces.extract import AttributeMapping, AttributePath, ExtractRules, extract_records
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import a_span, a_trace, documents, messages

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


def test_a_session_is_read_from_above_the_call() -> None:
    own = {"app.q": "How long?", "app.result": HITS, "app.a": "14 days.", "session.id": "other"}
    record = the_record(a_span(9, attributes={"app.chat": 7}), a_span(1, 9, attributes=own))
    assert record.session_id == "7"


def test_a_mapping_that_leads_nowhere_changes_nothing() -> None:
    root = a_span(1, attributes={"gen_ai.operation.name": "invoke_workflow"})
    said = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": messages("assistant", "Yes.")}
    trace = a_trace(root, a_span(2, 1, attributes=said))
    assert extract_records(trace, ExtractRules(mapping=MAPPING)) == extract_records(trace)


def test_what_the_mapping_names_is_judged_like_any_text() -> None:
    own = {"app.q": "[REDACTED]", "app.result": HITS, "app.a": "14 days."}
    record = the_record(a_span(1, attributes=own))
    assert record.question is None
    assert [(gap.part, gap.reason) for gap in record.gaps] == [(Part.QUESTION, SkipReason.REDACTED)]


@pytest.mark.parametrize(("pattern", "texts"), [("^kb_", ["14 days."]), ("other", [])])
def test_tools_are_context_by_the_pattern_of_the_mapping(pattern: str, texts: list[str]) -> None:
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": messages("assistant", "14.")}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "kb_articles",
        "gen_ai.tool.call.result": '[{"id": "a", "text": "14 days."}]',
    }
    record = the_record(
        a_span(1, attributes=root),
        a_span(2, 1, at=(10, 20), attributes=tool),
        mapping=AttributeMapping(tools=re.compile(pattern)),
    )
    assert [chunk.text for chunk in record.chunks] == texts
