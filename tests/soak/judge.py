"""A judge as one gets it: slow at times, over its limits, down for a while, and not always to the point."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import NamedTuple

from tests.acceptance.test_crash import REPLIES
from tests.planted import answered

_CYCLE_S = 60.0
_DOWN_S = 6.0


class Mood(NamedTuple):
    """How one request is answered."""

    status: int = 200
    wait_s: float = 0.02
    body: bytes | None = None


@contextmanager
def moody_judge(seed: int) -> Iterator[str]:
    """Serve an OpenAI-compatible API on loopback until the block ends; yield its base URL."""
    random, lock, began_s = Random(seed), threading.Lock(), time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                mood = _mood(random, (time.monotonic() - began_s) % _CYCLE_S)
            time.sleep(mood.wait_s)
            body = _completion(request) if mood.body is None else mood.body
            try:
                self.send_response(mood.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                if mood.status == 429:
                    self.send_header("retry-after", "1")
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # who asked did not wait

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: who asked did not wait."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _mood(random: Random, second: float) -> Mood:
    if second > _CYCLE_S - _DOWN_S:
        return Mood(status=503, body=b"{}")
    luck = random.random()
    if luck < 0.03:
        return Mood(status=429, body=b"{}")
    if luck < 0.05:
        return Mood(status=500, body=b"<html>")
    if luck < 0.07:
        return Mood(body=b'{"choices": []}')
    if luck < 0.08:
        return Mood(wait_s=3.0)  # longer than judge.timeout
    return Mood(wait_s=random.uniform(0.005, 0.1))


def _completion(request: dict[str, object]) -> bytes:
    step = "verify" if '"verdicts"' in json.dumps(request.get("response_format")) else "extract"
    message = {"role": "assistant", "content": json.dumps(answered(REPLIES[step], request))}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    ).encode()
