"""A back end that keeps what comes, and a judge that takes its time."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from ragtrace.traces.otlp import decode
from tests.acceptance.judge_server import JudgeServer
from tests.acceptance.replies import REPLIES
from tests.backends.answering import AnsweringServer, Reply, answering


class BackEnd:
    """An OTLP/HTTP receiver that keeps each span by its ids, as Tempo does."""

    def __init__(self) -> None:
        self.spans: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By trace and span id: the distinct contents that came."""
        self._server = AnsweringServer(self._reply, keeps_alive=False)
        self.port = self._server.server_port

    def close(self) -> None:
        self._server.close()

    def _reply(self, _method: str, _path: str, body: bytes) -> Reply:
        for span in decode(body):
            self.spans[span.trace_id, span.span_id].add(repr(span))
        return Reply(200, b"", "application/x-protobuf")


@contextmanager
def slow_judge(delay_s: float) -> Iterator[str]:
    """Serve an OpenAI-compatible API until the block ends; yield its base URL."""
    judge = JudgeServer(REPLIES)

    def answer(_method: str, _path: str, body: bytes) -> Reply:
        time.sleep(delay_s)
        return Reply(200, json.dumps(judge.reply(json.loads(body))).encode())

    with answering(answer) as url:
        yield f"{url}/v1"
