"""In every mode but `on`, nothing personal is written through any door of capture, in any place of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

import ragtrace
from ragtrace import semconv
from ragtrace.capture import instrumentation
from ragtrace.capture.privacy import _redaction
from ragtrace.capture.tracers import PolicedTracer
from tests.unit.capture.conftest import recording_with

PERSONAL = (
    *("jane.doe@example.com", "https://jane:hunter22@wiki.example/p", "Jane Doe", "+49 30 901820"),
    *("192.168.17.20", "212-555-0123", "DE89370400440532013000", "user:jane.doe@example.com"),
)
FOUND = tuple(value for value in PERSONAL if value != "Jane Doe")  # `redacted` finds no names
OPAQUE = ("8f14e45fceea167a5a36dedd4bea2543", "0b7c5b5e-6a4c-4d5f-9d3a-2f1f6f0c1a11", "u-4711", "gpt-4.1")
FACTS = ("session_id", "conversation_id", "user_id", "prompt_version", "tags")
FOREIGN = (
    *("user.id", "session.id", "llm.model_name", "graph.node.name", "agent.name", "tag.tags", "metadata"),
    *("llm.input_messages.0.message.name", "tool_call.id", "message.tool_calls.0.tool_call.id"),
    *("document.id", "gen_ai.response.id", "gen_ai.tool.name", "input.value", "anything.else"),
)


def rag(question: str = "Who?", **settings: Any) -> None:
    with ragtrace.rag(question, **settings):
        pass


def updated(**facts: Any) -> None:
    with ragtrace.rag("Who?"):
        ragtrace.update(**facts)


def searched(chunks: object = (), **settings: Any) -> None:
    with ragtrace.retrieval("Who?", **settings) as search:
        search.set_chunks(chunks)


def generated(response: Mapping[str, Any] | None = None, **settings: Any) -> None:
    with ragtrace.generation(**settings) as chat:
        chat.set_response(**(response or {}))
        chat.set_answer("Ada.")


def foreign(key: str, value: Any) -> None:
    installed = instrumentation._installed
    assert installed is not None
    tracer = PolicedTracer(installed.provider.get_tracer("other"), installed.settings.policy)
    with tracer.start_as_current_span("chat", attributes={key: value}) as span:
        span.add_event("said", {key: value})
        span.set_attribute(key, value)


def failed(value: str) -> None:
    with suppress(ValueError), ragtrace.rag("Who?"):
        raise ValueError(value)


DOORS: Mapping[str, Callable[[str], object]] = {
    **{f"rag {fact}": lambda value, fact=fact: rag(**{fact: value}) for fact in FACTS},
    **{f"update {fact}": lambda value, fact=fact: updated(**{fact: value}) for fact in FACTS},
    "rag name": lambda value: rag(name=value),
    "rag question": rag,
    "rag reference": lambda value: rag(reference=value),
    "rag metadata": lambda value: rag(metadata={"note": value, value: 1}),
    "rag error": failed,
    "retrieval name": lambda value: searched(name=value),
    "retrieval data_source": lambda value: searched(data_source=value),
    "chunk id": lambda value: searched([{"id": value, "text": "t"}]),
    "chunk text": lambda value: searched([{"text": value}]),
    "chunk metadata": lambda value: searched([{"id": "1", "text": "t", "metadata": {value: value}}]),
    "generation model": lambda value: generated(model=value),
    "generation provider": lambda value: generated(provider=value),
    "message role": lambda value: generated(messages=[{"role": value, "content": "t"}]),
    "message text": lambda value: generated(messages=[{"role": "user", "content": value, "name": value}]),
    "message part": lambda value: generated(messages=[{"role": "user", "content": [{"type": value}]}]),
    "response id": lambda value: generated({"id": value}),
    "response model": lambda value: generated({"model": value}),
    "finish reasons": lambda value: generated({"finish_reasons": [value]}),
    **{
        f"feedback {key}": lambda value, key=key: ragtrace.feedback(
            "1" * 32, span_id="2" * 16, **{"thumbs": "up", key: value}
        )
        for key in ("name", "user_id", "comment", "reference")
    },
    **{f"foreign {key}": lambda value, key=key: foreign(key, value) for key in FOREIGN},
    **{f"foreign {key} list": lambda value, key=key: foreign(key, [value]) for key in FOREIGN},
}


@pytest.mark.parametrize("mode", ["redacted", "hashed", "off"])
def test_nothing_personal_is_written(mode: str) -> None:
    for door, through in DOORS.items():
        with recording_with(content=mode) as recorded:
            for value in FOUND if mode == "redacted" else PERSONAL:
                through(value)
        written = encode_spans(recorded.spans).SerializeToString()
        assert [value for value in PERSONAL if value.encode() in written] == [], door
        assert b"jane" not in written, door
        assert len(recorded.spans) >= len(FOUND), door


@pytest.mark.parametrize("mode", ["on", "redacted", "hashed", "off"])
@pytest.mark.parametrize("value", OPAQUE)
def test_an_opaque_id_stays_in_every_mode(mode: str, value: str) -> None:
    with recording_with(content=mode) as recorded:
        rag(session_id=value, user_id=value, name=value, tags=[value])
        searched([{"id": value, "text": "t"}])
        generated({"id": value}, model=value)
    root, chat = recorded.span("rag").attributes, recorded.span("generation").attributes
    assert {root[key] for key in (semconv.SESSION_ID, semconv.USER_ID, semconv.WORKFLOW_NAME)} == {value}
    assert (root[semconv.TAGS], recorded.chunks[0]["id"]) == ((value,), value)
    assert (chat[semconv.REQUEST_MODEL], chat[semconv.RESPONSE_ID]) == (value, value)


def test_hashed_ids_are_equal_where_they_were() -> None:
    with recording_with(content="hashed") as recorded:
        for session in (PERSONAL[0], PERSONAL[0], PERSONAL[2]):
            rag(session_id=session)
    first, again, other = (span.attributes[semconv.SESSION_ID] for span in recorded.spans)
    assert first == again != other


def test_redacted_an_id_that_cannot_be_checked_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("a detector that fails")

    with recording_with(content="redacted") as recorded:
        monkeypatch.setattr(_redaction, "is_identifying", broken)
        rag(user_id=OPAQUE[2])
    assert OPAQUE[2].encode() not in encode_spans(recorded.spans).SerializeToString()
