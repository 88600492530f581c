"""Three collectors with a file each read a topic of a real Kafka; one is killed: all is judged once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = [pytest.mark.slow, pytest.mark.long]

PARTITIONS = 6
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"


@dataclass(slots=True)
class Member:
    """One collector, with a store of its own, that may be killed and started again."""

    folder: Path
    receive: Mapping[str, Any]
    _running: CollectorProcess | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Start it, and return when it listens."""
        self.folder.mkdir(exist_ok=True)
        config = {
            "receive": {"grpc": None, "http": None, **self.receive},
            "assemble": {"quiet_period": "200ms", "deadline": "5s"},
            "judge": {"use": "lexical"},
            "export": [{"endpoint": f"otlp-file:{self.folder / 'out.jsonl'}"}],
            "store": {"path": str(self.folder / "store.db")},
            "telemetry": {"listen": "127.0.0.1:0"},
        }
        self._running = self._stack.enter_context(collector_process(self.folder, config))

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._running is not None
        self._running.kill()
        self._stack.close()

    def stop(self) -> None:
        """Stop it in order."""
        self._stack.close()

    def page(self, path: str) -> Any:
        """Return what one of its pages says."""
        assert self._running is not None
        return httpx.get(f"http://127.0.0.1:{self._running.pages_port}{path}", timeout=PATIENCE_S).json()

    def carriers(self) -> Sequence[str]:
        """Return the trace ids of its carriers."""
        file = self.folder / "out.jsonl"
        *lines, _under_way = file.read_text("utf-8").split("\n") if file.exists() else [""]
        return [span.trace_id for line in lines for span in decode_json(line) if SCORE in span.attributes]


@contextmanager
def running(*members: Member) -> Iterator[None]:
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.stop)
            member.start()
        yield


def judged_of(members: Sequence[Member]) -> Counter[str]:
    """Count the carriers of each trace."""
    return Counter(trace_id for member in members for trace_id in member.carriers())


def await_judged_once(members: Sequence[Member], sent: int) -> None:
    """Wait until each answer has a carrier; none may have two, and the ledgers must say the same."""
    wanted = {trace_id_of(number) for number in range(sent)}
    eventually(lambda: wanted <= judged_of(members).keys(), what=f"{sent} verdicts")
    assert judged_of(members) == dict.fromkeys(wanted, 1)
    ledgers = [member.page("/ledger") for member in members]
    assert sum(ledger["seen"] for ledger in ledgers) == sent
    states = Counter[str]()
    for account in (account for ledger in ledgers for account in ledger["accounts"]):
        states[account["state"]] += account["number"]
    assert +states == {"judged": sent}


def group_of_three(kafka: Kafka, folder: Path, topic: str, options: Mapping[str, str]) -> Sequence[Member]:
    """Return the members; ``NUMBER`` in an option is the member's."""
    kafka.create(topic, partitions=PARTITIONS)
    section = {"brokers": kafka.broker, "topics": topic, "group": topic}
    return [
        Member(folder / f"collector-{number}", {"kafka": {**section, "options": _numbered(options, number)}})
        for number in range(3)
    ]


def _numbered(options: Mapping[str, str], number: int) -> Mapping[str, str]:
    return {key: value.replace("NUMBER", str(number)) for key, value in options.items()}


def write(kafka: Kafka, topic: str, requests: Iterable[Sequence[Span]]) -> None:
    """Write requests of one trace each, keyed by its id; return when the broker has them."""
    producer = Producer({"bootstrap.servers": kafka.broker, "acks": "all"})
    for spans in requests:
        producer.produce(topic, value=encode(spans), key=spans[0].trace_id.encode())
    assert producer.flush(PATIENCE_S) == 0


def await_shares(*members: Member) -> None:
    share = PARTITIONS // len(members)
    eventually(
        lambda: [each.page("/status")["kafka"]["partitions"] for each in members] == [share] * len(members),
        what=f"{share} partitions each",
    )


def test_a_member_of_the_group_that_is_killed_and_comes_back_has_its_answers_judged_once(
    kafka: Kafka, tmp_path: Path
) -> None:
    members = group_of_three(kafka, tmp_path, "several", {"group.instance.id": "several-NUMBER"})
    with running(*members):
        await_shares(*members)
        write(kafka, "several", map(rag_trace, range(60)))
        eventually(members[0].carriers, what="a verdict of the first")
        members[0].kill()
        write(kafka, "several", map(rag_trace, range(60, 120)))
        members[0].start()  # soon enough to get its partitions again
        write(kafka, "several", map(rag_trace, range(120, 150)))
        await_judged_once(members, 150)
        assert all(member.carriers() for member in members)


def test_an_answer_whose_spans_were_split_when_partitions_moved_is_told_by_both(
    kafka: Kafka, tmp_path: Path
) -> None:
    members = group_of_three(kafka, tmp_path, "split", {"session.timeout.ms": "6000"})
    with running(*members):
        await_shares(*members)
        traces = [rag_trace(number) for number in range(12)]
        write(kafka, "split", (others for _, *others in traces))

        def taken() -> set[int]:
            return {
                number for number in range(12) if members[0].page(f"/why/{trace_id_of(number)}").get("trace")
            }

        eventually(taken, what="spans in the first store")
        eventually(lambda: sum(kafka.committed("split", "split").values()) == 12, what="offsets")
        split = taken()
        members[0].kill()
        await_shares(*members[1:])
        write(kafka, "split", ([root] for root, *_ in traces))
        members[0].start()

        def told(number: int) -> set[tuple[str, str]]:
            """Return what the three say of an answer: its states, with their reasons."""
            reports = [member.page(f"/why/{trace_id_of(number)}") for member in members]
            return {(each["state"], each["reason"]) for report in reports for each in report["answers"]}

        both = {("judged", ""), ("ineligible", "no_retrieval")}  # by the generation alone; the root alone
        eventually(lambda: all(told(number) == both for number in split), what="a word on what was split")
        whole = set(range(len(traces))) - split
        eventually(lambda: all(("judged", "") in told(number) for number in whole), what="the others")
        assert not any(("ineligible", "no_retrieval") in told(number) for number in whole)
