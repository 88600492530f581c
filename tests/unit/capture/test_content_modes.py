"""Content on, redacted, hashed and off: what leaves the application, and that it can still be judged."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from tests.unit.capture.conftest import Recorded

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


@contextmanager
def recording(**settings: Any) -> Iterator[Recorded]:
    """Like the fixture, for tests with many examples."""
    ragtrace.uninstrument()
    recorded = Recorded()
    assert ragtrace.instrument(tracer_provider=recorded.provider, only=[], **settings)
    try:
        yield recorded
    finally:
        ragtrace.uninstrument()


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
    with recording(content="redacted") as recorded:
        more: dict[str, Any] = {"user_id": EMAIL, "session_id": f"of {EMAIL}", "chunk_id": f"cv-{EMAIL}"}
        call(
            question,
            chunk,
            answer,
            metadata={"note": answer, answer: 1, "card": 4111111111111111},
            reference=reference,
            **more,
        )
    left = exported(recorded)
    assert [fake for fake in (*FAKES, "4111111111111111") if fake.encode() in left] == []


@given(text=texts)
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    content_filter = ContentFilter(ContentPolicy(mode="redacted"), trace_id=1)
    once = content_filter.redacted(text, Part.ANSWER)
    assert content_filter.redacted(once, Part.ANSWER) == once


@given(st.text(st.characters(exclude_categories=())), st.sampled_from(MODES), st.integers(0, 100))
def test_any_text_is_recorded_in_any_mode_within_its_limit(text: str, mode: Any, limit: int) -> None:
    before = ragtrace.capture.statistics().errors_stopped
    content_filter = ContentFilter(ContentPolicy(mode=mode, max_answer_bytes=limit))
    kept = content_filter.text(text, Part.ANSWER, limit)
    assert (kept is None) == (mode == "off")
    assert len((kept or "").encode()) <= limit
    assert ragtrace.capture.statistics().errors_stopped == before


def test_redacted_the_same_value_is_the_same_pseudonym_in_all_spans_of_a_trace() -> None:
    with recording(content="redacted") as recorded:
        call(f"Is {EMAIL} right?", f"Write to Jane.Doe@Example.com, not to {FAKES[1]}.", f"Write to {EMAIL}.")
    assert recorded.question == "Is <EMAIL_1> right?"
    assert recorded.chunks[0]["content"] == "Write to <EMAIL_1>, not to <EMAIL_2>."
    assert recorded.answer == "Write to <EMAIL_1>."


def test_redacted_a_trace_has_one_count_in_all_its_threads() -> None:
    with recording(content="redacted") as recorded:
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


def test_redacted_two_traces_count_apart() -> None:
    with recording(content="redacted") as recorded:
        for address in (EMAIL, FAKES[1]):
            with ragtrace.rag(question=address):
                pass
    questions = [json.loads(span.attributes[semconv.INPUT_MESSAGES]) for span in recorded.spans]
    assert [question[0]["parts"][0]["content"] for question in questions] == ["<EMAIL_1>", "<EMAIL_1>"]


def test_redacted_with_a_key_all_processes_give_the_same_pseudonym() -> None:
    names = [
        ContentFilter(ContentPolicy(mode="redacted", key=key), trace_id).redacted(EMAIL, Part.ANSWER)
        for key, trace_id in ((KEY, 1), (KEY, 1), (KEY, 2), (KEY[::-1], 1))
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3


async def test_a_redacted_record_is_judged() -> None:
    with recording(content="redacted") as recorded:
        call("Where do returns go?", f"Returns go to {EMAIL}.", f"Returns go to {EMAIL}.")
    evaluation = await ragtrace.evaluate(record(recorded), metrics=["faithfulness"])
    (result,) = evaluation.results
    assert [(verdict.claim.text, verdict.label) for verdict in result.verdicts] == [
        ("Returns go to <EMAIL_1>.", "supported")
    ]


def test_redacted_a_value_across_the_limit_is_no_half_value() -> None:
    policy = ContentPolicy(mode="redacted", max_question_bytes=14, max_answer_bytes=14, max_chunk_bytes=14)
    with recording(content=policy) as recorded:
        with ragtrace.rag(question=f"Write to {EMAIL}") as rag:
            for piece in ("Write to jane", ".doe@exam", "ple.com", " or wait", " " * 8_000):
                rag.add_answer(piece)
        call("", f"Write to {EMAIL}", "")
    assert b"jane" not in exported(recorded)
    assert b"Write to <EMA" in exported(recorded)


def test_redacted_the_hook_comes_after() -> None:
    with recording(
        content="redacted", redact=lambda text, part: text.replace("<EMAIL_1>", "them")
    ) as recorded:
        call(f"Ask {EMAIL}", "", "")
    assert recorded.question == "Ask them"


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
    with recording(content="hashed") as recorded:
        call(f"Who? {question}", f"Ada. {answer}", f"Ada. {answer}", chunk_id="1")
    left = exported(recorded)
    assert b"Who?" not in left
    assert b"Ada." not in left
    assert recorded.chunks[0]["content"] == recorded.answer != recorded.question


def test_hashes_are_stable_under_a_key_and_tell_the_length() -> None:
    assert hashed("größer", b"a key") == "<hashed hmac-sha256 02a7a747c359ca08d2b9a72e883d8927 8 bytes>"
    assert hashed("größer", b"another") != hashed("größer", b"a key")


def test_hashed_content_is_not_judged_and_the_record_says_why() -> None:
    with recording(content="hashed") as recorded:
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
        ({ENV: " Hashed "}, {}, "hashed"),
        ({ENV: "true"}, {}, "on"),
        ({ENV: "0"}, {}, "off"),
        ({ENV: "redcated"}, {}, "off"),
        ({OTEL_CONTENT: "NO_CONTENT"}, {}, "off"),
        ({OTEL_CONTENT: "SPAN_ONLY"}, {}, "on"),
        ({OTEL_CONTENT: "NO_CONTENT", ENV: "1"}, {}, "on"),
        ({}, {"content": False}, "off"),
        ({}, {"content": True}, "on"),
        ({}, {"content": 7}, "off"),
        ({}, {"content": ContentPolicy(mode="off"), "capture_content": True}, "on"),
        ({ENV: "redacted"}, {"content": ContentPolicy(max_chunk_bytes=9)}, "redacted"),
        ({ENV: "off"}, {"content": "hashed"}, "hashed"),
        ({ENV: "hashed"}, {"capture_content": True}, "on"),
        ({}, {"content": "redacted", "capture_content": True}, "redacted"),
        ({}, {"content": "redacted", "capture_content": False}, "off"),
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
    with recording(content=mode) as recorded:
        call("Who?", "Ada.", "Ada.")
    modes = {span.attributes.get(semconv.RAG_CONTENT_MODE) for span in recorded.spans}
    assert modes == {None if mode == "on" else mode}


@pytest.mark.parametrize(
    ("mode", "listed", "kept", "dropped"),
    [
        ("on", None, {"team": "a", "page": 3}, None),
        ("redacted", None, {"team": "a", "page": 3}, None),
        ("hashed", None, {}, 2),
        ("off", None, {}, 2),
        ("on", ["team"], {"team": "a"}, 1),
        ("hashed", ["team"], {"team": "a"}, 1),
        ("off", {"page"}, {"page": 3}, 1),
        ("on", (), {}, 2),
    ],
)
def test_metadata_that_is_not_listed_is_dropped_and_counted(
    mode: Any, listed: Any, kept: dict[str, object], dropped: int | None
) -> None:
    metadata = {"team": "a", "page": 3}
    policy = ContentPolicy(mode=mode, metadata=listed)
    with (
        recording(content=policy) as recorded,
        ragtrace.rag(metadata=metadata),
        ragtrace.retrieval() as search,
    ):
        search.set_chunks([{"id": "a", "text": "b", "metadata": metadata}])
    root, retrieval = recorded.span("rag").attributes, recorded.span("retrieval").attributes
    prefix = semconv.RAG_METADATA_PREFIX
    assert {key.removeprefix(prefix): root[key] for key in root if key.startswith(prefix)} == kept
    assert recorded.chunks[0].get("metadata", {}) == kept
    assert root.get(semconv.RAG_METADATA_DROPPED) == retrieval.get(semconv.RAG_METADATA_DROPPED) == dropped


def test_metadata_and_references_have_limits() -> None:
    policy = ContentPolicy(max_metadata_bytes=5, max_reference_bytes=3)
    with recording(content=policy) as recorded:
        call("", "", "", metadata={"a": "1234", "b": "5"}, reference="Lovelace")
    attributes = recorded.span("rag").attributes
    assert f"{semconv.RAG_METADATA_PREFIX}b" not in attributes
    assert attributes[semconv.REFERENCE_ANSWER] == "Lov"
    assert attributes[semconv.RAG_TRUNCATED] == ("metadata", "reference")


def test_ids_have_a_limit() -> None:
    with recording() as recorded:
        call("Who?", "Ada.", "Ada.", user_id="x" * 9_000)
    assert len(recorded.span("rag").attributes[semconv.USER_ID]) == semconv.SAFE_STRING_BYTES


def test_off_nothing_is_computed_from_a_text() -> None:
    with recording(content="off") as recorded, ragtrace.retrieval() as search:
        search.set_chunks(["Ada."])
    assert recorded.chunks == [{"id": "unnamed-0"}]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"mode": "secret"}, "mode"),
        ({"metadata": "team"}, "metadata"),
        ({"key": "short"}, "key"),
        ({"max_chunk_bytes": -1}, "max_chunk_bytes"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_name(settings: Any, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        ContentPolicy(**settings)


def test_a_key_is_not_shown() -> None:
    assert KEY not in repr(ContentPolicy(key=KEY))


def test_what_an_unknown_mode_turns_off_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with recording(content="redcated") as recorded:
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
        with recording(content="redacted") as recorded:
            tracer = tracer_of(recorded, mode="redacted")
            with ragtrace.rag(question=FAKES[1]) as rag, tracer.start_as_current_span("chat") as span:
                span.set_attribute("output.value", f"{EMAIL} for {FAKES[1]}")
                rag.set_answer(EMAIL)
        chat, _ = recorded.spans
        assert chat.attributes["output.value"] == "<EMAIL_1> for <EMAIL_2>"
        assert recorded.answer == "<EMAIL_1>"

    def test_the_applications_hook_sees_its_texts(self, tracer_of: Any) -> None:
        recorded = Recorded()
        tracer = tracer_of(recorded, redact=lambda text, part: text.upper())
        with tracer.start_as_current_span("chat", attributes={"input.value": "who?", "llm.system": "openai"}):
            pass
        assert recorded.spans[0].attributes["input.value"] == "WHO?"
        assert recorded.spans[0].attributes["llm.system"] == "openai"
