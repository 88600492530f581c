"""What no recording shows of the conventions: spans made by hand from what their writers document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ragtrace.model import AttributeValue, Part, SkipReason
from ragtrace.traces.trace import Scope, Span, SpanEvent
from tests.unit.traces.builders import a_span, span_id, the_record

HITS = ({"id": "faq-12", "content": "14 days."}, {"id": "faq-7", "content": "Free."})


def observation(kind: str, **fields: object) -> Mapping[str, AttributeValue]:
    given = {f"langfuse.observation.{key}": json.dumps(value) for key, value in fields.items()}
    return {"langfuse.observation.type": kind, **given}


def test_langfuse_experiments_hold_the_reference() -> None:
    expected = {"langfuse.experiment.item.expected_output": '{"answer": "Two weeks."}'}
    record = the_record(
        a_span(1, attributes={**observation("span", input={"q": "How long?"}, output="14."), **expected}),
        a_span(2, 1, at=(10, 20), attributes=observation("retriever", input="long", output=HITS)),
    )
    assert (record.question, record.reference) == ("How long?", "Two weeks.")
    assert [chunk.id for chunk in record.chunks] == ["faq-12", "faq-7"]


def test_the_ranking_of_the_ai_sdk_orders_the_documents() -> None:
    ranking = ({"index": 1, "relevanceScore": 0.9}, {"index": 0, "relevanceScore": 0.2}, {"index": 7})
    rerank: dict[str, AttributeValue] = {
        "ai.operationId": "ai.rerank",
        "ai.documents": ('"14 days."', '{"id": "faq-7", "text": "Free."}'),
        "ai.ranking": tuple(map(json.dumps, ranking)),
    }
    text = {"ai.operationId": "ai.generateText", "ai.prompt": '{"prompt": "How?"}', "ai.response.text": "14."}
    record = the_record(a_span(1, attributes=rerank), a_span(2, at=(2_000, 3_000), attributes=text))
    assert [(chunk.text, chunk.score) for chunk in record.chunks] == [("Free.", 0.9), ("14 days.", 0.2)]


def test_the_steps_of_a_haystack_agent_are_read() -> None:
    said = {"role": "assistant", "content": [{"text": "14 days."}], "meta": {"model": "gpt-4.1-mini"}}
    asked = {"role": "user", "content": [{"text": "How long?"}]}
    record = the_record(
        a_span(
            1,
            name="haystack.agent.run",
            attributes={"haystack.agent.input": json.dumps({"messages": [asked]})},
        ),
        a_span(
            2,
            1,
            at=(10, 20),
            name="haystack.agent.step.tool",
            attributes={
                "haystack.tool.name": "search_docs",
                "haystack.agent.step.tool.output": json.dumps(HITS),
            },
        ),
        a_span(
            3,
            1,
            at=(20, 30),
            name="haystack.agent.step.llm",
            attributes={"haystack.agent.step.llm.output": json.dumps({"replies": [said]})},
        ),
    )
    assert (record.question, record.answer, record.model) == ("How long?", "14 days.", "gpt-4.1-mini")
    assert [chunk.id for chunk in record.chunks] == ["faq-12", "faq-7"]


def test_a_structured_result_of_pydantic_ai_is_the_answer_in_it_or_all_of_it() -> None:
    def answer(result: str) -> str | None:
        agent = {"gen_ai.operation.name": "invoke_agent", "pydantic_ai.all_messages": "[]"}
        return the_record(a_span(1, attributes={**agent, "final_result": result})).answer

    assert answer('{"answer": "14 days.", "pages": [1]}') == "14 days."
    assert answer('{"days": 14, "pages": [1]}') == '{"days": 14, "pages": [1]}'


def test_the_model_of_an_embedding_is_not_the_answers() -> None:
    model = {"langfuse.observation.model.name": "text-embedding-3-small"}
    record = the_record(
        a_span(1, attributes=observation("chain", input="How long?", output="14 days.")),
        a_span(2, 1, attributes={**observation("embedding", input="long"), **model}),
    )
    assert record.model is None


def test_what_turns_content_on_is_said_for_who_wrote_the_span() -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    span = replace(a_span(1, attributes=chat), scope=Scope(name="opentelemetry.instrumentation.openai"))
    details = [gap.detail for gap in the_record(span).gaps if gap.part is Part.ANSWER]
    assert details == ["the answer is not on 'span 1': set TRACELOOP_TRACE_CONTENT=true"]


def test_generations_inside_and_before_are_passed_over_with_the_rule() -> None:
    def chat(text: str) -> Mapping[str, AttributeValue]:
        return observation("generation", input="How long?", output=text)

    record = the_record(
        a_span(1, attributes=observation("chain", input="How long?")),
        a_span(2, 1, at=(1, 2), attributes=chat("return period")),
        a_span(3, 1, at=(3, 4), attributes=observation("retriever", output=HITS)),
        a_span(4, 1, at=(5, 9), attributes=chat("14 days.")),
        a_span(5, 4, at=(6, 8), attributes=chat("14 days.")),
    )
    answers = {each.span_id: each.why for each in record.passed_over if each.part is Part.ANSWER}
    assert answers == {
        span_id(2): "it ended before anything was retrieved",
        span_id(5): "the generation around it holds the same text",
    }


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
