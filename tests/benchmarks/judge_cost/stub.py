"""An OpenAI-compatible server that answers as a sane model would, after a latency.

``POST /taken`` takes the requests that it kept, and says whether to keep what follows, and the latency.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn

from tests.benchmarks.judge_cost.own_replies import own_reply


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
        given = json.loads(body)
        if scope["path"] == "/taken":
            found: object = self.taken
            self.taken = []
            self.keeping, self.latency_s = given["keep"], given["latency_s"]
        else:
            found = self._completion(given)
            await asyncio.sleep(self.latency_s)
        reply = json.dumps(found).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    def _completion(self, request: Mapping[str, Any]) -> object:
        prompt = "\n".join(message["content"] for message in request["messages"])
        step = request["response_format"]["json_schema"]["name"]
        reply = own_reply(step, prompt)
        if self.keeping:
            form = json.dumps([request["response_format"], request.get("tools")])
            self.taken.append({"step": step, "prompt": prompt + form})
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        return {
            "id": "stub",
            "object": "chat.completion",
            "created": 1,
            "model": "stub",
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


async def serve() -> None:
    """Print the port, and serve until the process is stopped."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(Stub(), log_level="error", lifespan="off")
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(serve())
