"""How long the slowest part of the page's overview takes, beside one look at every row."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.index_rows import INDEX_TABLES, note_feedback, put
from ragtrace.answers.port import TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.answers.sums import fold
from ragtrace.model import Label, VerdictCounts
from ragtrace.sql import SqliteDb
from ragtrace_collector.ui.overview import read_overview
from tests.benchmarks.recording import Measurement

HOUR_NS: Final = 3_600_000_000_000
END_NS: Final = 1_795_262_400_000_000_000
DAYS: Final = 90
_METRICS: Final = ("faithfulness", "answer_relevance", "chunk_precision")
_BLAMES: Final = ("healthy", "generation_problem", "retrieval_noise", "retrieval_failure")
_AT_ONCE: Final = 200
_FOLDED: Final = 5_000
"""Rows between two times that the sums are made: half a day of these answers."""
_RUNS: Final = 15
ROUNDS: Final = 3
ROWS: Final = 200_000
LOOKS: Final = 5


def measure() -> list[Measurement]:
    """Measure every kind of overview; keep the slowest. A list ends by the clock, so it has no ratio."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.db"
        fill(path)
        index = reader(path)
        slowest = []
        for _ in range(ROUNDS):
            scan_s = _scan_s(path)
            slowest.append(asyncio.run(_slowest_s(index)) / scan_s)
    return [
        Measurement(
            what=f"slowest overview of {ROWS:,} answers",
            alternative="one look at every row",
            ratios=tuple(slowest),
            versions={"sqlite": sqlite3.sqlite_version},
        )
    ]


def answers(number: int) -> Iterator[AnswerSummary]:
    """Yield answers of 90 days from 12 services, 5 models, 4 prompt versions and 3 tenants."""
    draw = random.Random(7)
    trace = session = ""
    for place in range(number):
        time_ns = END_NS - (number - place) * (DAYS * 24 * HOUR_NS // number) + draw.randrange(10**9)
        trace = trace if trace and draw.random() < 0.1 else f"{draw.getrandbits(128):032x}"
        session = session if session and draw.random() < 0.7 else f"{draw.getrandbits(128):032x}"
        service = min(int(draw.expovariate(0.6)), 11)
        yield _answer(draw, time_ns, trace, session, service)


def _answer(draw: random.Random, time_ns: int, trace: str, session: str, service: int) -> AnswerSummary:
    scores = [min(1.0, draw.betavariate(6, 1.2)) for _ in _METRICS]
    is_error, is_skipped = draw.random() < 0.005, draw.random() < 0.03
    label = Label.PASS if scores[0] >= 0.6 else Label.FAIL
    label = Label.ERROR if is_error else Label.SKIPPED if is_skipped else label
    has_scores = not is_error and not is_skipped
    metrics = tuple(
        MetricSummary(
            name=name,
            label=(Label.PASS if score >= 0.6 else Label.FAIL) if has_scores else label,
            score=score if has_scores else None,
        )
        for name, score in zip(_METRICS, scores, strict=True)
    )
    claims = draw.randrange(1, 9)
    wrong = sum(draw.random() > scores[0] for _ in range(claims))
    return AnswerSummary(
        key=AnswerKey(trace, f"{draw.getrandbits(64):016x}", f"tenant-{service % 3}"),
        carrier_span_id=f"{draw.getrandbits(64):016x}",
        time_ns=time_ns,
        judged_ns=time_ns + draw.randrange(60 * 10**9),
        service=f"service-{service}",
        model=f"model-{min(int(draw.expovariate(1)), 4)}",
        prompt_version=str(min(int(draw.expovariate(1)), 3)),
        session=session,
        label=label,
        doubt=round(draw.random() ** 4, 2),
        reason="judge_timeout" if is_error else "no_claims" if is_skipped else "",
        metrics=metrics,
        claims=VerdictCounts(
            supported=claims - wrong, contradicted=wrong // 2, unsupported=wrong - wrong // 2
        ),
        chunks=VerdictCounts(relevant=draw.randrange(4), irrelevant=draw.randrange(3)),
        blame=_BLAMES[2 * (scores[2] < 0.6) + (scores[0] < 0.6)] if has_scores else "",
        judge="openai:gpt-4o-mini",
        evaluator_version="3.1",
        rule="ratio" if draw.random() < 0.7 else "floor",
        probability=draw.choice((0.1, 0.1, 0.1, 0.5, 1.0)),
        cost_usd=draw.randrange(500, 5_000) / 1e6,
        supersedes="",
    )


def fill(path: Path) -> None:
    """Write the rows, in transactions as long as a collector's."""
    with closing(sqlite3.connect(path, isolation_level=None, factory=SqliteDb)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(INDEX_TABLES)
        db.execute("BEGIN")
        for place, answer in enumerate(answers(ROWS), 1):
            put(db, answer)
            if place % 50 == 0:
                note_feedback(db, answer.key, "down" if place % 3 else "up")
            if place % _FOLDED == 0:
                while fold(db, at_once=_AT_ONCE):
                    pass
            if place % _AT_ONCE == 0:
                db.execute("COMMIT")
                db.execute("BEGIN")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def reader(path: Path) -> AnswerIndex:
    """Open the file as pages do: anew for each query, read-only."""

    @contextmanager
    def connect() -> Iterator[sqlite3.Connection]:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, factory=SqliteDb)) as db:
            db.execute("BEGIN")
            yield db

    return AnswerIndex(connect)


async def _slowest_s(index: AnswerIndex) -> float:
    """Measure overviews of several ranges, with and without a scope; each is the median of some runs."""
    spent = []
    for days in (1, 7, 30, 90):
        since = END_NS - days * 24 * HOUR_NS
        for scope in (
            TrafficScope(since_ns=since),
            TrafficScope(since_ns=since, tenant="tenant-1"),
            TrafficScope(since_ns=since, service="service-1"),
            TrafficScope(since_ns=since, service="service-9", model="model-1"),
        ):
            spent += [await _spent_s(each) for each in _queries(index, scope, days)]
    spent.append(await _spent_s(lambda: index.session("what", tenant=None)))
    spent.append(await _spent_s(lambda: index.sessions(tenant=None)))
    spent.append(await _spent_s(lambda: index.sessions(tenant="tenant-1")))
    return max(spent)


def _queries(
    index: AnswerIndex, scope: TrafficScope, days: int
) -> tuple[Callable[[], Awaitable[object]], ...]:
    period_ns = HOUR_NS if days <= 7 else 24 * HOUR_NS
    return (
        lambda: index.trends(["faithfulness"], scope, period_ns=period_ns),
        lambda: index.sums(scope),
        lambda: index.quadrant(scope),
        lambda: index.metrics(scope),
        lambda: index.values("service", scope),
        lambda: index.newest_ns(scope),
        lambda: index.random_order(scope, after=0.3, limit=20),
        lambda: read_overview(index, replace(scope, until_ns=END_NS), now_ns=END_NS),
    )


async def _spent_s(query: Callable[[], Awaitable[object]]) -> float:
    spent = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        await query()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


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
