"""An HTTP server on loopback that answers by a function.

``python -m tests.backends.answering`` prints its port, and takes everything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"


Answer: TypeAlias = Callable[[str, str, bytes], Reply | None]
"""Answers a method, a path without its query, and a body; ``None`` cuts the line."""


class AnsweringServer(ThreadingHTTPServer):
    """Serves until it is closed. Without ``keeps_alive``, every connection is for one request."""

    daemon_threads = True
    request_queue_size = 128  # the library's own 5 make a busy machine's clients wait for seconds

    def __init__(self, answer: Answer, *, port: int = 0, keeps_alive: bool = True) -> None:
        super().__init__(("127.0.0.1", port), _handler_of(answer, keeps_alive=keeps_alive))
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who asked did not wait."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve on a free port until the block ends; yield the address, without a path."""
    server = AnsweringServer(answer)
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.close()


def _handler_of(answer: Answer, *, keeps_alive: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keeps_alive else "HTTP/1.0"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            body = self._body()
            if body is not None:
                self._answer(body)

        def _body(self) -> bytes | None:
            if self.headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length)
            return body if len(body) == length else None  # who asked was killed

        def _answer(self, body: bytes) -> None:
            reply = answer(self.command, self.path.partition("?")[0], body)
            if reply is None:
                self.close_connection = True
                return
            with suppress(OSError):  # who asked was killed, or did not wait
                self.send_response(reply.status)
                self.send_header("content-type", reply.content_type)
                self.send_header("content-length", str(len(reply.body)))
                if reply.status == 429:
                    self.send_header("retry-after", "1")
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's
            """Say nothing."""

    return Handler


if __name__ == "__main__":
    with answering(lambda *_: Reply()) as url:
        print(url.rpartition(":")[2], flush=True)
        threading.Event().wait()
