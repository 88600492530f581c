"""The laws of a store that several processes write, while they and the database are hit."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from ragtrace.budget import Budget, Spend
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger import State
from ragtrace_collector.sampling import Limits, Sampler
from ragtrace_collector.store.postgres import PostgresServer
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.store import Store
from tests.architecture.source import ROOT
from tests.backends.pgbouncer import running_pgbouncer
from tests.backends.postgres_server import Postgres, running_postgres
from tests.backends.process import eventually
from tests.patience import PATIENCE_S
from tests.stores.crew import BUDGET, GONE_S, SAMPLE, SPAN
from tests.unit.collector.asked import asked, decide

HITS = 8
TRACES = 40
"""That are acknowledged before the last hit."""
MEMBERS = 3


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of this test alone, which it may kill."""
    with running_postgres() as running:
        yield running


@pytest.mark.slow
def test_each_answer_is_settled_and_carried_once_whatever_happens(server: Postgres, tmp_path: Path) -> None:
    url, said = server.new_database(), tmp_path / "said"
    said.mkdir()
    with running_pgbouncer(url) as pooled:
        run_crew(Crew(pooled, said), said, server)
    asyncio.run(check_laws(url, server, said_in(said)))


def run_crew(crew: Crew, said: Path, server: Postgres) -> None:
    """Let it work, behind a pooler in transaction mode, while it and the database are hit."""
    try:
        crew.await_all()
        chance = random.Random("all")
        for number in range(1, HITS + 1):
            await_traces(said, number * TRACES // HITS)
            time.sleep(chance.uniform(0, 0.5))
            crew.hit(chance.choice(BLOWS), chance.randrange(MEMBERS), server)
        crew.await_all()
        crew.end()
    finally:
        crew.kill()


class Crew:
    """The processes, each with the name of its file."""

    def __init__(self, url: str, said: Path) -> None:
        self._url = url
        self._said = said
        self._members: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        for place in range(MEMBERS):
            self._start(place, name=place)

    def await_all(self) -> None:
        """Wait until each process has its file, and so listens to signals."""
        files = [self._said / str(name) for name, _ in self._members.values()]
        eventually(lambda: all(file.exists() for file in files), what="every process")

    def hit(self, blow: str, place: int, server: Postgres) -> None:
        """Strike a process or the database."""
        name, process = self._members[place]
        if blow == "kill":
            process.kill()
            process.wait(PATIENCE_S)
            self._start(place, name=name + MEMBERS)
        elif blow == "pause":
            process.send_signal(signal.SIGSTOP)
            time.sleep(GONE_S + 1.5)
            process.send_signal(signal.SIGCONT)
        elif blow == "cut":
            with suppress(psycopg.Error):
                server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'ragtrace'"
                )
        elif blow == "kill the database":
            server.stop(signal.SIGQUIT)
            time.sleep(1)
            server.start()

    def end(self) -> None:
        """Let the processes finish what is left."""
        for _, process in self._members.values():
            process.terminate()
        for _, process in self._members.values():
            assert process.wait(PATIENCE_S) == 0, "a process did not end"

    def kill(self) -> None:
        """End what is still there."""
        for _, process in self._members.values():
            process.kill()
            process.wait(PATIENCE_S)

    def _start(self, place: int, *, name: int) -> None:
        command = [sys.executable, "-m", "tests.stores.crew", self._url, str(self._said), str(name)]
        self._members[place] = name, subprocess.Popen(command, cwd=ROOT)


BLOWS = ["kill", "pause", "cut", "cut", "kill the database", "nothing"]


async def test_processes_never_wait_for_one_another_in_a_circle(postgres: Postgres) -> None:
    url, budgets = postgres.new_database(), [Budget(name=name, limits=BUDGET.limits) for name in "ab"]
    stores = [await Store.open(PostgresServer(url), max_bytes=1 << 30) for _ in range(2)]
    parts = await put_jobs(stores[0], 9)

    async def work(store: Store, direction: int) -> None:
        for _ in range(20):
            reserving = [store.budget.reserve(each, Spend(calls=1), now_ns=1) for each in budgets]
            appending = [store.append([each], forward={}, now_ns=1) for each in parts]
            await asyncio.gather(*(reserving + appending)[::direction])

    await asyncio.gather(*map(work, stores, (1, -1)))
    for store in stores:
        await store.aclose()
    connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ragtrace'"
    eventually(lambda: postgres.execute(connected, url) == [(0,)], what="what the server counted for them")
    counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert postgres.execute(counted, url) == [(0,)]


