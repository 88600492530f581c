"""An OpenAI-compatible server that answers as a sane model would, after a latency.

It keeps the texts of the requests until ``POST /taken`` takes them: tokens are counted afterwards, by one
tokenizer for all. The same request says whether to keep what follows, and the latency.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn

from tests.benchmarks.judge_cost import subject
from tests.benchmarks.judge_cost.own_replies import own_reply

OWN_STEPS = frozenset({"extract", "verify", "chunks", "recall", "relevance", "retrieval"})


class Stub:
    """The server's state."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        self.taken: list[Mapping[str, str]] = []
        self.keeping = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request (ASGI)."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        reply = self._route(scope["path"], body)
        if scope["path"] != "/taken":
            await asyncio.sleep(self.latency_s)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    def _route(self, path: str, body: bytes) -> bytes:
        if path == "/taken":
            settings = json.loads(body)
            taken, self.taken = self.taken, []
            self.keeping, self.latency_s = settings["keep"], settings["latency_s"]
            return json.dumps(taken).encode()
        request = json.loads(body)
        if path.endswith("/embeddings"):
            return json.dumps(self._embeddings(request)).encode()
        return json.dumps(self._completion(request)).encode()

    def _embeddings(self, request: Mapping[str, Any]) -> object:
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        if self.keeping:
            self.taken.append({"step": "embed", "prompt": "".join(texts), "completion": ""})
        vectors = [{"object": "embedding", "index": n, "embedding": [1.0, 0.0]} for n in range(len(texts))]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": vectors, "model": "stub", "usage": usage}

    def _completion(self, request: Mapping[str, Any]) -> object:
        step, reply = _reply(request)
        if self.keeping:
            form = json.dumps([request.get("response_format"), request.get("tools")])
            prompt = _prompt(request) + form
            self.taken.append({"step": step, "prompt": prompt, "completion": reply})
        message = {"role": "assistant", "content": reply}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {
            "id": "stub",
            "object": "chat.completion",
            "created": 1,
            "model": "stub",
            "choices": [choice],
            "usage": usage,
        }


def _reply(request: Mapping[str, Any]) -> tuple[str, str]:
    prompt = _prompt(request)
    form = (request.get("response_format") or {}).get("json_schema")
    if form is None:
        step = _ragas_step(prompt)
        return step, subject.ragas_reply(step)
    if form["name"] in OWN_STEPS:
        return form["name"], own_reply(form["name"], prompt)
    return form["name"], subject.deepeval_reply(form["name"])


def _prompt(request: Mapping[str, Any]) -> str:
    contents = [message["content"] for message in request["messages"]]
    return "\n".join(c if isinstance(c, str) else "\n".join(part["text"] for part in c) for c in contents)


def _ragas_step(prompt: str) -> str:
    if "attributed" in prompt:
        return "recall"
    if "noncommittal" in prompt:
        return "question"
    if "rating" in prompt and "verdict" not in prompt:
        return "rating"
    if "statements" not in prompt:
        return "relevance"
    return "verdicts" if "verdict" in prompt else "statements"


async def serve() -> None:
    """Print the port, and serve until the process is stopped."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(Stub(), log_level="error", lifespan="off")
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(serve())
