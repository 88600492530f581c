"""Jaeger's query API against a server that answers as it does; logins in addresses; searches in windows."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backends import JaegerReader, open_reader
from ragtrace.backends.http_api import ConnectionSettings, SearchWindow, windows
from ragtrace.errors import ConfigError, InputError, ReadError
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Trace
from tests.rag_spans import trace_id_of
from tests.unit.backends.servers import HttpAnswer, HttpServer, http_server
from tests.unit.traces.builders import TRACE_ID, a_span, a_trace

FIRST, SECOND = a_span(1), a_span(2, 1)
BARE = encode_json([FIRST, SECOND])
NOT_FOUND = HttpAnswer(status=404, body=b'{"error":{"httpCode":404,"message":"No traces found"}}')


async def no_pause(seconds: float) -> None:
    """Wait for nothing."""


def jaeger(answer: HttpAnswer) -> Callable[[str], HttpAnswer]:
    """Answer as a Jaeger does that has one service."""
    services = HttpAnswer(body=b'{"services":["shop"]}')
    return lambda path: services if path == "/api/v3/services" else answer


async def got(
    server: HttpServer | str,
    trace_id: str = TRACE_ID,
    *,
    sleep: Callable[[float], Awaitable[None]] = no_pause,
    **access: Any,
) -> Trace | None:
    url = server if isinstance(server, str) else server.url
    async with aclosing(JaegerReader(url, access=ConnectionSettings(**access), sleep=sleep)) as reader:
        return await reader.get(trace_id)


STREAMED = "".join(f'{{"result":{encode_json([span])}}}\n' for span in (FIRST, SECOND))


@pytest.mark.parametrize(
    "body", [BARE, f'{{"result":{BARE}}}', STREAMED], ids=["bare", "wrapped", "streamed"]
)
async def test_trace_is_read_in_every_form_of_answer(body: str) -> None:
    with http_server(jaeger(HttpAnswer(body=body.encode()))) as server:
        assert await got(f"{server.url}/") == a_trace(FIRST, SECOND)
    assert server.requests[-1][0] == f"/api/v3/traces/{TRACE_ID}?raw_traces=true"


@pytest.mark.parametrize("trace_id", ["", "xyz", "../../admin", "a" * 33])
async def test_what_is_no_trace_id_is_never_asked_for(trace_id: str) -> None:
    with pytest.raises(InputError, match="not a trace id"):
        await got("http://127.0.0.1:9", trace_id)


async def test_jaeger_that_nobody_sent_anything_has_no_services() -> None:
    with http_server(lambda _: HttpAnswer(body=b"{}")) as server:
        async with aclosing(JaegerReader(server.url)) as reader:
            assert await reader.services() == ()


UNREADABLE = (
    HttpAnswer(status=500),
    *(HttpAnswer(body=body) for body in (b"<html>", b"[]", b"{", b"[" * 100_000)),
    HttpAnswer(body=json.dumps({"result": {"resourceSpans": 5}}).encode()),
)


@pytest.mark.parametrize("answer", UNREADABLE, ids=range(len(UNREADABLE)))
async def test_other_answers_are_read_errors(answer: HttpAnswer) -> None:
    for reply in (jaeger(answer), lambda _: answer):
        with http_server(reply) as server, pytest.raises(ReadError, match="Jaeger at"):
            await got(server)


@pytest.mark.parametrize("status", [429, 524])
async def test_server_that_is_overloaded_is_asked_again(status: int) -> None:
    busy, well = [HttpAnswer(status=status, headers={"retry-after": "7"})] * 2, HttpAnswer(body=BARE.encode())
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    with http_server(lambda path: jaeger(busy.pop() if busy and "traces/" in path else well)(path)) as server:
        assert await got(server, sleep=sleep) == a_trace(FIRST, SECOND)
    assert pauses == [7, 7]


async def test_credentials_go_with_every_request_and_refused_ones_are_named_and_not_shown() -> None:
    with http_server(jaeger(NOT_FOUND)) as server:
        await got(server, token="t-1", headers={"X-Scope-OrgID": "team-a"})
    sent = {(headers["authorization"], headers["x-scope-orgid"]) for _, headers, _ in server.requests}
    assert sent == {("Bearer t-1", "team-a")}
    for status in (401, 403):
        with (
            http_server(lambda _, status=status: HttpAnswer(status=status)) as server,
            pytest.raises(ReadError, match="refused the credentials") as refused,
        ):
            await got(server, token="t-1")
        assert "t-1" not in str(refused.value)
    with pytest.raises(ReadError, match="cannot be reached"):
        await got("http://127.0.0.1:9")


def test_bad_source_is_a_config_error() -> None:
    for source in ("", "jaeger:", "jaeger:localhost", "otlp-file:", "traces.jsonl", "http://[::1"):
        with pytest.raises(ConfigError, match="otlp-file:PATH"):
            open_reader(source)


LOGIN = f"Basic {base64.b64encode(b'me:pass/word').decode()}"


async def test_over_http_it_goes_with_each_request_and_no_error_names_it() -> None:
    with http_server(lambda _: HttpAnswer(status=418)) as server:
        reader = open_reader(f"tempo:{server.url.replace('//', '//me:pass%2Fword@')}?key=secret")
        with pytest.raises(ReadError) as caught:
            await reader.get(trace_id_of(0))
        await reader.aclose()
    assert {headers["authorization"] for _, headers, _ in server.requests} == {LOGIN}
    assert "pass" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["tempo:ftp://me:pass-word@host?key=k", "http://me:pass-word@host:no", "me:pass-word@host"]
)
def test_an_address_that_is_none_is_shown_without_its_login(address: str) -> None:
    with pytest.raises(ConfigError, match=r"host.* is not an address to read traces from") as caught:
        open_reader(address)
    assert "pass-word" not in str(caught.value)
    assert "key=k" not in str(caught.value)


END = 10_000


class Stored:
    """A back end that holds traces by the time they began, and gives the newest few of a window."""

    shortest_ns = 10
    longest_ns = 4_000

    def __init__(self, times: list[int], limit: int) -> None:
        self._times = times
        self._limit = limit

    async def search(self, query: TraceQuery) -> Page:
        within = [
            number for number, time in enumerate(self._times) if query.since_ns <= time < query.until_ns
        ]
        newest = sorted(within, key=lambda number: self._times[number], reverse=True)
        return Page.of({str(number): None for number in newest[: self._limit]}, limit=self._limit)

    async def get(self, trace_id: str) -> Trace | None:
        raise NotImplementedError

    def traces(self) -> AsyncIterator[Trace]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


async def searched(times: list[int], limit: int) -> list[SearchWindow]:
    return [found async for found in windows(Stored(times, limit), TraceQuery(since_ns=0, until_ns=END))]


@given(st.lists(st.integers(0, END - 1), max_size=60), st.integers(1, 8))
async def test_windows_have_no_gap_and_say_if_they_are_cut(times: list[int], limit: int) -> None:
    found = await searched(times, limit)
    ends = [window.until_ns for window in found]
    assert [window.since_ns for window in found] == [0, *ends[:-1]]
    assert ends[-1] == END
    ids = [trace_id for window in found for trace_id in window.found]
    cut = [window for window in found if window.is_cut]
    missing = {number for number in range(len(times)) if str(number) not in ids}
    assert len(ids) == len(set(ids))
    assert all(any(each.since_ns <= times[number] < each.until_ns for each in cut) for number in missing)
