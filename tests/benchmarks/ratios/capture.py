"""What recording one RAG call costs an application, beside the bare SDK that writes the same attributes.

The call: a root span (100-character question, 600-character answer), a retrieval (five chunks of 1 kB with
ids and scores) and a generation (6 kB prompt, answer, model, usage). Each contender is a process of its own
and measures in turns, many short rounds in shuffled order. The caller's time is the calling thread's, on the
clock; CPU is all of the contender's, exports included.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.benchmarks.recording import Measurement, versions_of

PACKAGE: Final = "tests.benchmarks.capture_cost"
BARE: Final = "bare SDK"
WARM_UP: Final = 3
ROUNDS: Final = 40
CALLS: Final = 40
OURS: Final = ("ragtrace", "ragtrace, sampled out", "ragtrace, not instrumented")
QUANTITIES: Final = {"wall": "time of the caller", "process": "CPU"}


def measure() -> list[Measurement]:
    """Measure ragtrace beside the bare SDK."""
    with ExitStack() as stack:
        bare, *contenders = _started(stack, [BARE, *OURS])
        _interleave([bare, *contenders])
    return [
        Measurement(
            what=f"{contender.name}, {shown}",
            alternative=BARE,
            ratios=tuple(
                one[quantity] / other[quantity]
                for one, other in zip(contender.rounds, bare.rounds, strict=True)
            ),
            versions=versions_of(["opentelemetry-sdk"]),
        )
        for contender in contenders
        for quantity, shown in QUANTITIES.items()
    ]


def _started(stack: ExitStack, names: Sequence[str]) -> list[Contender]:
    """Start a sink and the contenders, which are ready."""
    port = stack.enter_context(contending("sink", [sys.executable, "-m", "tests.backends.answering"])).heard()
    command = [sys.executable, "-m", f"{PACKAGE}.worker"]
    contenders = [
        stack.enter_context(
            contending(
                name,
                [*command, name, f"http://127.0.0.1:{port}"],
                **({"OTEL_TRACES_SAMPLER": "always_off"} if "sampled out" in name else {}),
            )
        )
        for name in names
    ]
    for contender in contenders:
        contender.heard()
    return contenders


def _interleave(contenders: Sequence[Contender]) -> None:
    shuffled = random.Random(5)
    for number in range(WARM_UP + ROUNDS):
        for contender in shuffled.sample(contenders, len(contenders)):
            measurement = contender.told(str(CALLS))
            if number >= WARM_UP:
                contender.rounds.append(measurement)


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
