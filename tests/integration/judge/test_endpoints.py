"""Where a judge is and how one gets in: logins in URLs, certificates, headers, Azure, redirects."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ragtrace.errors import JudgeRefused, JudgeUnavailable
from ragtrace.judge import CacheSettings, open_judge
from ragtrace.ports import Judge
from tests.integration.collector.certificates import Authority
from tests.integration.judge.test_transports import completion, request


@dataclass(frozen=True, kw_only=True)
class Asked:
    head: str
    target: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(kw_only=True)
class Strict:
    """An endpoint that tells what reached it, path and query too, and redirects where it is told to."""

    answer: Any = field(default_factory=lambda: completion("hm"))
    status: int = 200
    location: str = ""
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while True:
                begin = await reader.readexactly(1)
                if not begin.isalpha():  # TLS, to a port that speaks none
                    writer.write(b"HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n")
                    return
                head = (begin + await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append(
                    Asked(head=head, target=first.split()[1], headers=headers, body=json.loads(body or b"{}"))
                )
                sent = json.dumps(self.answer).encode()
                moved = f"location: {self.location}\r\n" if self.location else ""
                writer.write(
                    f"HTTP/1.1 {self.status} X\r\ncontent-type: application/json\r\n{moved}"
                    f"content-length: {len(sent)}\r\n\r\n".encode()
                    + sent
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    @property
    def last(self) -> Asked:
        return self.asked[-1]


@asynccontextmanager
async def serving(strict: Strict, tls: ssl.SSLContext | None = None) -> AsyncIterator[Strict]:
    server = await asyncio.start_server(strict.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    strict.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield strict
    finally:
        server.close()
        for writer in [*strict.open]:  # who keeps its connections
            writer.transport.abort()


@pytest.fixture
async def strict() -> AsyncIterator[Strict]:
    async with serving(Strict()) as served:
        yield served


async def ask(judge: Judge) -> str:
    try:
        return (await judge.ask(request())).value.text
    finally:
        await judge.aclose()


def basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


async def test_user_and_password_of_the_base_url_are_sent_as_basic_authorization(
    strict: Strict, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = strict.url.replace("//", "//us%40er:p%3Ass%2Fw%C3%B6rd@") + "/v1"
    assert await ask(open_judge("openai:m", base_url=url, environ={"OPENAI_API_KEY": "sk-key"})) == "hm"
    assert strict.last.headers["authorization"] == basic("us@er:p:ss/wörd")
    assert strict.last.target == "/v1/chat/completions"
    assert "sk-key" not in strict.last.head
    assert "p%3Ass" not in caplog.text
    assert "p:ss" not in caplog.text


async def test_no_error_shows_the_login(strict: Strict) -> None:
    strict.status = 403
    url = strict.url.replace("//", "//me:secret-word@")
    with pytest.raises(JudgeRefused) as caught:
        await ask(open_judge("openai:m", base_url=url, environ={}))
    assert "secret-word" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    "tail",
    [
        "/openai/deployments/my-gpt?api-version=2024-10-21",
        "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
    ],
)
async def test_the_classic_addresses_of_azure_are_asked_as_azure_wants_it(tail: str, strict: Strict) -> None:
    judge = open_judge("openai:gpt-4o", base_url=strict.url + tail, environ={"OPENAI_API_KEY": "azure-key"})
    assert await ask(judge) == "hm"
    asked = urlsplit(strict.last.target)
    assert asked.path == "/openai/deployments/my-gpt/chat/completions"
    assert parse_qs(asked.query) == {"api-version": ["2024-10-21"]}
    assert strict.last.headers["api-key"] == "azure-key"
    assert "authorization" not in strict.last.headers


async def test_a_query_of_any_base_url_is_kept(strict: Strict) -> None:
    assert await ask(open_judge("openai:m", base_url=f"{strict.url}/v1?tenant=a%20b", environ={})) == "hm"
    path, _, query = strict.last.target.partition("?")
    assert (path, parse_qs(query)) == ("/v1/chat/completions", {"tenant": ["a b"]})


async def test_further_parameters_are_another_question_to_the_cache(strict: Strict, tmp_path: Path) -> None:
    cache = CacheSettings(path=tmp_path / "judge.db")
    for extra in ({}, {"effort": "low"}, {"effort": "low"}, {"effort": "high"}, {}):
        await ask(open_judge("openai:m", base_url=strict.url, environ={}, cache=cache, extra_body=extra))
    assert [asked.body.get("effort") for asked in strict.asked] == [None, "low", "high"]


def self_signed(tmp_path: Path, *hosts: str) -> tuple[Authority, ssl.SSLContext]:
    authority = Authority(tmp_path)
    files = authority.issue("server", *hosts)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    return authority, context


async def test_a_certificate_that_nobody_knows_is_named_with_the_setting(tmp_path: Path) -> None:
    _, context = self_signed(tmp_path)
    async with serving(Strict(), context) as served:
        with pytest.raises(JudgeRefused) as caught:
            await ask(open_judge("openai:m", base_url=served.url, environ={}))
    said = str(caught.value)
    assert "certificate" in said
    assert "`judge.tls.ca`" in said
    assert "--set judge.tls.ca" in said
    assert "no connection" not in said


async def test_http_where_https_was_named_is_said_to_be_that(strict: Strict) -> None:
    url = strict.url.replace("http:", "https:")
    with pytest.raises(JudgeUnavailable, match="TLS"):
        await ask(open_judge("openai:m", base_url=url, environ={}, max_retries=0))


async def test_a_redirect_is_not_followed_and_it_is_said_where_it_pointed() -> None:
    status = 307
    async with serving(Strict()) as other, serving(Strict(status=status)) as served:
        served.location = other.url.replace("//", "//me:pw@") + "/v1/chat/completions?key=abc"
        with pytest.raises(JudgeRefused) as caught:
            await ask(open_judge("openai:m", base_url=served.url, environ={}))
        assert other.asked == []
        assert len(served.asked) == 1
    said = str(caught.value)
    assert f"redirects to {other.url}/v1/chat/completions" in said
    assert "pw" not in said
    assert "abc" not in said
