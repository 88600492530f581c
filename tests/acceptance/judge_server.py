"""An OpenAI-compatible endpoint whose model follows a rule, and which a test may hold back."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.attack.hostile_judge import Said, completion, hostile_judge
from tests.patience import PATIENCE_S

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
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        said: Mapping[str, Any] = json.loads(completion(request, usage, replies=self._replies))
        return {**said, "id": "chatcmpl-1", "created": 0, "model": request["model"]}

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
    headers = {"content-type": "application/json"}
    with hostile_judge(
        lambda body: Said(body=json.dumps(judge.reply(body)).encode(), headers=headers)
    ) as server:
        judge.base_url = server.base_url
        try:
            yield judge
        finally:
            judge.gate.set()
