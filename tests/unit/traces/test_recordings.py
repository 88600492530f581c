"""The records of real libraries' traces, beside what the applications did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.model import Part, SkipReason
from tests.unit.traces.recordings import Agreement, Recording, agreement, all_recordings, records_of

MISSING, PARTIAL, DIFFERENT = Agreement.MISSING, Agreement.PARTIAL, Agreement.DIFFERENT

_CHUNKS_IN_THE_PROMPT = {"chunks": MISSING, "ids": MISSING, "scores": MISSING}
"""No span is of the retriever, or it does not say what it found."""
_PASSAGES_OF_THE_PROMPT = {"ids": MISSING, "scores": MISSING}
"""Nothing says what was retrieved; the passages of the prompt are the context, and have no ids."""
_NO_CONTENT = {"question": MISSING, "chunks": MISSING, "ids": MISSING, "answer": MISSING}
"""The content was switched off, or hidden: a gap says so."""

SHORTFALLS: Mapping[str, Mapping[str, Agreement]] = {
    **dict.fromkeys(
        (
            *("logfire.openai-chat", "openai-v2.openai-async", "openai-v2.openai-chat"),
            *("openai-v2.openai-streaming", "openinference.anthropic", "openinference.openai-async"),
            *("openinference.openai-chat", "openinference.openai-responses"),
            *("openinference.openai-abandoned", "openinference.openai-choices"),
            *("openinference.openai-streaming", "openllmetry.anthropic", "openllmetry.openai-async"),
            *("openllmetry.openai-chat", "openllmetry.openai-responses", "openllmetry.openai-abandoned"),
            *("openllmetry.openai-choices", "openllmetry.openai-streaming", "otel-genai.anthropic"),
            *("otel-genai.anthropic-async", "otel-genai.anthropic-async.both"),
            *("otel-genai.anthropic-streaming", "otel-genai.anthropic-streaming.both"),
            *("otel-genai.anthropic.both", "otel-genai.bedrock", "otel-genai.bedrock.both"),
            *("otel-genai.dspy", "otel-genai.dspy.both", "otel-genai.openai-async"),
            *("otel-genai.openai-async.both", "otel-genai.openai-chat.both"),
            *("otel-genai.openai-responses.both", "otel-genai.openai-streaming.both"),
            *("openai-v2.openai-closed", "otel-genai.openai-abandoned", "otel-genai.openai-chat"),
            *("otel-genai.openai-closed", "otel-genai.openai-responses", "otel-genai.openai-streaming"),
            *("openllmetry.qdrant",),
        ),
        _PASSAGES_OF_THE_PROMPT,
    ),
    **dict.fromkeys(
        ("openllmetry.haystack", "openllmetry.haystack-hybrid"),
        _CHUNKS_IN_THE_PROMPT,
    ),
    "haystack.haystack.off": {**_CHUNKS_IN_THE_PROMPT, "answer": MISSING, "model": MISSING},
    "llamaindex.llamaindex-streaming": {"answer": MISSING, "model": MISSING},
    "openai-v2.openai-chat.events": _NO_CONTENT | {"scores": MISSING},
    "otel-genai.langchain.off": _NO_CONTENT,
    "mlflow.mlflow-decorated": {"scores": MISSING, "session": MISSING},
    **dict.fromkeys(
        (
            *("otel-genai.anthropic-tools", "otel-genai.anthropic-tools.both"),
            *("otel-genai.openai-agents", "otel-genai.openai-agents-streaming"),
            *("otel-genai.openai-agents-streaming.both", "otel-genai.openai-agents.both"),
            *("otel-genai.openai-tools", "otel-genai.openai-tools.both"),
        ),
        _PASSAGES_OF_THE_PROMPT | {"chunks": DIFFERENT},  # each result of a tool is one chunk
    ),
    **dict.fromkeys(
        (
            *("otel-genai.anthropic-async.events", "otel-genai.anthropic-streaming.events"),
            *("otel-genai.anthropic-tools.events", "otel-genai.anthropic.events"),
            *("otel-genai.bedrock.events", "otel-genai.dspy.events"),
            *("otel-genai.llamaindex-agent.events", "otel-genai.llamaindex-async.events"),
            *("otel-genai.llamaindex-streaming.events", "otel-genai.llamaindex.events"),
            *("otel-genai.openai-agents-streaming.events", "otel-genai.openai-agents.events"),
            *("otel-genai.openai-async.events", "otel-genai.openai-chat.events"),
            *("otel-genai.openai-responses.events", "otel-genai.openai-streaming.events"),
            *("otel-genai.openai-tools.events",),
        ),
        _NO_CONTENT | {"scores": MISSING},
    ),
    **dict.fromkeys(
        (
            "otel-genai.langchain-agent.events",
            "otel-genai.langchain-async.events",
            "otel-genai.langchain-streaming.events",
            "otel-genai.langchain.events",
        ),
        _NO_CONTENT,
    ),
    "openai-v2.openai-chat.off": _NO_CONTENT | {"scores": MISSING},
    "openinference.llamaindex-many": {"ids": PARTIAL, "scores": PARTIAL},
    "openinference.langchain.hidden": _NO_CONTENT,
    "openllmetry.langchain.off": _NO_CONTENT,
    "openllmetry.langchain-agent": {"ids": MISSING},
    "openllmetry.langchain-streaming": {"ids": MISSING},
    "tempo.openinference.langchain-forty": {"ids": MISSING},
    "tempo.openllmetry.langchain-agent": {"ids": MISSING},
    "tempo.openllmetry.llamaindex-reranker": {"ids": PARTIAL, "scores": PARTIAL},
}
"""What a convention does not carry, or carries in another form. Everything else is the same as the truth."""

WITHOUT_TEXTS = {
    f"otel-genai.{program}{where}"
    for where in ("", ".both")
    for program in (
        *("langchain", "langchain-async", "langchain-streaming", "llamaindex", "llamaindex-async"),
        "llamaindex-streaming",
    )
}
"""Retrievals with ids and scores alone, as the convention has it: the prompt has the texts."""


def recording_named(name: str) -> Recording:
    (found,) = (each for each in all_recordings() if each.name == name)
    return found


@pytest.mark.parametrize(
    "name", ["openinference.two-services", "openllmetry.two-services", "ragtrace.two-services"]
)
def test_two_services_share_a_record(name: str) -> None:
    (recording,) = (each for each in all_recordings() if each.name == name)
    (record,) = records_of(recording)
    services = {span.resource.attributes["service.name"] for span in recording.spans}
    found_in = {chunk.span_id for chunk in record.chunks}
    searched = {
        span.span_id for span in recording.spans if span.resource.attributes["service.name"] == "search"
    }
    assert services == {"handbook", "search"}
    assert found_in <= searched


def test_late_carrier_lies_within_the_answer_it_is_about() -> None:
    recording = recording_named("tempo.ragtrace.openai-chat.judged")
    (carrier,) = (span for span in recording.spans if span.scope.name == semconv.SCOPE_EVALUATION)
    (target,) = (span for span in recording.spans if span.span_id == carrier.parent_span_id)
    assert target.start_ns <= carrier.start_ns <= carrier.end_ns <= target.end_ns


@pytest.mark.parametrize("recording", all_recordings(), ids=lambda recording: recording.name)
def test_record_agrees_with_what_the_application_did(recording: Recording) -> None:
    (record,) = records_of(recording)  # one question is one record
    name, shortfalls = recording.name, SHORTFALLS.get(recording.name, {})
    found = agreement(recording)
    assert {part: how for part, how in found.items() if how is not Agreement.SAME} == shortfalls
    gap = record.gap(Part.ANSWER)
    is_incomplete = gap is not None and gap.reason is SkipReason.INCOMPLETE
    assert is_incomplete is name.endswith(("openai-abandoned", "openai-closed"))  # not read to their end
    assert record.context_from_prompt is (shortfalls is _PASSAGES_OF_THE_PROMPT or name in WITHOUT_TEXTS)
    is_chat = name.endswith(("-talk", "-agent", ".generate", ".stream")) or "pydantic" in name
    assert not (is_chat and record.context_from_prompt)


@given(st.sampled_from(all_recordings()), st.randoms(use_true_random=False))
def test_order_parts_and_copies_of_spans_do_not_matter(recording: Recording, random: Random) -> None:
    spans = [*recording.spans, *random.sample(recording.spans, k=len(recording.spans) // 2)]
    random.shuffle(spans)
    assert records_of(replace(recording, spans=tuple(spans))) == records_of(recording)


@given(st.sampled_from(all_recordings()), st.randoms(use_true_random=False))
def test_spans_that_did_not_come_leave_gaps_and_no_exception(recording: Recording, random: Random) -> None:
    seen = random.sample(recording.spans, k=random.randint(0, len(recording.spans)))
    for record in records_of(replace(recording, spans=tuple(seen))):
        covered = {gap.part for gap in record.gaps} | {where.part for where in record.provenance}
        assert {Part.QUESTION, Part.CONTEXT, Part.ANSWER} <= covered


def test_every_known_shortfall_is_of_a_recording() -> None:
    assert SHORTFALLS.keys() <= {recording.name for recording in all_recordings()}
