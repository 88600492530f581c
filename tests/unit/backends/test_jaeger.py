"""The reader of Jaeger's query API, against a server that answers as Jaeger does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ragtrace.backends import JaegerReader, open_reader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, InputError, ReadError
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import SpanKind
from tests.unit.backends.servers import HttpAnswer, http_server
from tests.unit.traces.builders import TRACE_ID, a_span, a_trace

FIRST, SECOND = a_span(1), a_span(2, 1)
BARE = encode_json([FIRST, SECOND])
NOT_FOUND = HttpAnswer(status=404, body=b'{"error":{"httpCode":404,"message":"No traces found"}}')


async def no_pause(seconds: float) -> None:
    """Wait for nothing."""


def jaeger(answer: HttpAnswer, *, version: int = 3) -> Callable[[str], HttpAnswer]:
    """Answer as a Jaeger of this version does that has one service."""
    services = {"/api/v3/services": b'{"services":["shop"]}', "/api/services": b'{"data":["shop"]}'}
    page = HttpAnswer(body=b"<!doctype html>", headers={"content-type": "text/html"})

    def reply(path: str) -> HttpAnswer:
        if version == 2 and path.startswith("/api/v3"):
            return page
        return HttpAnswer(body=services[path]) if path in services else answer

    return reply


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
    with http_server(jaeger(HttpAnswer(body=body.encode()))) as server:
        reader = JaegerReader(f"{server.url}/")
        assert await reader.get(TRACE_ID) == a_trace(FIRST, SECOND)
        await reader.aclose()
    assert server.requests[-1][0] == f"/api/v3/traces/{TRACE_ID}?raw_traces=true"


async def test_trace_that_jaeger_has_not_is_none() -> None:
    with http_server(jaeger(NOT_FOUND)) as server:
        reader = JaegerReader(server.url)
        assert await reader.get(TRACE_ID) is None
        await reader.aclose()


async def test_shortened_trace_id_is_filled_up() -> None:
    with http_server(jaeger(NOT_FOUND)) as server:
        reader = JaegerReader(server.url)
        await reader.get("  AB12 ")
        await reader.aclose()
    assert server.requests[-1][0] == "/api/v3/traces/" + "0" * 28 + "ab12?raw_traces=true"


@pytest.mark.parametrize("trace_id", ["", "xyz", "../../admin", "a" * 33])
async def test_what_is_no_trace_id_is_never_asked_for(trace_id: str) -> None:
    reader = JaegerReader("http://127.0.0.1:9")
    with pytest.raises(InputError, match="not a trace id"):
        await reader.get(trace_id)


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(status=500),
        HttpAnswer(body=b"<html>"),
        HttpAnswer(body=b"[]"),
        HttpAnswer(body=b"{"),
        HttpAnswer(body=b"[" * 100_000),
        HttpAnswer(body=json.dumps({"result": {"resourceSpans": 5}}).encode()),
    ],
    ids=["server error", "a page", "a list", "cut off", "deep", "another form"],
)
@pytest.mark.parametrize("is_known", [False, True])
async def test_other_answers_are_read_errors(answer: HttpAnswer, is_known: bool) -> None:
    with http_server(jaeger(answer) if is_known else lambda _: answer) as server:
        reader = JaegerReader(server.url, sleep=no_pause)
        with pytest.raises(ReadError, match="Jaeger at"):
            await reader.get(TRACE_ID)
        await reader.aclose()


async def test_server_without_v3_is_read_by_v2() -> None:
    body = {
        "data": [
            {
                "traceID": TRACE_ID,
                "processes": {"p1": {"serviceName": "shop", "tags": []}},
                "spans": [
                    {
                        "traceID": TRACE_ID,
                        "spanID": "2",
                        "operationName": "ask",
                        "references": [{"refType": "CHILD_OF", "traceID": TRACE_ID, "spanID": "1"}],
                        "startTime": 1_000_000,
                        "duration": 5,
                        "tags": [{"key": "span.kind", "type": "string", "value": "server"}],
                        "logs": [],
                        "processID": "p1",
                    }
                ],
            }
        ]
    }
    with http_server(jaeger(HttpAnswer(body=json.dumps(body).encode()), version=2)) as server:
        reader = JaegerReader(server.url)
        trace = await reader.get(TRACE_ID)
        await reader.aclose()
    assert trace
    (span,) = trace.spans
    assert (span.name, span.kind, span.parent_span_id) == ("ask", SpanKind.SERVER, "0" * 15 + "1")
    assert (span.start_ns, span.end_ns) == (1_000_000_000, 1_000_005_000)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 524])
async def test_server_that_is_overloaded_is_asked_again(status: int) -> None:
    busy, well = [HttpAnswer(status=status, headers={"retry-after": "7"})] * 2, HttpAnswer(body=BARE.encode())
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    with http_server(lambda path: jaeger(busy.pop() if busy and "traces/" in path else well)(path)) as server:
        reader = JaegerReader(server.url, sleep=sleep)
        assert await reader.get(TRACE_ID) == a_trace(FIRST, SECOND)
        await reader.aclose()
    assert pauses == [7, 7]


@pytest.mark.parametrize(
    ("access", "header", "value"),
    [
        (ConnectionSettings(token="t-1"), "authorization", "Bearer t-1"),
        (ConnectionSettings(headers={"X-Scope-OrgID": "team-a"}), "x-scope-orgid", "team-a"),
    ],
)
async def test_credentials_go_with_every_request(access: ConnectionSettings, header: str, value: str) -> None:
    with http_server(jaeger(NOT_FOUND)) as server:
        reader = JaegerReader(server.url, access=access)
        await reader.get(TRACE_ID)
        await reader.aclose()
    assert {headers[header] for _, headers, _ in server.requests} == {value}


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_named_and_not_shown(status: int) -> None:
    with http_server(lambda _: HttpAnswer(status=status)) as server:
        reader = JaegerReader(server.url, access=ConnectionSettings(token="t-1"))
        with pytest.raises(ReadError, match="refused the credentials") as refused:
            await reader.get(TRACE_ID)
        await reader.aclose()
    assert "t-1" not in str(refused.value)


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
