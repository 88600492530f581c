"""A real HTTP server that answers chat completions by a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ragtrace.judge import open_judge, unwrapped
from ragtrace.judge.openai import LanguageModelJudge

SECRET = "sk-very-secret"
Answer = tuple[int, Any]
"""Status and body: a value is sent as JSON, ``bytes`` as they are."""


@dataclass
class Endpoint:
    """An OpenAI-compatible endpoint on loopback."""

    answers: Callable[[dict[str, Any]], Answer]
    """Answers a request body."""
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=lambda: {"retry-after-ms": "1"})
    """Headers of every response."""
    hold: asyncio.Event | None = None
    """Where set, no request is answered before it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")[1:]
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
        self.requests.append(body)
        self.headers.append(headers)
        if self.hold:
            await self.hold.wait()
        status, value = self.answers(body)
        sent = value if isinstance(value, bytes) else json.dumps(value).encode()
        extra = "".join(f"{name}: {told}\r\n" for name, told in self.extra.items())
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}\r\n"
            f"{extra}\r\n".encode()
            + sent
        )
        await writer.drain()
        return True


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    served = Endpoint(answers=lambda body: (500, {}))
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield served
    if served.hold:
        served.hold.set()
    server.close()


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
