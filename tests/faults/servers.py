"""A back end and a judge that have moods: they answer, refuse, hang, cut the line, or are away."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from ragtrace.traces.otlp import decode
from tests.acceptance.judge_server import JudgeServer

_HANG_S: Final = 3.0


class Mood(StrEnum):
    """How a server is."""

    WELL = "well"
    AWAY = "away"
    """Nothing listens."""
    BUSY = "answers 503"
    THROTTLES = "answers 429"
    BROKEN = "answers 500"
    LOCKED = "answers 401"
    HANGS = "hangs"
    CUTS = "takes it and cuts the line"
    GARBAGE = "answers garbage"


_STATUS: Final = {Mood.BUSY: 503, Mood.THROTTLES: 429, Mood.BROKEN: 500, Mood.LOCKED: 401}


class MoodyServer:
    """An HTTP server on one loopback port, whose mood a test sets."""

    content_type = "application/json"

    def __init__(self) -> None:
        self.mood = Mood.WELL
        self.faults = 0
        """Requests that were not answered well."""
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.set(Mood.WELL)

    def answer(self, body: bytes) -> bytes:
        raise NotImplementedError

    def set(self, mood: Mood) -> None:
        self.mood = mood
        if mood is Mood.AWAY:
            self.close()
        elif self._server is None:
            self._listen()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _listen(self) -> None:
        server = _Server(("127.0.0.1", self.port), _handler_of(self))
        self.port, self._server = server.server_address[1], server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the library's own 5 make a busy machine's clients wait for seconds


def _handler_of(moody: MoodyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length, mood = int(self.headers["content-length"]), moody.mood
            body = self.rfile.read(length)
            if len(body) < length:
                return  # who asked was killed
            if mood is not Mood.WELL:
                moody.faults += 1
            if mood is Mood.HANGS:
                time.sleep(_HANG_S)
                return
            if mood in _STATUS:
                self._send(_STATUS[mood], b"{}")
                return
            answer = moody.answer(body)
            if mood is Mood.CUTS:
                self.connection.close()
                return
            self._send(200, b"no answer but words" if mood is Mood.GARBAGE else answer)

        def _send(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("content-type", moody.content_type)
                self.send_header("content-length", str(len(body)))
                if status == 429:
                    self.send_header("retry-after", "1")
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # who asked was killed

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


class BackEnd(MoodyServer):
    """An OTLP/HTTP receiver that keeps each span by its ids, as Tempo does."""

    content_type = "application/x-protobuf"

    def __init__(self) -> None:
        self.spans: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By trace and span id: the distinct contents that came."""
        super().__init__()

    def answer(self, body: bytes) -> bytes:
        for span in decode(body):
            self.spans[span.trace_id, span.span_id].add(repr(span))
        return b""


class MoodyJudge(MoodyServer):
    """An OpenAI-compatible endpoint that answers each step with a fixed reply."""

    def __init__(self, judge: JudgeServer, *, delay_s: float = 0) -> None:
        self._judge = judge
        self._delay_s = delay_s
        super().__init__()

    def answer(self, body: bytes) -> bytes:
        request: Any = json.loads(body)
        time.sleep(self._delay_s)
        return json.dumps(self._judge.reply(request)).encode()


@contextmanager
def closing_all(*servers: MoodyServer) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.close()
