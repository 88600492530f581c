"""The index of judged answers at a million rows: bytes a row, rows a second, and every kind of query.

    python -m tests.benchmarks.answer_index [--engine postgres] [--rows 1000000] [--keep FILE]

The rows are written to SQLite in any case; PostgreSQL gets a copy of them, in a server of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.index_rows import INDEX_TABLES, forget, note_feedback, put
from ragtrace.answers.port import AnswerFilter, SortBy, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.answers.sums import fold
from ragtrace.model import Label, VerdictCounts, VerdictLabel
from ragtrace_collector.store.postgres import PostgresServer, create
from ragtrace_collector.store.reader import index_of
from ragtrace_collector.ui.overview import read_overview
from tests.backends.postgres_server import running_postgres

HOUR_NS: Final = 3_600_000_000_000
END_NS: Final = 1_795_262_400_000_000_000
DAYS: Final = 90
_METRICS: Final = ("faithfulness", "answer_relevance", "chunk_precision")
_BLAMES: Final = ("healthy", "generation_problem", "retrieval_noise", "retrieval_failure")
_AT_ONCE: Final = 200
_FOLDED: Final = 5_000
"""Rows between two times that the sums are made: half a day of these answers."""
_RUNS: Final = 15


def answers(number: int) -> Iterator[AnswerSummary]:
    """Yield answers of 90 days from 12 services, 5 models, 4 prompt versions and 3 tenants."""
    draw = random.Random(7)
    trace = session = ""
    for place in range(number):
        time_ns = END_NS - (number - place) * (DAYS * 24 * HOUR_NS // number) + draw.randrange(10**9)
        trace = trace if trace and draw.random() < 0.1 else f"{draw.getrandbits(128):032x}"
        session = session if session and draw.random() < 0.7 else _uuid(draw)
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


def _uuid(draw: random.Random) -> str:
    text = f"{draw.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def fill(path: Path, number: int) -> None:
    """Write the rows, in transactions as long as a collector's."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(INDEX_TABLES)
        db.execute("BEGIN")
        spent = last = 0.0
        for place, answer in enumerate(answers(number), 1):
            start = time.perf_counter()
            put(db, answer)
            if draw_feedback(place):
                note_feedback(db, answer.key, "down" if place % 3 else "up")
            if place % _FOLDED == 0:
                while fold(db, at_once=_AT_ONCE):
                    pass
            if place % _AT_ONCE == 0:
                db.execute("COMMIT")
                db.execute("BEGIN")
            spent += time.perf_counter() - start
            if place % 100_000 == 0:
                print(f"  {place:>9,} rows: {100_000 / (spent - last):,.0f} put/s", flush=True)
                last = spent
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = db.execute("PRAGMA page_count").fetchone()[0] * db.execute("PRAGMA page_size").fetchone()[0]
    print(f"put: {number / spent:,.0f} rows/s; {pages / number:.0f} bytes a row")


def draw_feedback(place: int) -> bool:
    """Return whether people judged this answer, too: one in fifty."""
    return place % 50 == 0


def filters() -> Iterator[tuple[str, AnswerFilter]]:
    """Yield filters, each alone and some together."""
    week = TrafficScope(since_ns=END_NS - 7 * 24 * HOUR_NS, until_ns=END_NS)
    yield "everything", AnswerFilter()
    yield "last day", AnswerFilter(scope=TrafficScope(since_ns=END_NS - 24 * HOUR_NS))
    yield "last week", AnswerFilter(scope=week)
    yield "tenant", AnswerFilter(scope=TrafficScope(tenant="tenant-1"))
    yield "frequent service", AnswerFilter(scope=TrafficScope(service="service-0"))
    yield "rare service", AnswerFilter(scope=TrafficScope(service="service-11"))
    yield "no such service", AnswerFilter(scope=TrafficScope(service="what"))
    yield "judge", AnswerFilter(judge="openai:gpt-4o")
    yield "model", AnswerFilter(scope=TrafficScope(model="model-3"))
    yield "prompt version", AnswerFilter(scope=TrafficScope(prompt_version="3"))
    for label in Label:
        yield f"label {label.value}", AnswerFilter(label=label)
    yield "metric fails", AnswerFilter(metric="chunk_precision", label=Label.FAIL)
    yield "score below 0.2", AnswerFilter(max_score=0.2)
    yield "score 0.500 to 0.501", AnswerFilter(min_score=0.5, max_score=0.501)
    yield "contradicted", AnswerFilter(verdict=VerdictLabel.CONTRADICTED)
    yield "partly relevant", AnswerFilter(verdict=VerdictLabel.PARTLY_RELEVANT)
    yield "blame", AnswerFilter(blame="retrieval_failure")
    yield "feedback down", AnswerFilter(feedback="down")
    yield "feedback any", AnswerFilter(feedback="any")
    yield "beginning of a trace", AnswerFilter(trace_id="abcdef")
    yield "service + error", AnswerFilter(scope=TrafficScope(service="service-3"), label=Label.ERROR)
    yield (
        "week + service + fail",
        AnswerFilter(scope=TrafficScope(since_ns=week.since_ns, service="service-2"), label=Label.FAIL),
    )
    yield (
        "rare model + blame + down",
        AnswerFilter(scope=TrafficScope(model="model-4"), blame="retrieval_failure", feedback="down"),
    )
    yield (
        "pass and contradicted, low",
        AnswerFilter(label=Label.PASS, verdict=VerdictLabel.CONTRADICTED, max_score=0.61),
    )


