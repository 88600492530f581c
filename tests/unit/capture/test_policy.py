"""What leaves the application, and how much of it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragtrace
from ragtrace import ContentPolicy, semconv
from ragtrace.capture.values import cut, plain_text
from ragtrace.model import Part

any_text = st.text(st.characters(exclude_categories=()), max_size=60)


@given(any_text.map(plain_text), st.integers(0, 200))
def test_a_cut_is_the_longest_prefix_within_the_limit(text: str, limit: int) -> None:
    prefix, size, is_cut = cut(text, limit)
    assert text.startswith(prefix)
    assert size == len(prefix.encode()) <= limit
    assert is_cut == (prefix != text)
    if is_cut:
        assert len(text[: len(prefix) + 1].encode()) > limit


@given(any_text)
def test_plain_text_is_always_utf8_without_nul_and_stays_as_it_is(text: str) -> None:
    plain = plain_text(text)
    assert "\x00" not in plain
    assert plain.encode().decode() == plain
    assert plain_text(plain) == plain


def test_halves_of_a_character_meet_again() -> None:
    assert plain_text("\ud83d\ude00 \ud83d") == "😀 \ufffd"


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


def test_chunks_past_the_total_keep_ids_and_scores(recording: Any) -> None:
    recorded = recording(content=ContentPolicy(max_chunks_total_bytes=4))
    call_once(chunks=[{"id": "a", "text": "abc", "score": 1}, {"id": "b", "text": "def", "score": 0.5}])
    assert recorded.chunks == [
        {"id": "a", "score": 1.0, "content": "abc"},
        {"id": "b", "score": 0.5, "content": "d", "truncated": True},
    ]


def test_metadata_that_is_too_long_is_left_out_and_marked(recording: Any) -> None:
    recorded = recording(content=ContentPolicy(max_chunk_bytes=10))
    call_once(chunks=[{"id": "a", "text": "abc", "metadata": {"title": "a long title"}}])
    assert recorded.chunks == [{"id": "a", "content": "abc", "truncated": True}]


def test_metadata_of_any_kind_becomes_json(recorded: Any) -> None:
    deep: Any = []
    deep.append(deep)
    metadata = {"page": 3, 4: "é\ud800", "nan": float("nan"), "list": (1, None), "deep": deep, "big": 2**80}
    call_once(chunks=[{"id": "a", "metadata": metadata}])
    (chunk,) = recorded.chunks
    assert {key: chunk["metadata"][key] for key in ("page", "4", "nan", "list", "big")} == {
        "page": 3,
        "4": "é\ufffd",
        "nan": None,
        "list": [1, None],
        "big": str(2**80),
    }


def test_with_content_off_ids_scores_and_usage_remain(recording: Any) -> None:
    recorded = recording(capture_content=False)
    call_once("secret", "secret", [{"id": "a", "text": "secret", "score": 1, "metadata": {"t": "secret"}}])
    assert "secret" not in json.dumps([dict(span.attributes) for span in recorded.spans])
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


def test_text_that_redaction_does_not_change_is_not_marked(recording: Any) -> None:
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
