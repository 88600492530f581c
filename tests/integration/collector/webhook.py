"""A webhook on loopback, as a receiver of notices runs one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True, kw_only=True)
class Webhook:
    """What it got, and what it answers."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    """Answered one after the other; then 204."""
    requests: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve one until the block ends."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            hook.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(hook.statuses.pop(0) if hook.statuses else 204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_port}/hooks/a-secret-path"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
