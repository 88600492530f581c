"""An OpenAI-compatible endpoint whose model follows a rule, and which a test may hold back."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import PATIENCE_S
from tests.planted import answered

__all__ = ["JudgeServer", "running_judge"]


class JudgeServer:
    """Answers each step with a fixed reply; ``gate`` holds replies back while it is not set."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self.base_url = ""
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0
        self._held_from: float = math.inf
        self._replies = replies
        self._changed = threading.Condition()

    def reply(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a chat completion: which step it is, its JSON schema tells."""
        with self._changed:
            self.calls += 1
            if self.calls >= self._held_from:
                self.gate.clear()
            self._changed.notify_all()
        self.gate.wait(timeout=PATIENCE_S)
        asked = json.dumps(request["response_format"])
        said = answered(self._replies["verify" if '"verdicts"' in asked else "extract"], request)
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": json.dumps(said)},
                }
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }

    def hold_from(self, number: int) -> None:
        """Hold back the reply to the request of this number, and those after it."""
        self._held_from = number

    def release(self) -> None:
        """Give all replies that were held back, and hold back no more."""
        self._held_from = math.inf
        self.gate.set()

    def wait_for_calls(self, number: int) -> None:
        """Return once so many requests have come in."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.calls >= number, timeout=PATIENCE_S), (
                f"{self.calls} calls"
            )


@contextmanager
def running_judge(replies: Mapping[str, Any]) -> Iterator[JudgeServer]:
    """Serve on a free loopback port until the block ends."""
    judge = JudgeServer(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = json.dumps(judge.reply(json.loads(body))).encode()
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # who asked was killed

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    judge.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield judge
    finally:
        judge.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
