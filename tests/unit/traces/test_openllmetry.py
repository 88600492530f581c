"""Spans of OpenLLMetry, Traceloop's SDK and vector databases' clients, of versions that were not recorded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ragtrace.model import AttributeValue, Part, SkipReason
from ragtrace.traces.trace import Span, SpanEvent
from tests.unit.traces.builders import a_span, the_record

QUESTION, ANSWER = "How long can I return?", "14 days."


def entity(kind: str, **attributes: AttributeValue) -> dict[str, AttributeValue]:
    fields = {
        f"traceloop.entity.{key}": value if key == "name" else json.dumps(value)
        for key, value in attributes.items()
    }
    return {"traceloop.span.kind": kind, **fields}


def workflow(number: int = 1, parent: int | None = None) -> Span:
    given = {"args": [QUESTION], "kwargs": {}}
    return a_span(number, parent, attributes=entity("workflow", input=given, output=ANSWER))


def query(
    *results: dict[str, AttributeValue], system: str = "chroma", event: str = "db.query.result"
) -> Span:
    found = tuple(
        SpanEvent(
            name=event, time_ns=number, attributes={f"{event}.{key}": value for key, value in each.items()}
        )
        for number, each in enumerate(results)
    )
    span = a_span(2, 1, at=(10, 20), name=f"{system}.query", attributes={"db.system": system})
    return replace(span, events=found)


def test_messages_of_old_versions_are_read() -> None:
    chat = a_span(
        3,
        1,
        at=(30, 90),
        attributes={
            "llm.request.type": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Answer from: within 14 days.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": QUESTION,
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": ANSWER,
        },
    )
    record = the_record(a_span(1), query({"id": "a", "document": "within 14 days"}), chat)
    assert (record.question, record.answer, record.model) == (QUESTION, ANSWER, "gpt-4o")


def test_session_of_an_association_is_read() -> None:
    asked = {**workflow().attributes, "traceloop.association.properties.session_id": "s-1"}
    assert the_record(a_span(1, attributes=asked), query({"id": "a", "document": "x"})).session_id == "s-1"


@pytest.mark.parametrize("name", ["BM25Retriever.task", "retriever.task", "retrieve"])
def test_task_of_a_retriever_is_a_retrieval(name: str) -> None:
    nodes = [{"node": {"id_": "n1", "text": "Within 14 days."}, "score": 0.7}]
    task = a_span(2, 1, at=(10, 20), name=name, attributes=entity("task", name=name, output=nodes))
    assert [(c.id, c.text, c.score) for c in the_record(workflow(), task).chunks] == [
        ("n1", "Within 14 days.", 0.7)
    ]


def test_decorated_function_that_returns_documents_is_judged_by_its_name() -> None:
    found = [{"id": "a", "text": "Within 14 days."}]
    spans = {
        name: the_record(
            workflow(), a_span(2, 1, at=(10, 20), attributes=entity("task", name=name, output=found))
        )
        for name in ("search", "log")
    }
    assert [chunk.id for chunk in spans["search"].chunks] == ["a"]
    assert spans["log"].chunks == ()
    gap = spans["log"].gap(Part.CONTEXT)
    assert gap is not None
    assert "'log'" in gap.detail


def test_distance_of_a_vector_database_is_no_score() -> None:
    (chunk,) = the_record(workflow(), query({"id": "a", "distance": 0.3, "document": "x"})).chunks
    assert (chunk.score, chunk.score_kind) == (0.3, "distance")


def test_text_is_found_in_metadata_that_was_written_as_a_repr() -> None:
    match = {"id": "a", "score": 0.8, "metadata": str({"text": "Within 14 days.", "page": 3})}
    (chunk,) = the_record(workflow(), query(match, system="pinecone")).chunks
    assert (chunk.text, chunk.score, chunk.score_kind) == ("Within 14 days.", 0.8, "similarity")


def test_entity_of_a_search_result_is_read() -> None:
    match = {"id": 7, "distance": "0.2", "entity": json.dumps({"text": "Within 14 days."})}
    (chunk,) = the_record(workflow(), query(match, system="milvus", event="db.search.result")).chunks
    assert (chunk.id, chunk.text, chunk.score) == ("7", "Within 14 days.", 0.2)


def test_database_that_tells_no_results_leaves_a_gap_that_says_so() -> None:
    record = the_record(workflow(), query(system="Qdrant"))
    gap = record.gap(Part.CONTEXT)
    assert gap is not None
    assert gap.reason is SkipReason.NO_CONTENT
    assert "records a query without its results" in gap.detail


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([{"id": "a", "document": "x" * 2_048}], SkipReason.TRUNCATED),
        ([{"id": str(number), "document": f"text {number}"} for number in range(128)], SkipReason.INCOMPLETE),
        ([{"id": "a"}], SkipReason.NO_CONTENT),
    ],
    ids=["cut by tempo", "as many events as an SDK keeps", "no text"],
)
def test_loss_of_results_is_a_gap(results: list[dict[str, AttributeValue]], reason: SkipReason) -> None:
    gap = the_record(workflow(), query(*results)).gap(Part.CONTEXT)
    assert gap is not None
    assert gap.reason is reason


def test_writing_to_a_vector_database_is_no_retrieval() -> None:
    upsert = a_span(2, 1, at=(10, 20), name="qdrant.upsert", attributes={"db.system": "Qdrant"})
    assert the_record(workflow(), upsert).gap(Part.CONTEXT).reason is SkipReason.NO_RETRIEVAL  # type: ignore[union-attr]


def test_framework_and_database_that_tell_the_same_are_one_retrieval_with_its_ids() -> None:
    found = {"documents": [{"page_content": "Within 14 days.", "metadata": {}}]}
    framework = {
        "gen_ai.operation.name": "vector_db_retrieve",
        **entity("task", input={"query": QUESTION}, output=found),
    }
    outer = a_span(4, 1, at=(9, 21), attributes=framework)
    inner = replace(
        query({"id": "a", "distance": 0.3, "document": "Within 14 days."}), parent_span_id=outer.span_id
    )
    assert [(c.id, c.score_kind) for c in the_record(workflow(), outer, inner).chunks] == [("a", "distance")]
