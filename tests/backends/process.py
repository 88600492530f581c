"""Run a real program on free loopback ports, and stop it again."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx

from tests.patience import PATIENCE_S

ResultT = TypeVar("ResultT")

TEST_VARIABLES = ("RAGTRACE_BACKENDS", "RAGTRACE_REQUIRE_BACKENDS")
"""Settings of the test run itself; no test's environment is cleaned of them."""

_POLL_S = 0.05
_BELOW_EPHEMERAL = range(10_000, 32_000)
_TRIES = 1_000
_GRACE_S = 10
"""For a program that is needed no more: a Tempo with old blocks takes minutes to stop by itself."""


def eventually(probe: Callable[[], ResultT | None], *, what: str, deadline_s: float = PATIENCE_S) -> ResultT:
    """Return the first result of the probe that is neither ``None`` nor false.

    For the state of other processes, which cannot be awaited. Blocks: call it in a thread from async tests.

    Raises:
        TimeoutError: the probe had none before the deadline.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        result = probe()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {deadline_s:g} s for {what}; last seen: {result!r}")
        time.sleep(_POLL_S)


def free_ports(count: int) -> list[int]:
    """Return distinct loopback ports that nothing listens on now.

    They are below those that the system gives to outgoing connections: such a connection of another test
    would take the port before the program does, which may import for half a minute first.
    """
    ports: list[int] = []
    for port in random.sample(_BELOW_EPHEMERAL, _TRIES):
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"there are no {count} free ports among {_TRIES} of {_BELOW_EPHEMERAL}")


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_ready(url: str) -> bool:
    """Say whether an address answers that all is well."""
    try:
        return httpx.get(url, timeout=1).is_success
    except httpx.TransportError:
        return False


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    ready: Callable[[], bool],
    log: Path,
    deadline_s: float = PATIENCE_S,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends; its output goes to the log file.

    Raises:
        RuntimeError: it ended, or was not ready in time; the message ends with its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        _await_ready(process, ready, log, deadline_s)
        yield process
    finally:
        _stop(process)


def _await_ready(
    process: subprocess.Popen[str], ready: Callable[[], bool], log: Path, deadline_s: float
) -> None:
    try:
        eventually(lambda: process.poll() is not None or ready(), what="the program", deadline_s=deadline_s)
    except TimeoutError as exc:
        raise RuntimeError(f"{process.args!r} is not ready after {deadline_s:g} s\n{_tail(log)}") from exc
    if process.poll() is not None:
        raise RuntimeError(f"{process.args!r} ended with exit code {process.returncode}\n{_tail(log)}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=PATIENCE_S)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4_000:]
