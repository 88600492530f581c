"""Connections that say nothing, say it slowly, or are too many; and what is not HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ragtrace_collector.service.collector import Collector
from ragtrace_collector.web import connections as listening
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

GOOD = request_of(*rag_trace(0))
POST = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\n"
PROTOBUF = b"content-type: application/x-protobuf\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n"
BODY_BEGUN = CHUNKED + PROTOBUF + b"\r\n1\r\nx\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: a\r\n"
LONG, MANY = b"x" * 20_000, b"x: y\r\n" * 4_000


async def ended(collector: Collector, said: bytes, *, in_pieces: bool = False) -> bytes:
    """Connect, say something, and return what the collector said until it hung up."""
    pieces = [said[start : start + 1_000] for start in range(0, len(said), 1_000)] if in_pieces else [said]
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        try:
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.001 * in_pieces)  # or they would be one
            return await reader.read()
        except ConnectionError:  # what it answers is lost where it comes while something is said
            return b""
        finally:
            writer.close()


async def test_who_does_not_say_what_it_wants_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 1)
    async with running_collector(config_of(tmp_path)) as collector:
        silent, half = b"", POST + b"x-slow: "
        assert await asyncio.gather(ended(collector, silent), ended(collector, half)) == [b"", b""]
        assert (await post(collector, GOOD)).status_code == 200


async def test_who_never_comes_to_the_point_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HEADERS_TIMEOUT_S", 100)
    endless = {
        "path": b"GET /" + LONG,
        "header": GET + b"x: " + LONG,
        "headers": GET + MANY,
        "empty lines": b"\r\n" * 10_000,
        "trailers": BODY_BEGUN + b"0\r\n" + MANY,
        "extension": BODY_BEGUN + b"1;" + LONG,
    }
    async with running_collector(config_of(tmp_path)) as collector:
        for name, said in endless.items():
            answer = await ended(collector, said, in_pieces=True)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400"), name


async def test_what_is_not_http_is_refused_once_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = {
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "proxy": b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
        "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
        "hosts": GET + b"host: b\r\n\r\n",
        "fold": GET + b"x: 1\r\n 2\r\n\r\n",
        "name": GET + b"x\x00: 1\r\n\r\n",
        "url": b"GET http:// HTTP/1.1\r\nhost: a\r\n\r\n",
        "two frames": CHUNKED + b"content-length: 5\r\n\r\n",
        "lengths": GET + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        "headers that come whole": GET + MANY + b"\r\n",
        "a broken chunk": CHUNKED + PROTOBUF + b"\r\nno chunk\r\n",
    }
    async with running_collector(config_of(tmp_path)) as collector:
        for name, said in refused.items():
            answer = await ended(collector, said)
            assert (answer[:12], answer.count(b"HTTP/1.1")) == (b"HTTP/1.1 400", 1), name
        assert (await post(collector, GOOD)).status_code == 200
    assert [record for record in caplog.records if record.name.startswith(("uvicorn", "asyncio"))] == []


async def test_who_does_not_wait_for_an_answer_gets_that_one_alone(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        answer = await ended(collector, (GET + b"\r\n") * 2_000)
    assert (answer[:12], answer.count(b"HTTP/1.1")) == (b"HTTP/1.1 200", 1)
    assert b"connection: close" in answer


async def test_who_asks_for_another_protocol_is_heard_in_this_one(tmp_path: Path) -> None:
    head = POST + b"connection: Upgrade, close\r\nupgrade: h2c\r\n" + PROTOBUF
    async with running_collector(config_of(tmp_path)) as collector:
        answer = await ended(collector, head + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD)
        assert answer.startswith(b"HTTP/1.1 200")
        assert collector.counters.snapshot()["spans_received"] == len(rag_trace(0))


async def test_a_body_that_ends_after_the_answer_is_not_the_next_request(tmp_path: Path) -> None:
    rest = b"7\r\nGET / H\r\n0\r\n\r\n" + GET + b"connection: close\r\n\r\n"
    async with running_collector(config_of(tmp_path)) as collector, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
        writer.write(CHUNKED + b"\r\n1\r\nx\r\n")  # of no type: it is refused by its headers
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 415")
        writer.write(rest)
        said = await reader.read()
        writer.close()
    assert said.count(b"HTTP/1.1") == 1
    assert b"HTTP/1.1 200" in said


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
