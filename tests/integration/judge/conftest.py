"""A real HTTP server that answers chat completions by a script, and tells what reached it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ragtrace.judge import open_judge, unwrapped
from ragtrace.judge.openai import LanguageModelJudge

SECRET = "sk-very-secret"
Answer = tuple[int, Any]
"""Status and body: a value is sent as JSON, ``bytes`` as they are."""


def chat(text: str, finish: str = "stop") -> dict[str, Any]:
    choice = {"finish_reason": finish, "message": {"role": "assistant", "content": text}}
    return {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}


@dataclass(frozen=True, kw_only=True)
class Asked:
    head: str
    target: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(kw_only=True)
class Endpoint:
    """An OpenAI-compatible endpoint on loopback."""

    answer: Any = field(default_factory=lambda: chat("hm"))
    status: int = 200
    answers: Callable[[dict[str, Any]], Answer] | None = None
    """Answers a request body, in place of ``answer``."""
    extra: dict[str, str] = field(default_factory=lambda: {"retry-after-ms": "1"})
    """Headers of every response."""
    hold: asyncio.Event | None = None
    """Where set, no request is answered before it."""
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.asked]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [asked.headers for asked in self.asked]

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while True:
                begin = await reader.readexactly(1)
                if not begin.isalpha():  # TLS, to a port that speaks none
                    writer.write(b"HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n")
                    return
                await self._answer((begin + await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        self.asked.append(Asked(head=head, target=first.split()[1], headers=headers, body=body))
        if self.hold:
            await self.hold.wait()
        status, value = self.answers(body) if self.answers else (self.status, self.answer)
        sent = value if isinstance(value, bytes) else json.dumps(value).encode()
        extra = "".join(f"{name}: {told}\r\n" for name, told in self.extra.items())
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{extra}"
            f"content-length: {len(sent)}\r\n\r\n".encode()
            + sent
        )
        await writer.drain()


@asynccontextmanager
async def serving(endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, ssl=tls)
    endpoint.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield endpoint
    finally:
        server.close()
        if endpoint.hold:
            endpoint.hold.set()
        for writer in [*endpoint.open]:  # who keeps its connections
            writer.transport.abort()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with serving(Endpoint(status=500, answer={})) as served:
        served.url += "/v1"
        yield served


def bare_judge(url: str, *, key: str = "k", timeout_s: float = 20) -> LanguageModelJudge:
    """Open a judge without layers."""
    opened = unwrapped(
        open_judge("openai:m", base_url=url, environ={"OPENAI_API_KEY": key}, timeout_s=timeout_s)
    )
    assert isinstance(opened, LanguageModelJudge)
    return opened


@pytest.fixture
async def judge(endpoint: Endpoint) -> AsyncIterator[LanguageModelJudge]:
    """Open a judge without layers at the endpoint."""
    opened = bare_judge(endpoint.url, key=SECRET)
    yield opened
    await opened.aclose()


def rejection(message: str, *, status: int = 400, **error: Any) -> Answer:
    """Answer that the request is refused."""
    return status, {"error": {"message": message, **error}}
