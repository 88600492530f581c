"""Connections that say nothing, say it slowly, or are too many."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from ragtrace_collector.service.collector import Collector
from ragtrace_collector.web import connections as crowd
from ragtrace_collector.web import connections as listening
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

GOOD = request_of(*rag_trace(0))


async def ended(collector: Collector, said: bytes) -> bytes:
    """Connect, say something, and return what the collector said until it hung up."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(said)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "said", [b"", b"POST /v1/traces HTTP/1.1\r\nhost: a\r\nx-slow: "], ids=["nothing", "half of the headers"]
)
async def test_who_does_not_say_what_it_wants_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 1)
    async with running_collector(config_of(tmp_path)) as collector:
        assert await ended(collector, said) == b""
        assert (await post(collector, GOOD)).status_code == 200


@pytest.mark.slow
async def test_who_goes_on_too_slowly_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 1)
    async with running_collector(config_of(tmp_path)) as collector, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /hea")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.slow
async def test_a_body_may_take_longer_than_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 1)
    head = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    head += b"content-type: application/x-protobuf\r\n"
    async with running_collector(config_of(tmp_path)) as collector:
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(head + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD[:10])
        await asyncio.sleep(1.5)  # longer than headers may take: what is shown is that nothing happens
        writer.write(GOOD[10:])
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_of_too_many_connections_the_one_that_is_idle_for_longest_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "_A_PEER", 2)
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 3_600)  # or it is hung up on for being silent
    async with running_collector(config_of(tmp_path)) as collector, asyncio.timeout(20):
        (idle, silent), (reader, writer) = [
            await asyncio.open_connection("127.0.0.1", collector.http_port) for _ in range(2)
        ]
        health = b"GET /healthz HTTP/1.1\r\nhost: a\r\n"
        assert (await ended(collector, health + b"connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")
        with suppress(ConnectionResetError):
            assert await idle.read() == b""
        writer.write(health + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        silent.close()


CHUNKED = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n"
PROTOBUF = b"content-type: application/x-protobuf\r\n"


@pytest.mark.parametrize(
    ("head", "answer"),
    [(CHUNKED + PROTOBUF, b"HTTP/1.1 400"), (CHUNKED, b"HTTP/1.1 4")],
    ids=["read", "refused"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_body_whose_frame_breaks_ends_the_request_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, head: bytes, answer: bytes, at_once: bool
) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(head + b"\r\n" + (b"" if at_once else b"5\r\nabcde\r\n"))
        if not at_once:
            await asyncio.sleep(0.05)  # for a part of its own; that it is one decides nothing
        writer.write(b"no chunk\r\n")
        assert (await reader.read()).startswith(answer)
        writer.close()
        assert (await post(collector, GOOD)).status_code == 200
    assert [record for record in caplog.records if record.name.startswith(("uvicorn", "asyncio"))] == []


LONG = b"x" * 20_000
MANY = b"x: y\r\n" * 4_000
GET = b"GET /healthz HTTP/1.1\r\nhost: a\r\n"


BODY_BEGUN = CHUNKED + PROTOBUF + b"\r\n1\r\nx\r\n"
ENDLESS = [
    b"GET /" + LONG,
    GET + b"x: " + LONG,
    GET + MANY,
    b"\r\n" * 10_000,
    BODY_BEGUN + b"0\r\nt: " + LONG,
    BODY_BEGUN + b"0\r\n" + MANY,
    BODY_BEGUN + b"1;" + LONG,
]


@pytest.mark.parametrize(
    "said", ENDLESS, ids=["path", "header", "headers", "empty lines", "trailer", "trailers", "extension"]
)
async def test_who_never_comes_to_the_point_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 100)
    answer = b""
    async with running_collector(config_of(tmp_path)) as collector, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        with suppress(ConnectionError):  # the answer is lost where it comes while something is said
            for start in range(0, len(said), 1_000):
                writer.write(said[start : start + 1_000])
                await asyncio.sleep(0.001)
            answer = await reader.read()
        writer.close()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "said",
    [
        b"GET /healthz?" + LONG + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        GET + b"x: " + LONG + b"\r\n\r\n",
        GET + MANY + b"\r\n",
    ],
    ids=["path", "header", "headers"],
)
async def test_headers_that_come_whole_are_bounded_too(tmp_path: Path, said: bytes) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        assert (await ended(collector, said)).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        GET + b"host: b\r\n\r\n",
        GET + b"x: 1\r\n 2\r\n\r\n",
        GET + b"x\x00: 1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nhost: a\r\n\r\n",
        CHUNKED + b"content-length: 5\r\n\r\n",
        GET + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
    ids=["TLS", "HTTP/2", "proxy", "no host", "hosts", "fold", "name", "url", "two frames", "lengths"],
)
async def test_what_is_not_http_is_refused_once_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        answer = await ended(collector, said)
        assert (await post(collector, GOOD)).status_code == 200
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
    assert [record for record in caplog.records if record.name.startswith(("uvicorn", "asyncio"))] == []


