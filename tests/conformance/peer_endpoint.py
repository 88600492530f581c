"""An OpenAI-compatible endpoint on loopback that gives recorded replies, one after another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class PeerEndpoint:
    """What a tool's model said, and the vectors of texts."""

    replies: Sequence[str | tuple[str, str] | int] = ()
    """Each a text, a text with its ``finish_reason``, or a status to fail with; the last repeats."""
    embeddings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    url: str = ""
    prompts: list[str] = field(default_factory=list)
    """What was asked, in order."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the chat requests."""
    embedded: list[str] = field(default_factory=list)
    """Texts that were embedded."""

    def reply_with(
        self, replies: Sequence[str | tuple[str, str] | int], embeddings: Mapping[str, Sequence[float]]
    ) -> None:
        """Begin anew."""
        self.replies, self.embeddings = replies, embeddings
        self.prompts, self.asked, self.embedded = [], [], []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._serve_one(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ", 2)[1]
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:])}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        status, value = self._embed(body) if path.endswith("/embeddings") else self._chat(body)
        sent = json.dumps(value).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}\r\n"
            f"retry-after-ms: 1\r\n\r\n".encode()
            + sent
        )
        await writer.drain()

    def _chat(self, body: dict[str, Any]) -> tuple[int, Any]:
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)] if self.replies else 500
        self.asked.append(body)
        self.prompts.append("\n\n".join(message["content"] for message in body["messages"]))
        if isinstance(reply, int):
            return reply, {"error": {"message": "no"}}
        text, finish = (reply, "stop") if isinstance(reply, str) else reply
        message = {"role": "assistant", "content": text}
        return 200, {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }

    def _embed(self, body: dict[str, Any]) -> tuple[int, Any]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        self.embedded += texts
        data = [
            {"object": "embedding", "index": index, "embedding": self.embeddings[text]}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        return 200, {"object": "list", "model": body["model"], "data": data, "usage": usage}


@asynccontextmanager
async def serving(endpoint: PeerEndpoint) -> AsyncIterator[PeerEndpoint]:
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield endpoint
    finally:
        server.close()
