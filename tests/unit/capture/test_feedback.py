"""What people say of an answer, written into its trace."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import ragtrace
from ragtrace import semconv
from ragtrace.capture import RagCall, statistics
from tests.unit.capture.conftest import Recorded

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def an_answer() -> RagCall:
    with ragtrace.rag(question="How long do refunds take?") as call:
        call.answer = "14 days."
    return call


def the_feedback(recorded: Recorded) -> ReadableSpan:
    (found,) = [span for span in recorded.spans if span.name.startswith("feedback")]
    return found


def test_feedback_joins_the_trace_of_its_answer_and_is_linked_to_it(recorded: Recorded) -> None:
    call = an_answer()
    assert ragtrace.feedback(
        call.trace_id, span_id=call.span_id, thumbs="down", score=0.2, comment="Wrong.", user_id="u-1"
    )
    span, answer = the_feedback(recorded), recorded.span("rag").get_span_context()
    assert span.name == "feedback down"
    assert span.context.trace_id == answer.trace_id
    assert span.parent.span_id == answer.span_id
    assert [link.context.span_id for link in span.links] == [answer.span_id]
    assert span.attributes == {
        "openinference.span.kind": "EVALUATOR",
        "ragtrace.feedback.name": "user_feedback",
        "ragtrace.feedback.label": "down",
        "ragtrace.feedback.score": 0.2,
        "ragtrace.feedback.comment": "Wrong.",
        "ragtrace.target.trace_id": call.trace_id,
        "ragtrace.target.span_id": call.span_id,
        "user.id": "u-1",
        "annotations.0.annotation.name": "user_feedback",
        "annotations.0.annotation.annotator_kind": "HUMAN",
        "annotations.0.annotation.label": "down",
        "annotations.0.annotation.score": 0.2,
        "annotations.0.annotation.explanation": "Wrong.",
    }


def test_feedback_on_a_trace_id_alone_is_a_span_without_a_parent_in_that_trace(recorded: Recorded) -> None:
    with recorded.provider.get_tracer("app").start_as_current_span("the request that brings the feedback"):
        assert ragtrace.feedback(TRACE_ID.upper(), score=1)
    span = the_feedback(recorded)
    assert (f"{span.context.trace_id:032x}", span.parent, span.links) == (TRACE_ID, None, ())
    an_answer()
    assert recorded.span("rag").context.trace_id != span.context.trace_id


class Sulking:
    """Raises whatever is done with it."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __float__(self) -> float:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("0" * 32, {"thumbs": "up"}),
        ("no id", {"thumbs": "up"}),
        (None, {"thumbs": "up"}),
        (TRACE_ID, {"thumbs": "up", "span_id": TRACE_ID}),
        (TRACE_ID, {"thumbs": "sideways"}),
        (TRACE_ID, {"score": 1.01}),
        (TRACE_ID, {"score": float("nan")}),
        (TRACE_ID, {"score": "0.5"}),
        (TRACE_ID, {"score": True}),
        (TRACE_ID, {"user_id": "u-1"}),
    ],
)
def test_what_cannot_be_used_is_refused_told_and_counted(
    recorded: Recorded, caplog: pytest.LogCaptureFixture, target: Any, said: dict[str, Any]
) -> None:
    before = statistics().feedback_refused
    with caplog.at_level(logging.WARNING, "ragtrace"):
        assert ragtrace.feedback(target, **said) is False
        assert ragtrace.feedback(target, **said) is False
    assert (recorded.spans, statistics().feedback_refused - before) == ((), 2)
    assert [message.partition(": ")[2].partition(": ")[0] for message in caplog.messages] == [
        "feedback was not recorded"
    ]


@pytest.mark.parametrize("said", [{"thumbs": Sulking()}, {"score": Sulking()}])
def test_a_value_that_raises_does_not_reach_the_application(recorded: Recorded, said: dict[str, Any]) -> None:
    before = statistics().errors_stopped
    assert ragtrace.feedback(TRACE_ID, **said) is False
    assert statistics().errors_stopped == before + 1


def test_a_comment_obeys_the_content_policy(recording: Callable[..., Recorded]) -> None:
    recorded = recording(redact=lambda text, _: text.replace("Smith", "[name]"))
    ragtrace.feedback(TRACE_ID, comment="Ask Mr Smith. " + "x" * 3_000, reference="Smith says 14 days.")
    attributes = the_feedback(recorded).attributes
    assert attributes[semconv.FEEDBACK_COMMENT].startswith("Ask Mr [name]. x")
    assert len(attributes[semconv.FEEDBACK_COMMENT]) == semconv.SAFE_STRING_BYTES
    assert attributes[semconv.REFERENCE_ANSWER] == "[name] says 14 days."
    assert attributes[semconv.RAG_TRUNCATED] == ("comment",)
    assert attributes[semconv.RAG_REDACTED] == ("comment", "reference")
    recorded = recording(content="off")
    assert ragtrace.feedback(TRACE_ID, span_id=SPAN_ID, thumbs="down", comment="That is private.")
    span = the_feedback(recorded)
    assert [f"{link.context.span_id:016x}" for link in span.links] == [SPAN_ID]
    assert span.attributes[semconv.FEEDBACK_LABEL] == "down"
    assert "private" not in str(span.attributes)


@pytest.mark.parametrize("span_id", [SPAN_ID, None])
def test_feedback_on_a_trace_that_the_sampler_left_out_is_left_out(span_id: str | None) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert ragtrace.instrument(tracer_provider=provider)
    try:
        assert ragtrace.feedback(TRACE_ID, span_id=span_id, thumbs="down") is False
    finally:
        ragtrace.uninstrument()
    assert exporter.get_finished_spans() == ()
