"""Which text is the question, where the RAG call's own span has none."""

from __future__ import annotations

import json

import pytest

from ragtrace.model import AttributeValue, RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import a_span, a_trace, documents, message, messages

OPERATION = "gen_ai.operation.name"
CHUNK = "Returns are free within 14 days."


def the_record(*spans: Span) -> RagRecord:
    (record,) = extract_records(a_trace(a_span(9), *spans)).records
    return record


def retrieval(query: str | None) -> Span:
    found = {"gen_ai.retrieval.documents": documents(a=CHUNK)}
    asked = {"gen_ai.retrieval.query.text": query} if query else {}
    return a_span(2, 9, at=(10, 20), attributes={OPERATION: "retrieval", **found, **asked})


def chat(*turns: dict[str, AttributeValue]) -> Span:
    said = {
        "gen_ai.input.messages": json.dumps(turns),
        "gen_ai.output.messages": messages("assistant", "14 days."),
    }
    return a_span(3, 9, at=(30, 90), attributes={OPERATION: "chat", **said})


def test_question_and_rewritten_query_are_kept_apart() -> None:
    talk = [message("system", CHUNK), message("user", "Returns?"), message("user", "And how long?")]
    record = the_record(retrieval("how long can a lamp be returned"), chat(*talk))
    assert (record.question, record.retrieval_query) == ("And how long?", "how long can a lamp be returned")


def test_prompt_that_holds_the_chunks_is_not_the_question() -> None:
    stuffed = message("user", f"Use this: {CHUNK} Now tell me how long.")
    assert the_record(retrieval("how long?"), chat(stuffed)).question == "how long?"


@pytest.mark.parametrize(
    "prompt",
    [
        f"Context: {CHUNK}\nQuestion: How long?\nAnswer:",
        f"Question: How long? \nContext: {CHUNK} \nAnswer:",
        f"{CHUNK}\n---\nAnswer the query.\nQuery: How long?\nAnswer: ",
        f"## Context\n{CHUNK}\n\n**Question:** How long?",
        f"Question: an example?\nAnswer: yes\n\n{CHUNK}\nQuestion: How long?\nHelpful Answer:",
    ],
)
def test_question_is_taken_out_of_a_template(prompt: str) -> None:
    record = the_record(retrieval(None), chat(message("user", prompt)))
    assert record.question == "How long?"
    assert record.provenance[0].why.endswith("the text after its last `Question:` or `Query:`.")


def test_prompt_stands_for_the_question_where_nothing_else_does() -> None:
    stuffed = f"Use this: {CHUNK} Now tell me how long."
    assert the_record(retrieval(None), chat(message("user", stuffed))).question == stuffed


def test_first_call_inside_a_wrapper_that_holds_nothing_has_the_question() -> None:
    wrapper = a_span(1, attributes={OPERATION: "invoke_agent"})
    inner = a_span(
        2,
        1,
        at=(1, 99),
        attributes={OPERATION: "invoke_agent", "gen_ai.input.messages": messages("user", "How long?")},
    )
    found = {OPERATION: "retrieval", "gen_ai.retrieval.documents": documents(a=CHUNK)}
    (record,) = extract_records(a_trace(wrapper, inner, a_span(3, 2, at=(10, 20), attributes=found))).records
    assert record.question == "How long?"
