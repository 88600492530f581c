"""Soak collectors over one PostgreSQL: ``python -m tests.soak.cluster --minutes 20``.

Three processes receive, three judge, and a pgbouncer stands before the database. Processes are killed, or
paused for longer than their leases, connections are cut, the database is stopped twice and killed once. In
the end, each answer that was acknowledged has ended, its carrier came, once, and the ledger adds up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ragtrace_collector.store.ledger import take_stock
from ragtrace_collector.store.postgres import PostgresServer
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.pgbouncer import running_pgbouncer
from tests.backends.postgres_server import Postgres, running_postgres
from tests.backends.process import eventually, free_ports
from tests.soak.fates import Fates, FlakySink, differences
from tests.soak.judge import KEY, moody_judge
from tests.soak.traffic import Traffic

_PAUSED_S = 40.0
"""Longer than a writer may be silent."""
_LINGER_S = 600.0


@dataclass(slots=True, kw_only=True)
class Member:
    """One process, which may be killed and started again."""

    folder: Path
    config: Mapping[str, Any]
    role: str
    ports: tuple[int, int]
    """Of gRPC and HTTP."""
    running: CollectorProcess | None = None
    stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Start it, and return when it works; again while the database is away."""

        def is_started() -> bool:
            process = collector_process(self.folder, self.config, options=("--role", self.role))
            try:
                self.running = self.stack.enter_context(process)
            except AssertionError:
                return False
            return True

        eventually(is_started, what="a collector")

    def kill(self) -> None:
        """Send SIGKILL, and start it again."""
        assert self.running is not None
        self.running.kill()
        self.stack.close()
        self.start()

    def pause(self) -> None:
        """Let it stand still for so long that others take over what it has."""
        assert self.running is not None
        self.running.process.send_signal(signal.SIGSTOP)
        time.sleep(_PAUSED_S)
        self.running.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Stop it in order; return the exit code."""
        assert self.running is not None
        code = self.running.stop()
        self.stack.close()
        return code


@dataclass(slots=True, kw_only=True)
class Faults:
    """What is done to a cluster, and how often it was."""

    members: Sequence[Member]
    database: Postgres
    url: str
    random: Random
    down_s: float
    done: Counter[str] = field(default_factory=Counter)

    async def strike(self, seconds: float) -> None:
        """Stop the database after a quarter and a half of the time, kill it after three quarters."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number, strike in enumerate((self._stop, self._stop, self._crash, None)):
            until_s = began_s + seconds * (number + 1) / 4
            while loop.time() < until_s - _PAUSED_S:
                await asyncio.sleep(self.random.uniform(1, 10))
                await asyncio.to_thread(self._at_a_member)
            await asyncio.sleep(max(0.0, until_s - loop.time()))
            if strike:
                await asyncio.to_thread(strike)

    def _at_a_member(self) -> None:
        member = self.random.choice(self.members)
        what = self.random.choices(["kill", "pause", "cut"], weights=[3, 1, 3])[0]
        self.done[f"{what} {member.role if what != 'cut' else 'connections'}"] += 1
        if what == "kill":
            member.kill()
        elif what == "pause":
            member.pause()
        else:
            self.database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'ragtrace' AND random() < 0.5"
            )

    def _stop(self) -> None:
        self.done["database stopped"] += 1
        self.database.stop()
        time.sleep(self.down_s)
        self.database.start()

    def _crash(self) -> None:
        self.done["database killed"] += 1
        self.database.stop(signal.SIGQUIT)
        self.database.start()


