"""A cluster under load: a broker, processes that take spans, processes that judge, a judge, a back end."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from ragtrace.traces.otlp import encode
from tests.acceptance.judge_server import JudgeServer
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.kafka_server import Kafka, running_kafka
from tests.backends.process import free_ports
from tests.cluster.members import Member, cluster_config, create_topics
from tests.faults.servers import BackEnd, MoodyJudge
from tests.rag_spans import rag_trace, trace_id_of

__all__ = ["Broker", "ClusterScene", "Verdict", "cluster_scene"]

_PAUSE_S: Final = 0.2
_KEY: Final = "CLUSTER_JUDGE_KEY"


@dataclass(slots=True)
class Broker:
    """A broker that may be stopped and started again with what it has."""

    jars: Path
    folder: Path
    ports: Sequence[int] = field(default_factory=lambda: free_ports(4))
    _kafka: Kafka | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def kafka(self) -> Kafka:
        """What writes and reads there."""
        assert self._kafka is not None, "it was not started"
        return self._kafka

    def start(self) -> Kafka:
        """Start it, and return when it answers."""
        self._stack = ExitStack()
        self._kafka = self._stack.enter_context(running_kafka(self.jars, self.folder, ports=self.ports))
        return self._kafka

    def stop(self) -> None:
        """Stop it."""
        self._stack.close()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.kafka.process.kill()
        self.kafka.process.wait()
        self._stack.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a run."""

    acknowledged: int
    judged: int
    """Answers with a carrier."""
    carriers: int
    """Carriers by id."""
    lost: tuple[str, ...]
    """Acknowledged answers without a carrier."""
    doubled: tuple[str, ...]
    """Answers with several carriers."""
    judge_calls: int
    seen: int
    """Answers in the ledgers of all shards."""
    ended: int

    @property
    def faults(self) -> Sequence[str]:
        """What must not be, a sentence each."""
        found = []
        if self.lost:
            found.append(f"{len(self.lost)} acknowledged answers have no verdict: {self.lost[:3]}")
        if self.doubled:
            found.append(f"{len(self.doubled)} answers have several carriers: {self.doubled[:3]}")
        if self.seen != self.judged or self.ended != self.seen:
            found.append(f"the ledger has {self.seen} answers, {self.ended} ended; {self.judged} are judged")
        return found


class ClusterScene:
    """The processes, and what was sent and came back."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        *,
        ingest: int,
        evaluate: int,
        delay_s: float = 0.0,
        at_once: int = 16,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        os.environ[_KEY] = "test"
        self.broker = broker
        self.back_end = BackEnd()
        self.model = JudgeServer(REPLIES)
        self.judge = MoodyJudge(self.model, delay_s=delay_s)
        config = cluster_config(
            f"127.0.0.1:{broker.ports[0]}",
            judge={
                "use": "openai:rule",
                "base_url": f"http://127.0.0.1:{self.judge.port}/v1",
                "api_key_env": _KEY,
                "max_concurrency": at_once,
            },
            export=[{"endpoint": f"http://127.0.0.1:{self.back_end.port}"}],
            evaluate={"retry_delays": ["1s", "1s", "5s", "30s"], "concurrency": at_once},
            **(settings or {}),
        )
        self.ingest = [self._member(folder, f"ingest-{n}", "ingest", config) for n in range(ingest)]
        self.evaluate = [self._member(folder, f"evaluate-{n}", "evaluate", config) for n in range(evaluate)]
        self.acknowledged: set[str] = set()
        self._sent = 0
        self._stop = threading.Event()
        self._senders: list[threading.Thread] = []

    @property
    def members(self) -> Sequence[Member]:
        """All processes."""
        return [*self.ingest, *self.evaluate]

    def start(self, *, senders: int, rate: float, seed: int = 1) -> None:
        """Start all processes, and then the load: so many requests a second, of one trace each."""
        for member in self.members:
            member.start()
        pause_s = senders / rate
        self._senders = [
            threading.Thread(target=self._send, args=(number, senders, pause_s, seed), daemon=True)
            for number in range(senders)
        ]
        for sender in self._senders:
            sender.start()

    def end_load(self) -> None:
        """Send no more; what is not acknowledged yet is sent until it is."""
        self._stop.set()
        for sender in self._senders:
            sender.join()

    def carriers(self) -> Mapping[str, set[str]]:
        """Return the ids of the carriers that came, by trace."""
        found: dict[str, set[str]] = defaultdict(set)
        for trace_id, span_id in list(self.back_end.spans):
            found[trace_id].add(span_id)
        return found

    def await_verdict(self, *, at_most_s: float) -> Verdict:
        """Wait until every acknowledged answer is judged and counted, and return what came of all."""
        deadline = time.monotonic() + at_most_s
        while (verdict := self.verdict()).faults and time.monotonic() < deadline:
            time.sleep(1)
        return verdict

    def verdict(self) -> Verdict:
        """Return what came of all until now."""
        carriers = self.carriers()
        ledgers = [self._ledger(member) for member in self.evaluate if member.running]
        return Verdict(
            acknowledged=len(self.acknowledged),
            judged=len(carriers),
            carriers=sum(map(len, carriers.values())),
            lost=tuple(sorted(self.acknowledged - carriers.keys())),
            doubled=tuple(sorted(trace for trace, ids in carriers.items() if len(ids) > 1)),
            judge_calls=self.model.calls,
            seen=sum(ledger["seen"] for ledger in ledgers),
            ended=sum(each["number"] for ledger in ledgers for each in ledger["accounts"] if _is_over(each)),
        )

    def told(self) -> str:
        """Return what each process logged last: why a run went as it went."""
        return "\n".join(f"{member.name}:\n{member.last_lines()}" for member in self.members)

    def close(self) -> None:
        """End everything."""
        self._stop.set()
        for member in self.members:
            member.go_on()
            member.stop()
        self.back_end.close()
        self.judge.close()

    def _member(self, folder: Path, name: str, role: str, config: Mapping[str, Any]) -> Member:
        return Member(name=name, role=role, folder=folder / name, config=config)

    def _ledger(self, member: Member) -> Mapping[str, Any]:
        ledger: Mapping[str, Any] = member.page("/ledger")
        return ledger

    def _send(self, first: int, step: int, pause_s: float, seed: int) -> None:
        random, number = Random(f"{seed}-{first}"), first
        while not self._stop.is_set():
            body = encode(rag_trace(number, answer=ANSWER))
            while not random.choice(self.ingest).send(body):
                time.sleep(_PAUSE_S)
            self.acknowledged.add(trace_id_of(number))
            number += step
            self._stop.wait(pause_s * 2 * random.random())


def _is_over(account: Mapping[str, Any]) -> bool:
    return account["state"] in {"judged", "ineligible", "failed", "expired", "over_budget"}


@contextmanager
def cluster_scene(
    jars: Path, folder: Path, *, ingest: int, evaluate: int, partitions: int = 6, **options: Any
) -> Iterator[ClusterScene]:
    """Run a broker with the topics of a cluster; the processes start with ``start``."""
    kafka_folder = folder / "kafka"
    kafka_folder.mkdir(parents=True)
    broker = Broker(jars, kafka_folder)
    create_topics(broker.start(), partitions=partitions)
    scene = ClusterScene(folder, broker, ingest=ingest, evaluate=evaluate, **options)
    try:
        yield scene
    finally:
        scene.close()
        broker.stop()
