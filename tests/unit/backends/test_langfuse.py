"""Langfuse, against a stand-in that answers as its API reference says."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.backends import open_carrier_sink, open_reader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.langfuse import LangfuseReader
from ragtrace.errors import ReadError
from ragtrace.model import RagRecord, Sample
from ragtrace.ports import TraceQuery
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span, Trace
from tests.unit.backends.langfuse_server import langfuse_v3, langfuse_v4, observation_of
from tests.unit.backends.servers import HttpAnswer, http_server
from tests.unit.traces.builders import a_failure, a_result, an_evaluation
from tests.unit.traces.recordings import all_recordings

KEYS = ConnectionSettings(basic=("pk-lf-1", "sk-lf-2"))
VERSIONS = pytest.mark.parametrize("version", [langfuse_v3, langfuse_v4])
DAY = TraceQuery(since_ns=0, until_ns=86_400 * 10**9)
Version = Callable[..., Callable[[str], HttpAnswer]]


def recorded(name: str) -> tuple[Span, ...]:
    (recording,) = (each for each in all_recordings() if each.name == name)
    return recording.spans


def told(records: Sequence[RagRecord]) -> list[tuple[object, ...]]:
    return [
        (record.id, record.question, record.answer, [(chunk.id, chunk.text) for chunk in record.chunks])
        for record in records
    ]


async def got(answer: Callable[[str], HttpAnswer], trace_id: str) -> Trace:
    with http_server(answer) as server:
        async with aclosing(open_reader(f"langfuse:{server.url}", access=KEYS)) as reader:
            trace = await reader.get(trace_id)
    assert trace is not None
    return trace


@VERSIONS
@pytest.mark.parametrize(
    "name",
    [
        "langfuse.langfuse-langchain",
        "langfuse.langfuse-decorated",
        "openinference.langchain",
        "openllmetry.langchain",
        "ragtrace.openai-chat",
        "ragtrace.langchain",
    ],
)
async def test_langfuse_and_a_file_give_the_same_record(version: Version, name: str) -> None:
    spans = recorded(name)
    trace = {"id": spans[0].trace_id, "timestamp": "2026-11-20T10:00:00.000Z"}
    found = await got(version(trace, [observation_of(span) for span in spans]), trace["id"])
    expected = Trace.of(trace["id"], spans)
    assert told(extract_records(found).records) == told(extract_records(expected).records)
    assert [span.resource for span in found.spans] == [span.resource for span in expected.spans]


OLD_TRACE = {
    "id": "6f1b1c2e-3a44-4a53-9d8e-6a5a4d2c1b00",
    "name": "ask",
    "timestamp": "2026-11-20T10:00:00.000Z",
    "input": {"question": "How long is the warranty?"},
    "output": "It lasts 24 months.",
    "sessionId": "session-7",
}
OLD: dict[str, Any] = {"traceId": OLD_TRACE["id"], "parentObservationId": None, "level": "DEFAULT"}
OLD_OBSERVATIONS = [
    OLD
    | {
        "id": "obs-1",
        "type": "RETRIEVER",
        "name": "search",
        "input": "warranty",
        "model": None,
        "metadata": None,
    }
    | {"startTime": "2026-11-20T10:00:00.100Z", "endTime": "2026-11-20T10:00:00.200Z"}
    | {"output": [{"id": "faq-1", "page_content": "The warranty lasts 24 months."}]},
    OLD
    | {"id": "obs-2", "type": "GENERATION", "name": "answer", "model": "gpt-4o-mini", "promptVersion": 3}
    | {"startTime": "2026-11-20T10:00:00.300Z", "endTime": None, "metadata": {}}
    | {"input": [{"role": "user", "content": "How long is the warranty?"}]}
    | {"output": {"role": "assistant", "content": "It lasts 24 months."}},
]


def verdict_on(trace: Trace, *, failing: bool = False) -> Span:
    (record,) = extract_records(trace).records
    evaluation = an_evaluation(
        a_result(), a_failure("context_precision") if failing else a_result(metric="other")
    )
    sample = Sample(rule="ratio", rate=1, probability=1)
    return carrier(evaluation, record, sample=sample, options=AttachOptions(), now_ns=2 * 10**18)


async def test_trace_from_before_opentelemetry_is_itself_the_call() -> None:
    trace = await got(langfuse_v3(OLD_TRACE, OLD_OBSERVATIONS), OLD_TRACE["id"])
    (record,) = extract_records(trace).records
    assert (record.question, record.answer) == ("How long is the warranty?", "It lasts 24 months.")
    assert [chunk.id for chunk in record.chunks] == ["faq-1"]
    assert (record.session_id, record.model, record.prompt_version) == ("session-7", "gpt-4o-mini", "3")
    assert {len(span.trace_id) for span in trace.spans} == {32}
    assert {len(span.span_id) for span in trace.spans} == {16}


async def sent(verdict: Span, *answers: HttpAnswer) -> list[tuple[str, dict[str, str], Any]]:
    """Send a verdict, and return what Langfuse got."""
    waiting = list(answers)
    with http_server(lambda _: waiting.pop(0) if waiting else HttpAnswer(body=b'{"id":"1"}')) as server:
        async with aclosing(open_carrier_sink(f"langfuse:{server.url}", access=KEYS)) as sink:
            await sink.send(encode([verdict]))
    return [(path, headers, json.loads(body)) for path, headers, body in server.requests]


async def test_scores_name_trace_and_observation_as_langfuse_does() -> None:
    spans = recorded("langfuse.langfuse-langchain")
    trace = await got(
        langfuse_v3(
            {"id": spans[0].trace_id, "timestamp": "2026-11-20T10:00:00Z"}, [observation_of(x) for x in spans]
        ),
        spans[0].trace_id,
    )
    verdict = verdict_on(trace)
    (path, headers, score), _ = await sent(verdict)
    assert path == "/api/public/scores"
    assert headers["authorization"] == f"Basic {b64encode(b'pk-lf-1:sk-lf-2').decode()}"
    assert (score["id"], score["name"]) == (f"{verdict.span_id}-faithfulness", "faithfulness")
    assert (score["traceId"], score["observationId"]) == (verdict.trace_id, verdict.parent_span_id)
    assert (score["value"], score["dataType"]) == (0.5, "NUMERIC")
    assert score["metadata"][semconv.CARRIER_SPAN_ID] == verdict.span_id
    assert score["metadata"][semconv.EVALUATION_LABEL] == "fail"


@VERSIONS
async def test_what_was_scored_before_is_known_again(version: Version) -> None:
    spans = recorded("langfuse.langfuse-langchain")
    trace = {"id": spans[0].trace_id, "timestamp": "2026-11-20T10:00:00.000Z"}
    observations = [observation_of(span) for span in spans]
    verdict = verdict_on(await got(version(trace, observations), trace["id"]))
    scores = [
        {**score, "subject": {"kind": "observation", "id": score["observationId"], "traceId": trace["id"]}}
        for _, _, score in await sent(verdict)
    ]
    strangers = [{"id": "1", "name": "thumbs", "value": 1, "metadata": None, "traceId": trace["id"]}]
    found = await got(version(trace, observations, scores=[*scores, *strangers]), trace["id"])
    (known,) = [span for span in found.spans if span.scope.name == semconv.SCOPE_EVALUATION]
    assert (known.span_id, known.parent_span_id) == (verdict.span_id, verdict.parent_span_id)
    labels = {key: value for key, value in verdict.attributes.items() if key.startswith(semconv.LABEL_PREFIX)}
    assert labels.items() <= known.attributes.items()
    assert known.attributes[semconv.EVAL_STARTED_AT] == verdict.attributes[semconv.EVAL_STARTED_AT]


async def test_search_follows_cursors_in_version_4() -> None:
    spans = recorded("langfuse.langfuse-langchain")
    trace_id = spans[0].trace_id
    with http_server(langfuse_v4({"id": trace_id}, [observation_of(span) for span in spans])) as server:
        async with aclosing(LangfuseReader(server.url)) as reader:
            roots = await reader.search(DAY)
            named = await reader.search(replace(DAY, operation="VectorStoreRetriever"))
    assert list(roots.found) == list(named.found) == [trace_id]
    assert sum("name=VectorStoreRetriever" in path for path, _, _ in server.requests) == len(spans)


@pytest.mark.parametrize("query", [replace(DAY, service="shop"), replace(DAY, tags={"tier": "gold"})])
async def test_what_langfuse_cannot_look_for_is_told_before_it_is_asked(query: TraceQuery) -> None:
    async with aclosing(LangfuseReader("http://127.0.0.1:9")) as reader:
        with pytest.raises(ReadError, match="environment, sessionId, userId, version"):
            await reader.search(query)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (HttpAnswer(status=401, body=b'{"message":"Invalid credentials"}'), "refused the credentials"),
        (HttpAnswer(status=404), "is this Langfuse's address"),
        (HttpAnswer(status=400, body=b'{"message":"Invalid date"}'), "does not understand the query"),
        (HttpAnswer(body=b"<html>"), "web page"),
        (HttpAnswer(body=b"[]"), "unexpected form"),
        (HttpAnswer(body=b'{"data":[{"id":1,"traceId":"1"}],"meta":{}}'), "unreadable response: KeyError"),
    ],
    ids=["keys", "address", "query", "page", "list", "observations"],
)
async def test_other_answers_are_read_errors(answer: HttpAnswer, said: str) -> None:
    with http_server(lambda _: answer) as server:
        async with aclosing(LangfuseReader(server.url)) as reader:
            with pytest.raises(ReadError, match=said):
                await reader.get("1")
