"""What leaves the application, and how much of it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import ragtrace
from ragtrace import ContentPolicy, semconv
from ragtrace.model import Part


def call_once(question: str = "Who?", answer: str = "Ada", chunks: Any = ("one",)) -> None:
    with ragtrace.rag(question=question) as call:
        with ragtrace.retrieval(query=question) as search:
            search.set_chunks(chunks)
        with ragtrace.generation(prompt=question) as chat:
            chat.set_answer(answer)
        call.set_answer(answer)


def test_limits_cut_and_name_what_they_cut(recording: Any) -> None:
    policy = ContentPolicy(max_question_bytes=3, max_answer_bytes=2, max_messages_bytes=1, max_chunk_bytes=5)
    recorded = recording(content=policy)
    call_once("Whoé?", "Ada", ["short", "longer"])
    root, search, chat = (recorded.span(kind).attributes for kind in ("rag", "retrieval", "generation"))
    assert (recorded.question, recorded.answer) == ("Who", "Ad")
    assert [(chunk["content"], chunk.get("truncated")) for chunk in recorded.chunks] == [
        ("short", None),
        ("longe", True),
    ]
    assert root[semconv.RAG_TRUNCATED] == ("answer", "question")
    assert search[semconv.RAG_TRUNCATED] == ("context", "question")
    assert chat[semconv.RAG_TRUNCATED] == ("answer", "messages")


def test_chunks_past_the_total_keep_ids_and_scores_and_metadata_too_long_is_left_out(recording: Any) -> None:
    recorded = recording(content=ContentPolicy(max_chunks_total_bytes=4))
    call_once(chunks=[{"id": "a", "text": "abc", "score": 1}, {"id": "b", "text": "def", "score": 0.5}])
    assert recorded.chunks == [
        {"id": "a", "score": 1.0, "content": "abc"},
        {"id": "b", "score": 0.5, "content": "d", "truncated": True},
    ]
    recorded = recording(content=ContentPolicy(max_chunk_bytes=10))
    call_once(chunks=[{"id": "a", "text": "abc", "metadata": {"title": "a long title"}}])
    assert recorded.chunks == [{"id": "a", "content": "abc", "truncated": True}]
    recorded = recording(content="off")
    call_once(chunks=[{"id": "a", "text": "secret", "score": 1, "metadata": {"t": "secret"}}])
    assert recorded.chunks == [{"id": "a", "score": 1.0}]
    assert all(span.attributes[semconv.RAG_CAPTURE] is False for span in recorded.spans)


def test_redaction_reaches_every_text(recording: Any) -> None:
    parts: set[Part] = set()

    def redact(text: str, part: Part) -> str:
        parts.add(part)
        return text.replace("secret", "***")

    recorded = recording(redact=redact)
    call_once("a secret", "secret", [{"id": "a", "text": "secret", "metadata": {"t": ["secret"]}}])
    assert "secret" not in json.dumps([dict(span.attributes) for span in recorded.spans])
    assert (recorded.question, recorded.answer) == ("a ***", "***")
    assert parts == {Part.QUESTION, Part.CONTEXT, Part.ANSWER}
    marks = [span.attributes[semconv.RAG_REDACTED] for span in recorded.spans]
    assert marks == [("context", "question"), ("answer", "messages"), ("answer", "question")]
    recorded = recording(redact=lambda text, part: text)
    call_once()
    assert all(semconv.RAG_REDACTED not in span.attributes for span in recorded.spans)


@pytest.mark.parametrize(
    "redact", [lambda text, part: 1 / 0, lambda text, part: None], ids=["raises", "gives no string"]
)
def test_text_is_dropped_where_redaction_fails(
    recording: Any, redact: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    recorded = recording(redact=redact)
    before = ragtrace.capture.statistics().errors_stopped
    call_once("secret", "secret", [{"id": "a", "text": "secret"}])
    assert "secret" not in json.dumps([dict(span.attributes) for span in recorded.spans])
    assert recorded.span("rag").attributes[semconv.RAG_REDACTED] == ("answer", "question")
    assert ragtrace.capture.statistics().errors_stopped > before
    assert "secret" not in caplog.text
