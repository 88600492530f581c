"""A judge as one gets it: slow at times, over its limits, down for a while, and not always to the point."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.acceptance.judge_server import JudgeServer
from tests.acceptance.replies import REPLIES
from tests.backends.answering import Reply, answering

KEY = "RAGTRACE_SOAK_KEY"
_CYCLE_S, _DOWN_S = 60.0, 6.0
_LONGER_THAN_JUDGE_TIMEOUT_S = 3.0


@contextmanager
def moody_judge(seed: int) -> Iterator[str]:
    """Serve an OpenAI-compatible API on loopback until the block ends; yield its base URL."""
    random, lock, began_s = Random(seed), threading.Lock(), time.monotonic()
    judge = JudgeServer(REPLIES)

    def answer(_method: str, _path: str, body: bytes) -> Reply:
        with lock:
            luck, wait_s = random.random(), random.uniform(0.005, 0.1)
        if (time.monotonic() - began_s) % _CYCLE_S > _CYCLE_S - _DOWN_S:
            return Reply(503, b"{}")
        if luck < 0.03:
            return Reply(429, b"{}")
        if luck < 0.05:
            return Reply(500, b"<html>")
        if luck < 0.07:
            return Reply(200, b'{"choices": []}')
        time.sleep(_LONGER_THAN_JUDGE_TIMEOUT_S if luck < 0.08 else wait_s)
        return Reply(200, json.dumps(judge.reply(json.loads(body))).encode())

    with answering(answer) as url:
        yield f"{url}/v1"
