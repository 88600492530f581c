"""A judge behind HTTP that answers as an attack has it, and counts what comes to it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.acceptance.replies import REPLIES
from tests.attack.serving import QuietHandler, serving
from tests.patience import PATIENCE_S
from tests.planted import answered

__all__ = ["HostileJudge", "Said", "completion", "hostile_judge", "well"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What it does with a request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    cuts: bool = False
    """It hangs up without a word."""
    hangs: bool = False
    """It says nothing until the test is over."""


Rule = Callable[[Mapping[str, Any]], Said]
"""What it says to a request, by its body."""


@dataclass(slots=True)
class HostileJudge:
    """Its address, what it does now, and what came."""

    rule: Rule
    base_url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    """Of every request, in their order."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def requests(self) -> int:
        return len(self.bodies)

    def wait_for(self, number: int) -> None:
        """Return once so many requests have come."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.requests >= number, timeout=PATIENCE_S), self.requests


def completion(
    request: Mapping[str, Any],
    usage: object = None,
    *,
    text: str | None = None,
    replies: Mapping[str, Any] = REPLIES,
) -> bytes:
    """Return a chat completion that answers the step which a request asks for, with any usage."""
    step = "verify" if '"verdicts"' in json.dumps(request.get("response_format")) else "extract"
    content = json.dumps(answered(replies[step], request)) if text is None else text
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    told: dict[str, Any] = {"object": "chat.completion", "choices": choices, "usage": usage}
    return json.dumps(told).encode()  # writes Infinity and NaN, too, as some servers do


def well(request: Mapping[str, Any]) -> Said:
    """Answer as a judge should."""
    return Said(body=completion(request, {"prompt_tokens": 100, "completion_tokens": 20}))


@contextmanager
def hostile_judge(rule: Rule) -> Iterator[HostileJudge]:
    """Serve on a free loopback port until the block ends."""
    judge = HostileJudge(rule)

    class Handler(QuietHandler):
        disable_nagle_algorithm = True

        def do_POST(self) -> None:  # noqa: N802 -- the name in http.server
            body = self.rfile.read(int(self.headers["content-length"]))
            with judge.changed:
                judge.bodies.append(body)
                judge.changed.notify_all()
            said = judge.rule(json.loads(body))
            if said.hangs:
                judge.over.wait(PATIENCE_S)
            if said.cuts or said.hangs:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            with suppress(OSError):  # who asked was killed
                self._send(said)

        def _send(self, said: Said) -> None:
            self.send_response(said.status)
            for name, value in {"content-length": str(len(said.body)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.body)

    with serving(Handler) as address:
        judge.base_url = f"{address}/v1"
        try:
            yield judge
        finally:
            judge.over.set()
