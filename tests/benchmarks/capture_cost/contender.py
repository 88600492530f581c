"""A process that measures when it is told to."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Contender:
    """What is at work in a process, and what it was measured at."""

    name: str
    process: subprocess.Popen[str]
    rounds: list[dict[str, float]] = field(default_factory=list)

    def told(self, order: str) -> Any:
        assert self.process.stdin is not None
        print(order, file=self.process.stdin, flush=True)
        return self.heard()

    def heard(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.name!r} ended: run {self.process.args!r} to see why")
        return json.loads(line)


@contextmanager
def contending(name: str, command: Sequence[str], **settings: str) -> Iterator[Contender]:
    """Start a process with these environment variables, and end it. Its first line says that it is ready."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **settings},
    )
    try:
        yield Contender(name, process)
    finally:
        process.kill()
        process.wait()
