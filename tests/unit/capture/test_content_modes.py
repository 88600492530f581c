"""Content on, redacted, hashed and off: what leaves the application, and that it can still be judged."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

import ragtrace
from ragtrace import ContentPolicy, semconv
from ragtrace.capture.instrumentation import resolve
from ragtrace.capture.privacy.policy import MODES, ContentFilter, hashed
from ragtrace.errors import ConfigError
from ragtrace.model import Part, RagRecord, SkipReason
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Trace
from tests.unit.capture.conftest import Recorded, recording_with

EMAIL = "jane.doe@example.com"
KEY = "0123456789abcdef"
ENV = "RAGTRACE_CAPTURE_CONTENT"
OTEL_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
FAKES = (
    *(EMAIL, "Max.Müller+1@büro.example", "+49 30 901820", "(212) 555-0123", "020 7946 0958"),
    *("4111 1111 1111 1111", "3782-822463-10005", "DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819"),
    *("192.168.17.20", "2001:db8::4711", "sk-proj-abcdefghijklmnopqrst", "AKIAIOSFODNN7EXAMPLE"),
    *("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "536-90-4399"),
)
fakes = st.sampled_from(FAKES)
words = st.sampled_from(
    ["Write to", "or call", "not", "is due, see", "in 14 days.", "\n-", "für", "«", "請", "1."]
)
texts = st.lists(st.one_of(words, fakes), max_size=12).map(", ".join)


def call(question: str, chunk: str, answer: str, chunk_id: str | None = None, **more: Any) -> None:
    with ragtrace.rag(question=question, **more) as rag:
        with ragtrace.retrieval(query=question) as search:
            search.set_chunks(
                [{"id": chunk_id or chunk[:40], "text": chunk, "metadata": {"note": chunk, chunk: [chunk]}}]
            )
        with ragtrace.generation(prompt=f"{chunk}\n{question}") as chat:
            chat.set_answer(answer)
        rag.set_answer(answer)


def exported(recorded: Recorded) -> bytes:
    return encode_spans(recorded.spans).SerializeToString()


def record(recorded: Recorded) -> RagRecord:
    spans = decode(exported(recorded))
    (found,) = extract_records(Trace(trace_id=spans[0].trace_id, spans=spans)).records
    return found


@given(question=texts, chunk=texts, answer=texts, reference=texts)
def test_redacted_no_value_survives_in_any_exported_byte(
    question: str, chunk: str, answer: str, reference: str
) -> None:
    told: dict[str, Any] = {"metadata": {"note": answer, answer: 1, "card": 4111111111111111}}
    told |= {"user_id": EMAIL, "session_id": f"of {EMAIL}", "chunk_id": f"cv-{EMAIL}", "reference": reference}
    with recording_with(content="redacted") as recorded:
        call(question, chunk, answer, **told)
    left = exported(recorded)
    assert [fake for fake in (*FAKES, "4111111111111111") if fake.encode() in left] == []


@given(st.text(st.characters(exclude_categories=())), st.sampled_from(MODES), st.integers(0, 100))
def test_any_text_is_recorded_in_any_mode_within_its_limit(text: str, mode: Any, limit: int) -> None:
    before = ragtrace.capture.statistics().errors_stopped
    content_filter = ContentFilter(ContentPolicy(mode=mode, max_answer_bytes=limit))
    kept = content_filter.text(text, Part.ANSWER, limit)
    assert (kept is None) == (mode == "off")
    assert len((kept or "").encode()) <= limit
    assert ragtrace.capture.statistics().errors_stopped == before


def test_redacted_the_same_value_is_the_same_pseudonym_in_all_spans_of_a_trace_and_of_no_other() -> None:
    for _ in range(2):
        with recording_with(content="redacted") as recorded:
            call(f"Is {EMAIL} it?", f"Write to Jane.Doe@Example.com, not to {FAKES[1]}.", f"Ask {EMAIL}.")
        assert recorded.question == "Is <EMAIL_1> it?"
        assert recorded.chunks[0]["content"] == "Write to <EMAIL_1>, not to <EMAIL_2>."
        assert recorded.answer == "Ask <EMAIL_1>."
        with recording_with(content="redacted") as recorded, ragtrace.rag(question=FAKES[1]):
            pass
        assert recorded.question == "<EMAIL_1>"


def test_redacted_a_trace_has_one_count_in_all_its_threads() -> None:
    with recording_with(content="redacted") as recorded:
        with ragtrace.rag(question=EMAIL) as rag:

            def search(number: int) -> None:
                with ragtrace.retrieval(parent=rag) as retrieval:
                    retrieval.set_chunks([f"{EMAIL} and user{number}@example.com"])

            threads = [threading.Thread(target=search, args=[number % 4]) for number in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        retrievals = [span for span in recorded.spans if span.attributes[semconv.RAG_KIND] == "retrieval"]
        pairs = {
            json.loads(span.attributes[semconv.RAG_DOCUMENTS][0])["content"].partition(" and ")[::2]
            for span in retrievals
        }
    assert len({first for first, _ in pairs}) == 1
    assert {name for pair in pairs for name in pair} == {f"<EMAIL_{number}>" for number in range(1, 6)}


def test_redacted_with_a_key_all_processes_give_the_same_pseudonym() -> None:
    names = [
        ContentFilter(ContentPolicy(mode="redacted", key=key), trace_id).redacted(EMAIL, Part.ANSWER)
        for key, trace_id in ((KEY, 1), (KEY, 1), (KEY, 2), (KEY[::-1], 1))
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3


async def test_a_redacted_record_is_judged() -> None:
    with recording_with(content="redacted") as recorded:
        call("Where do returns go?", f"Returns go to {EMAIL}.", f"Returns go to {EMAIL}.")
    evaluation = await ragtrace.evaluate(record(recorded), metrics=["faithfulness"])
    (result,) = evaluation.results
    assert [(verdict.claim.text, verdict.label) for verdict in result.verdicts] == [
        ("Returns go to <EMAIL_1>.", "supported")
    ]


def test_redacted_a_value_across_the_limit_is_no_half_value() -> None:
    policy = ContentPolicy(mode="redacted", max_question_bytes=14, max_answer_bytes=14, max_chunk_bytes=14)
    with recording_with(content=policy) as recorded:
        with ragtrace.rag(question=f"Write to {EMAIL}") as rag:
            for piece in ("Write to jane", ".doe@exam", "ple.com", " or wait", " " * 8_000):
                rag.add_answer(piece)
        call("", f"Write to {EMAIL}", "")
    assert b"jane" not in exported(recorded)
    assert b"Write to <EMA" in exported(recorded)


@pytest.mark.slow
def test_redacted_without_the_extra_content_is_off_and_says_so_once() -> None:
    program = (
        "import sys, logging; sys.modules['phonenumbers'] = None; logging.basicConfig()\n"
        "import ragtrace\n"
        "from ragtrace.capture._guard import active\n"
        "assert ragtrace.instrument(content='redacted', endpoint='http://127.0.0.1:1')\n"
        "ragtrace.instrument(content='redacted', endpoint='http://127.0.0.1:1')\n"
        "print(active().policy.mode)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "off\n"
    (line,) = run.stderr.splitlines()
    assert line.startswith(
        "WARNING:ragtrace:ragtrace: content is off: redaction needs phonenumbers: pip install "
    )
    assert "[privacy]" in line


@given(texts, texts)
def test_hashed_no_text_is_exported_and_equal_texts_are_told(question: str, answer: str) -> None:
    with recording_with(content="hashed") as recorded:
        call(f"Who? {question}", f"Ada. {answer}", f"Ada. {answer}", chunk_id="1")
    left = exported(recorded)
    assert b"Who?" not in left
    assert b"Ada." not in left
    assert recorded.chunks[0]["content"] == recorded.answer != recorded.question


def test_hashes_are_stable_under_a_key_and_tell_the_length() -> None:
    assert hashed("größer", b"a key") == "<hashed hmac-sha256 02a7a747c359ca08d2b9a72e883d8927 8 bytes>"
    assert hashed("größer", b"another") != hashed("größer", b"a key")


def test_hashed_content_is_not_judged_and_the_record_says_why() -> None:
    with recording_with(content="hashed") as recorded:
        call("Who?", "Ada.", "Ada.")
    gaps = record(recorded).gaps
    assert {gap.part: gap.reason for gap in gaps} == dict.fromkeys(
        (Part.QUESTION, Part.CONTEXT, Part.ANSWER), SkipReason.REDACTED
    )
    assert all("hashed" in gap.detail for gap in gaps)


@pytest.mark.parametrize(
    ("env", "code", "mode"),
    [
        *(({ENV: mode}, {}, mode) for mode in MODES),
        ({ENV: "true"}, {}, "on"),
        ({ENV: "0"}, {}, "off"),
        ({ENV: "redcated"}, {}, "off"),
        ({OTEL_CONTENT: "NO_CONTENT"}, {}, "off"),
        ({OTEL_CONTENT: "SPAN_ONLY"}, {}, "on"),
        ({OTEL_CONTENT: "NO_CONTENT", ENV: "1"}, {}, "on"),
        ({}, {"content": False}, "off"),
        ({ENV: "redacted"}, {"content": ContentPolicy(max_chunk_bytes=9)}, "redacted"),
        ({ENV: "off"}, {"content": "hashed"}, "hashed"),
        ({"RAGTRACE_CONTENT_KEY": "short"}, {}, "off"),
        ({"RAGTRACE_CONTENT_KEY": KEY}, {}, "on"),
    ],
)
def test_the_mode_is_what_code_says_else_the_environment(env: Any, code: Any, mode: str) -> None:
    policy = resolve(env, **code).policy
    assert policy.mode == mode
    assert policy.key == (KEY if KEY in env.values() else None)


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_stands_on_every_span(mode: Any) -> None:
    with recording_with(content=mode) as recorded:
        call("Who?", "Ada.", "Ada.")
    modes = {span.attributes.get(semconv.RAG_CONTENT_MODE) for span in recorded.spans}
    assert modes == {None if mode == "on" else mode}


@pytest.mark.parametrize(
    ("mode", "listed", "kept", "dropped"),
    [
        ("on", None, {"team": "a", "page": 3}, None),
        ("hashed", None, {}, 2),
        ("off", None, {}, 2),
        ("on", ["team"], {"team": "a"}, 1),
        ("hashed", ["team"], {"team": "a"}, 1),
        ("on", (), {}, 2),
    ],
)
def test_metadata_that_is_not_listed_is_dropped_and_counted(
    mode: Any, listed: Any, kept: dict[str, object], dropped: int | None
) -> None:
    metadata = {"team": "a", "page": 3}
    policy = ContentPolicy(mode=mode, metadata=listed)
    with (
        recording_with(content=policy) as recorded,
        ragtrace.rag(metadata=metadata),
        ragtrace.retrieval() as search,
    ):
        search.set_chunks([{"id": "a", "text": "b", "metadata": metadata}])
    root, retrieval = recorded.span("rag").attributes, recorded.span("retrieval").attributes
    prefix = semconv.RAG_METADATA_PREFIX
    assert {key.removeprefix(prefix): root[key] for key in root if key.startswith(prefix)} == kept
    assert recorded.chunks[0].get("metadata", {}) == kept
    assert root.get(semconv.RAG_METADATA_DROPPED) == retrieval.get(semconv.RAG_METADATA_DROPPED) == dropped


def test_metadata_references_and_ids_have_limits() -> None:
    policy = ContentPolicy(max_metadata_bytes=5, max_reference_bytes=3, key=KEY)
    assert KEY not in repr(policy)
    with recording_with(content=policy) as recorded:
        call("", "", "", metadata={"a": "1234", "b": "5"}, reference="Lovelace", user_id="x" * 9_000)
    attributes = recorded.span("rag").attributes
    assert f"{semconv.RAG_METADATA_PREFIX}b" not in attributes
    assert attributes[semconv.REFERENCE_ANSWER] == "Lov"
    assert attributes[semconv.RAG_TRUNCATED] == ("metadata", "reference")
    assert len(attributes[semconv.USER_ID]) == semconv.SAFE_STRING_BYTES


def test_off_nothing_is_computed_from_a_text() -> None:
    with recording_with(content="off") as recorded, ragtrace.retrieval() as search:
        search.set_chunks(["Ada."])
    assert recorded.chunks == [{"id": "unnamed-0"}]


def test_a_policy_that_cannot_be_meant_is_refused_by_name_and_an_unknown_mode_turns_content_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong: dict[str, Any] = {"mode": "secret", "metadata": "team", "key": "short", "max_chunk_bytes": -1}
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=name):
            ContentPolicy(**{name: value})
    caplog.set_level(logging.ERROR)
    with recording_with(content="redcated") as recorded:
        call("secret", "secret", "secret", chunk_id="1")
    assert b"secret" not in exported(recorded)
    assert "off" in caplog.text


class TestOtherLibraries:
    """Spans that an instrumentor writes with the tracer it is given."""

    @pytest.fixture
    def tracer_of(self) -> Callable[..., Any]:
        from ragtrace.capture.tracers import PolicedProvider

        def tracer(recorded: Recorded, **settings: Any) -> Any:
            return PolicedProvider(recorded.provider, ContentPolicy(**settings)).get_tracer("other")

        return tracer

    def test_no_value_survives_on_attributes_events_and_status(self, tracer_of: Any) -> None:
        recorded = Recorded()
        document = json.dumps({EMAIL: [f"line\n{EMAIL}", {"card": 4111111111111111}]})
        tracer = tracer_of(recorded, mode="redacted")
        given = {"input.value": document, "tags": [EMAIL]}
        with suppress(ValueError), tracer.start_as_current_span("chat", attributes=given) as span:
            span.set_attribute("output.value", EMAIL)
            span.set_attributes({"user.id": EMAIL, "llm.model_name": "gpt-4o-2024-08-06", "count": 3})
            span.add_event("said", {"text": EMAIL})
            raise ValueError(EMAIL)
        left = exported(recorded)
        assert EMAIL.encode() not in left
        assert b"4111111111111111" not in left
        attributes = recorded.spans[0].attributes
        assert json.loads(attributes["input.value"]) == {
            "<EMAIL_1>": ["line\n<EMAIL_1>", {"card": "<CARD_1>"}]
        }
        assert (attributes["llm.model_name"], attributes["count"]) == ("gpt-4o-2024-08-06", 3)

    def test_its_pseudonyms_are_those_of_the_trace(self, tracer_of: Any) -> None:
        with recording_with(content="redacted") as recorded:
            tracer = tracer_of(recorded, mode="redacted")
            with ragtrace.rag(question=FAKES[1]) as rag, tracer.start_as_current_span("chat") as span:
                span.set_attribute("output.value", f"{EMAIL} for {FAKES[1]}")
                rag.set_answer(EMAIL)
        chat, _ = recorded.spans
        assert chat.attributes["output.value"] == "<EMAIL_1> for <EMAIL_2>"
        assert recorded.answer == "<EMAIL_1>"