async def test_a_limit_of_answers_is_one_for_all_processes(postgres: Postgres) -> None:
    url, kept = postgres.new_database(), Counter[str]()
    stores = [await Store.open(PostgresServer(url), max_bytes=1 << 30) for _ in range(3)]
    samplers = [
        Sampler(plan=SamplingPlan(ratio=1.0), limits=Limits(answers=20, per_tenant=8)) for _ in stores
    ]

    async def work(first: int, store: Store, sampler: Sampler) -> None:
        for number in range(first, first + 30):
            decision = decide(sampler, asked(number, tenant="abcd"[number % 4]))
            refused = await store.sampling.save(sampler.take_changes())
            sampler.give_back(refused)
            kept[decision.tenant] += decision.left_out is None and not refused

    await asyncio.gather(*map(work, (0, 30, 60), stores, samplers))
    assert kept.total() == 20
    assert max(kept.values()) <= 8
    later = asked(99, tenant="a", at_s=60)
    for store, sampler in zip(stores, samplers, strict=True):
        assert sampler.roll(later.now_ns)
        sampler.learn(await store.sampling.sums(now_ns=later.now_ns))
        odds = sampler.explain(later.trace, later.record, now_ns=later.now_ns)
        assert 90 * odds.probability < 20, "it knows what the others saw"
        await store.aclose()


async def put_jobs(store: Store, number: int) -> list[TraceSlice]:
    """Append some traces with an answer each to judge."""
    parts = [TraceSlice(trace_id=f"{each:032x}", payload=b"spans", spans=()) for each in range(number)]
    await store.append(parts, forward={}, now_ns=1)
    for part in parts:
        job = Job(trace_id=part.trace_id, span_id=SPAN, sample=SAMPLE)
        await store.decide_trace(part.trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=1)
    return parts


def await_traces(said: Path, number: int) -> None:
    """Wait until so many traces were acknowledged."""
    eventually(lambda: sum(line[0] == "appended" for line in said_in(said)) >= number, what="their work")


def said_in(folder: Path) -> list[list[str]]:
    return [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]


async def check_laws(url: str, server: Postgres, lines: list[list[str]]) -> None:
    appended = {trace_id for what, trace_id, *_ in lines if what == "appended"}
    carriers: dict[str, set[str]] = defaultdict(set)
    for what, trace_id, *carrier in lines:
        if what == "sent":
            carriers[trace_id].add(*carrier)
    jobs = server.execute("SELECT trace_id, stands, why, carrier FROM ragtrace.job", url)
    outcomes = {trace_id: (stands, carrier) for trace_id, stands, _, carrier in jobs}
    assert appended <= outcomes.keys(), "an acknowledged trace was lost"
    judged = {trace_id: {carrier} for trace_id, (stands, carrier) in outcomes.items() if stands == "judged"}
    assert {stands for stands, _ in outcomes.values()} <= {State.JUDGED, State.OVER_BUDGET}
    assert carriers == judged, "a verdict was carried twice, or not at all"
    store = await Store.open(PostgresServer(url), max_bytes=1 << 30)
    ledger = await store.ledger()
    (calls,) = (await store.budget.status(BUDGET, now_ns=time.time_ns())).left()
    await store.aclose()
    assert ledger.adds_up
    assert ledger.seen == len(outcomes)
    stood = Counter((stands, why) for _, stands, why, _ in jobs)
    assert {(each.state.value, each.reason): each.number for each in ledger.accounts if each.number} == stood
    assert len(judged) <= calls.spent <= calls.most, "more was spent than the limit"
    assert server.execute("SELECT sum(number) FROM ragtrace.outbox WHERE state = 'waiting'", url) == [(0,)]
    assert server.execute("SELECT count(*) FROM ragtrace.answer_row WHERE is_valid = 1", url) == [
        (len(judged),)
    ]
