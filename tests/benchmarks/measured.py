"""A server under measurement: what it costs in processor time, read from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CPU_OF_PROCESS = 2
"""With the complement of a process id before it, Linux' clock of what all its threads ran, in nanoseconds."""
_REST_S = 0.015
"""Processor time between two looks that still counts as rest."""
_POLL_S = 0.1
_IDLE_POLLS = 6
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that is measured."""

    name: str
    pid: int
    protocol: str
    """``grpc`` or ``http``: what it is sent."""
    port: int

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far, all threads and children."""
        return sum(map(_cpu_s, _tree(self.pid)))

    def rss_mb(self) -> float:
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _tree(self.pid))
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def at_rest(self) -> float:
        """Wait until nothing was done for a while, and return the CPU seconds by then. Blocks."""
        last, still = self.cpu_s(), 0
        deadline = time.perf_counter() + _LONGEST_S
        while still < _IDLE_POLLS and time.perf_counter() < deadline:
            time.sleep(_POLL_S)
            now = self.cpu_s()
            still = 0 if now - last > _REST_S else still + 1
            last = now
        return last


def _cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | _CPU_OF_PROCESS)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _tree(int(child))