async def pages(index: AnswerIndex) -> None:
    """Measure lists: each filter in each order, on the first page and deep ones."""
    print(f"{'list':40} {'order':8} {'rows':>5} {'cut':>4} {'p50 ms':>8} {'p95 ms':>8}")
    for name, chosen in filters():
        for sort in SortBy:
            after, found, cut = None, 0, 0
            spent = []
            for _ in range(_RUNS):
                start = time.perf_counter()
                page = await index.page(chosen, sort=sort, after=after)
                spent.append(time.perf_counter() - start)
                found, cut, after = found + len(page.answers), cut + page.is_cut, page.next
            _print(f"{name:40} {sort.value:8} {found:>5} {cut:>4}", spent)


async def overviews(index: AnswerIndex) -> None:
    """Measure overviews of several ranges, with and without a scope."""
    print(f"{'overview':61} {'p50 ms':>8} {'p95 ms':>8}")
    for days in (1, 7, 30, 90):
        since = END_NS - days * 24 * HOUR_NS
        period = HOUR_NS if days <= 7 else 24 * HOUR_NS
        for name, scope in (
            ("all", TrafficScope(since_ns=since)),
            ("tenant", TrafficScope(since_ns=since, tenant="tenant-1")),
            ("service", TrafficScope(since_ns=since, service="service-1")),
            ("rare", TrafficScope(since_ns=since, service="service-9", model="model-1")),
        ):
            queries: dict[str, Callable[[], Awaitable[object]]] = {
                "trend": lambda s=scope, p=period: index.trends(["faithfulness"], s, period_ns=p),  # type: ignore[misc]
                "sums": lambda s=scope: index.sums(s),  # type: ignore[misc]
                "quadrant": lambda s=scope: index.quadrant(s),  # type: ignore[misc]
                "metrics": lambda s=scope: index.metrics(s),  # type: ignore[misc]
                "services": lambda s=scope: index.values("service", s),  # type: ignore[misc]
                "newest": lambda s=scope: index.newest_ns(s),  # type: ignore[misc]
                "random": lambda s=scope: index.random_order(s, after=0.3, limit=20),  # type: ignore[misc]
            }
            queries["whole page"] = lambda s=scope: _whole(index, s)  # type: ignore[misc]
            for title, query in queries.items():
                await _measure(f"{days:>2} days, {name}: {title}", query)
    await _measure("session", lambda: index.session("what", tenant=None))
    for tenant in (None, "tenant-1"):
        await _measure(f"sessions of {tenant or 'all'}", lambda t=tenant: index.sessions(tenant=t))  # type: ignore[misc]


async def _whole(index: AnswerIndex, scope: TrafficScope) -> None:
    await read_overview(index, replace(scope, until_ns=END_NS), now_ns=END_NS)


async def _measure(name: str, query: Callable[[], Awaitable[object]]) -> None:
    spent = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        await query()
        spent.append(time.perf_counter() - start)
    _print(f"{name:61}", spent)


class Spent(NamedTuple):
    """What a query took, in seconds."""

    high: float
    """The 95th percentile."""
    name: str
    median: float


SPENT: list[Spent] = []
"""Of every query so far."""


def _print(name: str, spent: list[float]) -> None:
    high = statistics.quantiles(spent, n=20)[-1]
    middle = statistics.median(spent)
    SPENT.append(Spent(high, name, middle))
    print(f"{name} {middle * 1e3:>8.1f} {high * 1e3:>8.1f}", flush=True)


def reader(path: Path) -> AnswerIndex:
    """Open the file as pages do: anew for each query, read-only."""

    @contextmanager
    def connect() -> Iterator[sqlite3.Connection]:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as db:
            db.execute("BEGIN")
            yield db

    return AnswerIndex(connect)


@contextmanager
def copied(path: Path) -> Iterator[AnswerIndex]:
    """Copy the rows of a file to PostgreSQL, and read them there as pages do."""
    with running_postgres() as server:
        database = PostgresServer(server.new_database())
        with database.connect() as connection, closing(sqlite3.connect(path)) as db:
            create(connection)
            connection.execute("SET search_path = ragtrace")
            connection.execute("SET ragtrace.writer = 1")
            for table in re.findall(r"CREATE TABLE (\w+)", INDEX_TABLES):
                rows = db.execute(f"SELECT * FROM {table}")
                names = ", ".join(column[0] for column in rows.description)
                with connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row)
        server.execute("VACUUM ANALYZE", database.url)
        yield index_of(database)
        database.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="use this file again, or make it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "index.db"
        if not path.exists():
            fill(path, given.rows)
        with copied(path) if given.engine == "postgres" else nullcontext(reader(path)) as index:
            asyncio.run(pages(index))
            asyncio.run(overviews(index))
        _forget(path)
    print("slowest:")
    for high, name, _ in sorted(SPENT, reverse=True)[:12]:
        print(f"  {high * 1e3:8.1f} ms  {name}")


def _forget(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        start = time.perf_counter()
        number = len(forget(db, before_ns=END_NS, most_rows=0, at_once=5_000))
        print(f"forget: {number / (time.perf_counter() - start):,.0f} rows/s")
        db.execute("ROLLBACK")


if __name__ == "__main__":
    main()
