"""What traffic leaves behind: bytes in the store for each byte received, and memory that grows."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from tests.benchmarks.measured import Server
from tests.benchmarks.peers import Peers
from tests.benchmarks.pipeline import Scores, collector, configure, new_answers, running_stub, send_all
from tests.benchmarks.recording import Measurement, versions_of

ROUNDS: Final = 3
FIRST: Final = 300
"""Answers after which caches are full, and the growth is that of traffic."""
FURTHER: Final = 1_000
AT_A_TIME: Final = 100
AT_ONCE: Final = 64


def measure(_: Peers) -> list[Measurement]:
    """Measure a thousand judged answers, beside what came in and what was there before."""
    disk, memory = [], []
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        scores = stack.enter_context(Scores.receiving())
        configure(stub, latency_s=0.0)
        for _ in range(ROUNDS):
            stored, grown = _one_round(stub, scores)
            disk.append(stored)
            memory.append(grown)
    return [
        Measurement(
            what="bytes in the store, an answer",
            alternative="bytes received, an answer",
            ratios=tuple(disk),
            versions={"sqlite": sqlite3.sqlite_version},
        ),
        Measurement(
            what=f"memory after {FURTHER:,} further answers",
            alternative=f"memory after the first {FIRST}",
            ratios=tuple(memory),
            versions=versions_of(["grpcio"]),
        ),
    ]


def _one_round(stub: str, scores: Scores) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        with collector(stub, scores, AT_ONCE, store) as server:
            _send(server, scores, new_answers(FIRST))
            server.at_rest()
            bytes_before, memory_before = bytes_in(store), server.rss_mb()
            requests = new_answers(FURTHER)
            _send(server, scores, requests)
            server.at_rest()
            stored = (bytes_in(store) - bytes_before) / sum(map(len, requests))
            return stored, server.rss_mb() / memory_before


def _send(server: Server, scores: Scores, requests: Sequence[bytes]) -> None:
    """Send answers, some at a time, so that what waits is not measured."""
    for start in range(0, len(requests), AT_A_TIME):
        asyncio.run(send_all(server, requests[start : start + AT_A_TIME], scores))


def bytes_in(store: Path) -> int:
    address = f"{store.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as db:
        [(pages,)], [(free,)], [(size,)] = (
            db.execute(f"PRAGMA {name}").fetchall() for name in ("page_count", "freelist_count", "page_size")
        )
    used: int = (pages - free) * size
    return used
