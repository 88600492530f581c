"""How long the slowest part of the page's overview takes, beside one look at every row."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import tempfile
import time
from collections.abc import Coroutine
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import answer_index
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 3
ROWS: Final = 200_000
LOOKS: Final = 5


def measure(_: Peers) -> list[Measurement]:
    """Measure every kind of overview; keep the slowest. A list ends by the clock, so it has no ratio."""
    slowest = []
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        path = Path(folder) / "index.db"
        answer_index.fill(path, ROWS)
        index = answer_index.reader(path)
        for _ in range(ROUNDS):
            scan_s = _scan_s(path)
            slowest.append(_slowest_s(answer_index.overviews(index)) / scan_s)
    return [
        Measurement(
            what=f"slowest overview of {ROWS:,} answers",
            alternative="one look at every row",
            ratios=tuple(slowest),
            versions={"sqlite": sqlite3.sqlite_version},
        )
    ]


def _slowest_s(queries: Coroutine[Any, Any, None]) -> float:
    answer_index.SPENT.clear()
    asyncio.run(queries)
    return max(spent.median for spent in answer_index.SPENT)


def _scan_s(path: Path) -> float:
    """Return the seconds of the fastest of some looks at every row: a sum that no index can give."""
    spent = []
    with closing(sqlite3.connect(path)) as db:
        for _ in range(LOOKS):
            start = time.perf_counter()
            db.execute(
                "SELECT sum(judged_ns - time_ns + supported % 7) FROM answer_row NOT INDEXED"
            ).fetchall()
            spent.append(time.perf_counter() - start)
    return min(spent)
