"""What stands on the spans of a RAG call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

import ragtrace
from ragtrace import Chunk, semconv
from tests.unit.capture.conftest import recording_with


def test_a_call_is_three_spans_of_one_trace(recorded: Any) -> None:
    with ragtrace.rag(question="Who?", name="desk") as call:
        with ragtrace.retrieval(query="who", data_source="handbook", top_k=3):
            pass
        with ragtrace.generation(model="gpt-5-mini"):
            pass
    root, search, chat = (recorded.span(kind) for kind in ("rag", "retrieval", "generation"))
    assert [(span.name, span.kind) for span in (root, search, chat)] == [
        ("invoke_workflow desk", SpanKind.INTERNAL),
        ("retrieval handbook", SpanKind.CLIENT),
        ("chat gpt-5-mini", SpanKind.CLIENT),
    ]
    assert search.parent == chat.parent == root.context
    scope = root.instrumentation_scope
    assert (scope.name, scope.version, scope.schema_url) == (
        *("ragtrace", ragtrace.__version__),
        semconv.GENAI_SCHEMA_URL,
    )
    assert call.trace_id == format(root.context.trace_id, "032x")
    assert call.span_id == format(root.context.span_id, "016x")


def test_question_answer_and_identities_stand_on_the_root(recorded: Any) -> None:
    with ragtrace.rag(
        question="Who?", session_id="s", conversation_id="c", user_id="u", reference="Ada Lovelace"
    ) as call:
        call.answer = "Ada"
        assert call.answer == "Ada"
    assert dict(recorded.span("rag").attributes) == {
        "gen_ai.operation.name": "invoke_workflow",
        "ragtrace.kind": "rag",
        "gen_ai.workflow.name": "rag",
        "gen_ai.conversation.id": "c",
        "session.id": "s",
        "user.id": "u",
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"Who?"}]}]',
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"Ada"}]}]',
        "ragtrace.reference.answer": "Ada Lovelace",
    }


def test_metadata_is_searchable_and_bounded(recorded: Any) -> None:
    metadata = {"tenant": "a\x00", "tries": 2, "ratio": 0.5, "big": 2**70, "none": None}
    with ragtrace.rag(question="Who?", metadata=metadata | {f"k{index}": index for index in range(200)}):
        pass
    written = {
        key.removeprefix(semconv.RAG_METADATA_PREFIX): value
        for key, value in recorded.span("rag").attributes.items()
        if key.startswith(semconv.RAG_METADATA_PREFIX)
    }
    assert written["tenant"] == "a\ufffd"
    assert (written["tries"], written["ratio"], written["big"]) == (2, 0.5, str(2**70))
    assert len(written) == 64
    assert recorded.span("rag").attributes[semconv.RAG_TRUNCATED] == ("metadata",)
    assert recorded.question == "Who?"


def test_a_generation_carries_messages_usage_and_response(recorded: Any) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    with ragtrace.generation(model="m", provider="openai", messages=messages) as chat:
        chat.set_answer("Ada")
        chat.set_usage(input_tokens=9, output_tokens=3, cached_tokens=4, reasoning_tokens=1)
        chat.set_response(id="r1", model="m-2026", finish_reasons=["stop"])
    attributes = recorded.span("generation").attributes
    assert json.loads(attributes[semconv.INPUT_MESSAGES]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Who?"}]},
    ]
    assert json.loads(attributes[semconv.OUTPUT_MESSAGES]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Ada"}], "finish_reason": "stop"}
    ]
    assert [attributes[key] for key in attributes if key.startswith("gen_ai.usage.")] == [9, 3, 4, 1]
    assert attributes[semconv.PROVIDER_NAME] == "openai"
    assert attributes[semconv.REQUEST_MODEL] == "m"
    assert attributes[semconv.RESPONSE_ID] == "r1"
    assert attributes[semconv.RESPONSE_MODEL] == "m-2026"
    assert attributes[semconv.RESPONSE_FINISH_REASONS] == ("stop",)


@dataclass
class Document:
    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass
class Node:
    text: str
    node_id: str


@dataclass
class NodeWithScore:
    node: Node
    score: float


A, B = {"id": "a", "content": "A"}, {"id": "b", "content": "B"}
RESULTS: tuple[tuple[Any, Any], ...] = (
    ([Chunk(id="a", text="A", score=0.5)], [A | {"score": 0.5}]),
    ([{"id": 1, "content": "T", "score": 1}], [{"id": "1", "score": 1.0, "content": "T"}]),
    ([{"page_content": "A", "metadata": {"id": "a"}}], [A | {"metadata": {"id": "a"}}]),
    ([(Document("A", id="a"), 0.25)], [A | {"score": 0.25}]),
    ([NodeWithScore(Node("A", "a"), 0.75)], [A | {"score": 0.75}]),
    ([{"id": "a", "text": "A", "score": float("nan")}], [A]),
    ([object()], [{"id": "unnamed-0"}]),
    ("T", [{"id": "e632b7095b0bf32c", "content": "T"}]),
    ({"documents": [A, B]}, [A, B]),
    ({"result": None, "hits": {"hits": [{"_id": "a", "_source": {"text": "A"}}]}}, [A]),
    ([["a", 0.5]], [{"id": "ca978112ca1bbdca", "score": 0.5, "content": "a"}]),
    ([("a", "longer"), ("b", "longest")], [A | {"content": "longer"}, B | {"content": "longest"}]),
    ([(7, "text", 0.25)], [{"id": "7", "content": "text"}]),
    ({"ids": [["a"], ["b"]], "documents": [["A"], ["B"]]}, [A, B]),
    ([{"id": "a", "content": [{"type": "text", "text": "A"}]}], [A]),
    ([{"id": "a", "distance": 0.5, "payload": {"body": "A"}}], [A | {"distance": 0.5}]),
    ([{"id": "a", "payload": {"body": "A", "page": 1}}], [A | {"metadata": {"page": 1}}]),
)


def test_results_of_many_shapes_are_read() -> None:
    for given, written in RESULTS:
        with recording_with() as recorded, ragtrace.retrieval(query="q") as search:
            search.set_chunks(given)
        assert recorded.chunks == written, given


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no")


class Boom(Exception):
    pass


def test_an_exception_is_recorded_and_passes_unchanged(recorded: Any) -> None:
    boom = Boom("secret question")
    with pytest.raises(Boom) as caught, ragtrace.rag(question="Who?"):
        raise boom
    span = recorded.span("rag")
    assert caught.value is boom
    assert span.attributes[semconv.ERROR_TYPE].endswith(".Boom")
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.status.description
    assert [event.name for event in span.events] == ["exception"]


def test_a_call_that_is_not_sampled_costs_no_serialisation_and_is_not_exported() -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    ragtrace.instrument(tracer_provider=TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    try:
        with ragtrace.rag(question=Unspeakable()) as call:  # type: ignore[call-overload]
            assert not get_current_span().is_recording()
            call.answer = "Ada"
        assert call.trace_id is not None
    finally:
        ragtrace.uninstrument()


def test_without_instrument_the_helpers_do_nothing() -> None:
    with ragtrace.rag(question="Who?") as call, ragtrace.retrieval(query="who") as search:
        search.set_chunks(["a"])
        call.answer = "Ada"
    assert (call.span, call.trace_id, call.span_id) == (None, None, None)
    assert call.answer == "Ada"
