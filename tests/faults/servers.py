"""A back end and a judge that have moods: they answer, refuse, hang, cut the line, or are away."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

from ragtrace.traces.otlp import decode
from tests.acceptance.judge_server import JudgeServer
from tests.backends.answering import AnsweringServer, Reply

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
        self.port = 0
        self._server: AnsweringServer | None = None
        self.set(Mood.WELL)

    def answer(self, body: bytes) -> bytes:
        raise NotImplementedError

    def set(self, mood: Mood) -> None:
        self._mood = mood
        if mood is Mood.AWAY:
            self.close()
        elif self._server is None:
            self._server = AnsweringServer(self._reply, port=self.port, keeps_alive=False)
            self.port = self._server.server_port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reply(self, _method: str, _path: str, body: bytes) -> Reply | None:
        mood = self._mood
        if mood is Mood.HANGS:
            time.sleep(_HANG_S)
            return None
        if mood in _STATUS:
            return Reply(_STATUS[mood], b"{}", self.content_type)
        answer = self.answer(body)
        if mood is Mood.CUTS:
            return None
        return Reply(200, b"no answer but words" if mood is Mood.GARBAGE else answer, self.content_type)


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
    """Close the servers in the end."""
    try:
        yield
    finally:
        for server in servers:
            server.close()