def soak_cluster(folder: Path, *, seconds: float, a_second: float, down_s: float, seed: int) -> Iterator[str]:
    """Run it, print what was sent and done, and yield what should not be so; logs stay in the folder."""
    os.environ[KEY] = "not-a-key"
    sink = FlakySink()
    sink.start()
    with running_postgres() as database, moody_judge(seed) as judge:
        direct = database.new_database()
        fates = Fates(store=PostgresServer(direct))
        with running_pgbouncer(direct) as url, _members(folder, url, judge, sink) as members:
            ports = [each.ports for each in members if each.role == "ingest"]
            traffic = Traffic(ports=ports, random=Random(seed), linger_s=_LINGER_S, patience_s=300)
            faults = Faults(
                members=members, database=database, url=direct, random=Random(seed), down_s=down_s
            )
            asyncio.run(_load(traffic, faults, sink, a_second=a_second, seconds=seconds))
            eventually(lambda: not _pending(fates.store), what="the end of all work", deadline_s=600)
            codes = [each.stop() for each in members]
        fates.look()
        ledger = take_stock(fates.store)
    sink.stop()
    told = {"sent": traffic.sent, "done": faults.done, "answers": ledger.by(lambda account: account.state)}
    for name, numbers in told.items():
        print(f"{name}:", ", ".join(f"{what} {number}" for what, number in sorted(numbers.items())))
    print(f"carriers: {len(sink.arrived)}")
    yield from (f"{number} times a collector answered {what}" for what, number in traffic.unexpected.items())
    yield from (f"a collector ended with exit code {code}" for code in codes if code)
    if not ledger.adds_up:
        yield "the ledger does not add up"
    yield from traffic.differs_from(ledger)
    yield from differences(traffic.answers, fates, sink.arrived)


async def _load(
    traffic: Traffic, faults: Faults, sink: FlakySink, *, a_second: float, seconds: float
) -> None:
    async with asyncio.TaskGroup() as tasks:
        beside = tasks.create_task(sink.come_and_go())
        striking = tasks.create_task(faults.strike(seconds))
        await traffic.run(a_second=a_second, seconds=seconds)
        await striking
        beside.cancel()


def _pending(store: PostgresServer) -> int:
    with store.reading() as db:
        (traces,) = db.execute("SELECT count(*) FROM trace WHERE settled_ns IS NULL").fetchone()
        (jobs,) = db.execute("SELECT count(*) FROM job WHERE state <> 'ended'").fetchone()
        (parcels,) = db.execute("SELECT count(*) FROM parcel WHERE rejected_ns IS NULL").fetchone()
    return int(traces + jobs + parcels)


@contextmanager
def _members(folder: Path, url: str, judge: str, sink: FlakySink) -> Iterator[Sequence[Member]]:
    with ExitStack() as stack:
        members = []
        for number, role in enumerate(("ingest", "ingest", "ingest", "evaluate", "evaluate", "evaluate")):
            grpc, http = ports = free_ports(2)
            place = folder / f"{role}-{number}"
            place.mkdir(parents=True)
            config = {
                "receive": {"grpc": f"127.0.0.1:{grpc}", "http": f"127.0.0.1:{http}"},
                "assemble": {"quiet_period": "1s", "deadline": "10s", "linger": f"{_LINGER_S:.0f}s"},
                "judge": {"use": "openai:rule", "base_url": judge, "api_key_env": KEY, "timeout": "1s"},
                "evaluate": {"retry_delays": ["1s", "3s", "10s", "30s", "60s"]},
                "export": [{"endpoint": sink.endpoint}],
                "store": {"url": url, "retention": "2h"},
                "telemetry": {"listen": "127.0.0.1:0"},
                "log_format": "json",
            }
            member = Member(folder=place, config=config, role=role, ports=(ports[0], ports[1]))
            stack.callback(member.stack.close)
            member.start()
            members.append(member)
        yield members


def main() -> int:
    """Run one and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=10.0, help="requests or traces a second")
    parser.add_argument("--down", type=float, default=60.0, help="seconds that the database is stopped for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, seconds = given.keep or Path(temporary), 60 * given.minutes
        faults = [
            *soak_cluster(folder, seconds=seconds, a_second=given.rate, down_s=given.down, seed=given.seed)
        ]
    print("\n".join(faults or ["acknowledged = ended = carried = the ledger, one by one"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