async def test_who_does_not_wait_for_an_answer_gets_that_one_alone(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        answer = await ended(collector, (GET + b"\r\n") * 2_000)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer


@pytest.mark.parametrize("at_once", [True, False])
async def test_who_asks_for_another_protocol_is_heard_in_this_one(tmp_path: Path, at_once: bool) -> None:
    head = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, close\r\nupgrade: h2c\r\n" + PROTOBUF
    async with running_collector(config_of(tmp_path)) as collector:
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(head + b"content-length: %d\r\n\r\n" % len(GOOD) + (GOOD if at_once else b""))
        if not at_once:
            await asyncio.sleep(0.05)  # for a part of its own; that it is one decides nothing
            writer.write(GOOD)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        status = await ended(collector, b"GET /status HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert b'"spans_received":%d' % len(rag_trace(0)) in status


@pytest.mark.slow
async def test_who_goes_on_after_the_answer_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 1)
    async with running_collector(config_of(tmp_path)) as collector, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(CHUNKED + b"\r\n1\r\nx\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 415")
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()


async def answered_early(collector: Collector, then: bytes) -> bytes:
    """Begin a request that is refused by its headers, go on after the answer, and return all that is said."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(CHUNKED + b"\r\n1\r\nx\r\n")
        begun = await reader.readuntil(b"HTTP/1.1 415") + await reader.readuntil(b"\r\n\r\n")
        writer.write(then)
        try:
            return begun + await reader.read()
        finally:
            writer.close()


async def test_a_body_that_breaks_after_the_answer_is_not_answered_again(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        said = await answered_early(collector, b"no chunk\r\n")
    assert said.count(b"HTTP/1.1") == 1


async def test_a_body_that_ends_after_the_answer_is_not_the_next_request(tmp_path: Path) -> None:
    rest = b"7\r\nGET / H\r\n0\r\n\r\n" + GET + b"connection: close\r\n\r\n"
    async with running_collector(config_of(tmp_path)) as collector:
        said = await answered_early(collector, rest)
    assert said.count(b"HTTP/1.1") == 2
    assert b"HTTP/1.1 200" in said


async def test_who_names_a_connection_is_not_taken_for_it(tmp_path: Path) -> None:
    said = GET + b"ragtrace-connection: 7\r\nconnection: close\r\n\r\n"
    async with running_collector(config_of(tmp_path)) as collector:
        assert (await ended(collector, said)).startswith(b"HTTP/1.1 200")


async def test_a_trailer_is_no_header(tmp_path: Path) -> None:
    said = CHUNKED + b"connection: close\r\n\r\n0\r\n" + PROTOBUF + b"\r\n"
    async with running_collector(config_of(tmp_path)) as collector:
        assert (await ended(collector, said)).startswith(b"HTTP/1.1 415")


async def test_no_page_is_shared_with_other_sites(tmp_path: Path) -> None:
    preflight = (
        b"OPTIONS /v1/traces HTTP/1.1\r\nhost: a\r\norigin: http://evil.example\r\nconnection: close\r\n"
        b"access-control-request-method: POST\r\n\r\n"
    )
    async with running_collector(config_of(tmp_path)) as collector:
        answer = await ended(collector, preflight)
    assert answer.startswith(b"HTTP/1.1 405")
    assert b"access-control" not in answer.lower()
    assert b"uvicorn" not in answer.lower()
