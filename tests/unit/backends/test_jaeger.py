"""The reader of Jaeger's query API, against a server that answers as Jaeger does."""

from __future__ import annotations

import json

import pytest

from ragtrace.backends import JaegerReader, open_reader
from ragtrace.errors import ConfigError, InputError, ReadError
from ragtrace.traces.otlp import encode_json
from tests.unit.backends.servers import HttpAnswer, http_server
from tests.unit.traces.builders import TRACE_ID, a_span, a_trace

FIRST, SECOND = a_span(1), a_span(2, 1)
BARE = encode_json([FIRST, SECOND])
NOT_FOUND = HttpAnswer(status=404, body=b'{"error":{"httpCode":404,"message":"No traces found"}}')


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(BARE, id="bare"),
        pytest.param(f'{{"result":{BARE}}}', id="wrapped"),
        pytest.param(
            "\n".join(f'{{"result":{encode_json([span])}}}' for span in (FIRST, SECOND)) + "\n", id="streamed"
        ),
    ],
)
async def test_trace_is_read_in_every_form_of_answer(body: str) -> None:
    with http_server(lambda _: HttpAnswer(body=body.encode())) as server:
        reader = JaegerReader(f"{server.url}/")
        assert await reader.get(TRACE_ID) == a_trace(FIRST, SECOND)
        await reader.aclose()
    assert server.requests[0][0] == f"/api/v3/traces/{TRACE_ID}"


async def test_trace_that_jaeger_has_not_is_none() -> None:
    with http_server(lambda _: NOT_FOUND) as server:
        reader = JaegerReader(server.url)
        assert await reader.get(TRACE_ID) is None
        await reader.aclose()


async def test_shortened_trace_id_is_filled_up() -> None:
    with http_server(lambda _: NOT_FOUND) as server:
        reader = JaegerReader(server.url)
        await reader.get("  AB12 ")
        await reader.aclose()
    assert server.requests[0][0] == "/api/v3/traces/" + "0" * 28 + "ab12"


@pytest.mark.parametrize("trace_id", ["", "xyz", "../../admin", "a" * 33])
async def test_what_is_no_trace_id_is_never_asked_for(trace_id: str) -> None:
    reader = JaegerReader("http://127.0.0.1:9")
    with pytest.raises(InputError, match="no trace id"):
        await reader.get(trace_id)


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(status=500),
        HttpAnswer(body=b"<html>"),
        HttpAnswer(body=b"[]"),
        HttpAnswer(body=b"[" * 100_000),
        HttpAnswer(body=json.dumps({"result": {"resourceSpans": 5}}).encode()),
    ],
    ids=["server error", "a page", "a list", "deep", "another form"],
)
async def test_other_answers_are_read_errors(answer: HttpAnswer) -> None:
    with http_server(lambda _: answer) as server:
        reader = JaegerReader(server.url)
        with pytest.raises(ReadError, match="Jaeger at"):
            await reader.get(TRACE_ID)
        await reader.aclose()


async def test_nobody_at_home_is_a_read_error() -> None:
    reader = JaegerReader("http://127.0.0.1:9")
    with pytest.raises(ReadError, match="cannot be reached"):
        await reader.get(TRACE_ID)
    await reader.aclose()


async def test_listing_every_trace_is_refused_with_a_reason() -> None:
    with pytest.raises(ReadError, match="name the trace ids"):
        [trace async for trace in JaegerReader("http://127.0.0.1:9").traces()]


@pytest.mark.parametrize(
    "source", ["jaeger:http://localhost:16686", "http://localhost:16686", "https://j.example.com"]
)
def test_address_chooses_jaeger(source: str) -> None:
    assert isinstance(open_reader(source), JaegerReader)


@pytest.mark.parametrize(
    "source", ["", "jaeger:", "jaeger:localhost", "otlp-file:", "traces.jsonl", "http://[::1"]
)
def test_bad_source_is_a_config_error(source: str) -> None:
    with pytest.raises(ConfigError, match="otlp-file:PATH"):
        open_reader(source)
