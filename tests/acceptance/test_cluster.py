"""Several processes over a store in a real Kafka: from OTLP to the verdict, whatever breaks on the way."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.kafka.groups import GroupAdmin
from ragtrace_collector.store.shard import shard_of
from tests.acceptance.judge_server import JudgeServer, running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.kafka_server import Kafka, running_kafka
from tests.backends.otelcol import OtelCol
from tests.backends.process import eventually, free_ports
from tests.cluster.members import Member, cluster_config, create_topics
from tests.cluster.scene import Broker
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
ANSWERS = 12
PARTITIONS = 4


class Cluster:
    """The processes of one test, over topics of their own."""

    def __init__(self, kafka: Kafka, folder: Path, prefix: str, **sections: Any) -> None:
        self.folder = folder
        self.prefix = prefix
        create_topics(kafka, prefix=prefix, partitions=PARTITIONS)
        self.out = folder / "out.jsonl"
        sections.setdefault("export", [{"endpoint": f"otlp-file:{self.out}"}])
        self.config = cluster_config(kafka.broker, prefix=prefix, **sections)
        self.members: list[Member] = []

    def member(self, name: str, role: str = "all") -> Member:
        """Return a process that is not started yet."""
        member = Member(name=name, role=role, folder=self.folder / name, config=self.config)
        self.members.append(member)
        return member

    def started(self, name: str, role: str = "all") -> Member:
        """Return a process that listens."""
        member = self.member(name, role)
        member.start()
        return member

    def spans(self) -> Sequence[Span]:
        """Return what came to the back end."""
        *lines, _under_way = self.out.read_text("utf-8").split("\n") if self.out.exists() else [""]
        return [span for line in lines for span in decode_json(line)]

    def await_carriers(self, count: int) -> Mapping[str, float]:
        """Return the scores by trace, once so many answers are judged; each has one carrier by id."""
        eventually(lambda: len({span.trace_id for span in self.spans()}) >= count, what=f"{count} carriers")
        ids = {(span.trace_id, span.span_id) for span in self.spans()}
        assert len(ids) == len({trace for trace, _ in ids})
        return {span.trace_id: float(str(span.attributes[SCORE])) for span in self.spans()}


@contextmanager
def cluster_over(kafka: Kafka, folder: Path, prefix: str, **sections: Any) -> Iterator[Cluster]:
    """End the processes with the block."""
    cluster = Cluster(kafka, folder, prefix, **sections)
    try:
        yield cluster
    finally:
        for member in cluster.members:
            member.go_on()
            member.stop()


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeServer]:
    """A judge whose calls are counted and may be held back."""
    monkeypatch.setenv("JUDGE_KEY", "test")
    with running_judge(REPLIES) as server:
        yield server


def by(judge: JudgeServer) -> dict[str, Any]:
    return {"use": "openai:rule", "base_url": judge.base_url, "api_key_env": "JUDGE_KEY"}


def send(member: Member, *numbers: int, answer: str = ANSWER) -> None:
    """Send traces, each until it is acknowledged."""
    for number in numbers:
        body = encode(rag_trace(number, answer=answer))
        eventually(lambda body=body: member.send(body), what=f"trace {number} to be acknowledged")


def owned(member: Member) -> int:
    """Return how many shards a process has."""
    partitions: int = member.page("/status")["kafka"]["partitions"]
    return partitions


def await_owned(*members: Member) -> None:
    """Wait until the processes have all shards, and each has some."""

    def is_so() -> bool:
        numbers = [owned(member) for member in members]
        return sum(numbers) == PARTITIONS and min(numbers) > 0

    eventually(is_so, what="all shards to be given out")


def seen(*members: Member) -> int:
    """Return how many answers the ledgers of processes have."""
    return sum(member.page("/ledger")["seen"] for member in members)


def test_one_process_over_kafka_judges_as_over_a_file(kafka: Kafka, tmp_path: Path) -> None:
    with cluster_over(kafka, tmp_path, "one") as cluster:
        member = cluster.started("all")
        await_owned(member)
        for number in range(ANSWERS):
            days = 14 if number % 3 else 90
            send(member, number, answer=f"Refunds take {days} days.")
        scores = cluster.await_carriers(ANSWERS)
        assert scores == {trace_id_of(number): float(number % 3 > 0) for number in range(ANSWERS)}
        eventually(lambda: member.page("/ledger")["open_traces"] == 0, what="all traces read")
        assert member.page("/readyz") == {"ready": True, "judging": True, "reasons": [], "notes": []}
        status = member.page("/status")
        assert status["ledger"] == {"seen": ANSWERS, "pending": 0, "ended": ANSWERS, "superseded": 0}
        assert status["since_start"]["spans_to_topic"] == status["since_start"]["spans_kept"] == 3 * ANSWERS
        assert status["index"]["rows"] == ANSWERS
        why = member.page(f"/why/{trace_id_of(1)}")
        assert [answer["state"] for answer in why["answers"]] == ["judged"]


def test_one_process_takes_spans_and_two_judge_them_each_once(
    kafka: Kafka, tmp_path: Path, judge: JudgeServer
) -> None:
    with cluster_over(kafka, tmp_path, "roles", judge=by(judge)) as cluster:
        taking = cluster.started("taking", "ingest")
        judging = [cluster.started(f"judging-{number}", "evaluate") for number in range(2)]
        await_owned(*judging)
        send(taking, *range(ANSWERS))
        assert cluster.await_carriers(ANSWERS) == {trace_id_of(number): 0.5 for number in range(ANSWERS)}
        assert judge.calls == 2 * ANSWERS
        eventually(lambda: seen(*judging) == ANSWERS, what="all answers in the ledgers")
        assert min(seen(member) for member in judging) > 0
        assert judging[0].running is not None
        assert judging[0].running.http_port is None
        assert taking.page("/status")["since_start"]["spans_to_topic"] == 3 * ANSWERS


def test_what_an_opentelemetry_collector_writes_is_judged_in_the_shard_of_its_trace(
    kafka: Kafka, otelcol: OtelCol, tmp_path: Path
) -> None:
    with cluster_over(kafka, tmp_path, "written") as cluster:
        port, metrics = free_ports(2)
        config = tmp_path / "otelcol.yaml"
        config.write_text(
            f"""
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters:
  kafka:
    brokers: [{kafka.broker}]
    partition_traces_by_id: true
    traces: {{topic: written.spans, encoding: otlp_proto}}
service:
  telemetry:
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {metrics}}}}}}}}}]}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [kafka]}}}}
"""
        )
        with otelcol.run(config, env={}, listens_on=[port]):
            httpx.post(
                f"http://127.0.0.1:{port}/v1/traces",
                content=encode([span for number in range(ANSWERS) for span in rag_trace(number)]),
                headers={"content-type": "application/x-protobuf"},
                timeout=PATIENCE_S,
            ).raise_for_status()
            messages = kafka.read("written.spans", ANSWERS)
        assert {str(m.key(), "ascii"): m.partition() for m in messages} == {
            trace_id_of(number): shard_of(trace_id_of(number), PARTITIONS) for number in range(ANSWERS)
        }
        cluster.started("judging", "evaluate")
        assert set(cluster.await_carriers(ANSWERS).values()) == {1.0}


def test_what_was_being_judged_when_a_process_was_killed_another_judges_once(
    kafka: Kafka, tmp_path: Path, judge: JudgeServer
) -> None:
    with cluster_over(kafka, tmp_path, "killed", judge=by(judge)) as cluster:
        taking = cluster.started("taking", "ingest")
        first, second = (cluster.started(f"judging-{number}", "evaluate") for number in range(2))
        await_owned(first, second)
        judge.hold_from(ANSWERS)
        send(taking, *range(ANSWERS))
        judge.wait_for_calls(ANSWERS)
        first.kill()
        judge.release()
        cluster.await_carriers(ANSWERS)
        eventually(lambda: owned(second) == PARTITIONS, what="the other to have all shards")
        eventually(lambda: seen(second) == ANSWERS, what="all answers in its ledger")


def test_a_lost_disk_loses_nothing_and_nothing_is_judged_again(
    kafka: Kafka, tmp_path: Path, judge: JudgeServer
) -> None:
    with cluster_over(kafka, tmp_path, "disk", judge=by(judge)) as cluster:
        member = cluster.started("all")
        await_owned(member)
        send(member, *range(ANSWERS))
        cluster.await_carriers(ANSWERS)
        eventually(lambda: member.page("/status")["ledger"]["ended"] == ANSWERS, what="all to be counted")
        member.kill()
        shutil.rmtree(member.folder / "shards")
        member.start()
        eventually(lambda: seen(member) == ANSWERS, what="the ledger to be read again")
        send(member, *range(ANSWERS))  # a sender that repeats itself
        send(member, ANSWERS)
        cluster.await_carriers(ANSWERS + 1)
        eventually(lambda: member.page("/ledger")["open_traces"] == 0, what="all traces read")
        assert judge.calls == 2 * (ANSWERS + 1)


def test_a_process_that_was_paused_beyond_its_session_writes_nothing_more(
    kafka: Kafka, tmp_path: Path, judge: JudgeServer
) -> None:
    with cluster_over(kafka, tmp_path, "paused", judge=by(judge)) as cluster:
        taking = cluster.started("taking", "ingest")
        first, second = (cluster.started(f"judging-{number}", "evaluate") for number in range(2))
        await_owned(first, second)
        judge.hold_from(1)
        send(taking, *range(ANSWERS))
        judge.wait_for_calls(ANSWERS)
        first.pause()
        eventually(lambda: owned(second) == PARTITIONS, what="the other to have all shards")
        judge.release()
        cluster.await_carriers(ANSWERS)
        first.go_on()
        eventually(lambda: owned(first) > 0, what="the first to be a member again")
        send(taking, *range(ANSWERS, 2 * ANSWERS))
        cluster.await_carriers(2 * ANSWERS)
        eventually(lambda: seen(first, second) == 2 * ANSWERS, what="each answer in one ledger")


def test_what_was_lost_opens_again_after_the_broker_was_started_again(
    kafka_jars: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kafka"
    folder.mkdir()
    broker = Broker(kafka_jars, folder)
    try:
        with cluster_over(broker.start(), tmp_path, "again") as cluster:
            taking, first = cluster.started("taking", "ingest"), cluster.started("first", "evaluate")
            await_owned(first)
            broker.stop()
            broker.start()
            send(taking, 0)
            cluster.await_carriers(1)
            first.pause()
            second = cluster.started("second", "evaluate")
            eventually(lambda: owned(second) == PARTITIONS, what="the second to have all shards")
            send(taking, *range(1, ANSWERS))
            cluster.await_carriers(ANSWERS)
            first.go_on()
            await_owned(first, second)
            send(taking, *range(ANSWERS, 3 * ANSWERS))
            cluster.await_carriers(3 * ANSWERS)
            eventually(lambda: seen(first, second) == 3 * ANSWERS, what="each answer in one ledger")
    finally:
        broker.stop()


def test_a_budget_holds_for_all_processes_together(kafka: Kafka, tmp_path: Path, judge: JudgeServer) -> None:
    most = 9
    sections = {"judge": by(judge), "budget": {"live": {"day": {"calls": most}}}}
    with cluster_over(kafka, tmp_path, "budget", **sections) as cluster:
        members = [cluster.started(f"all-{number}") for number in range(2)]
        await_owned(*members)
        send(members[0], *range(ANSWERS))
        eventually(lambda: judge.calls >= most - 1, what="the budget to be spent")

        def is_full() -> bool:
            budgets = [member.page("/status")["budget"] for member in members]
            return all(each["spent"] >= most - 1 for budget in budgets for each in budget)

        eventually(is_full, what="both to know of it")
        members[1].kill()
        members[1].start()
        await_owned(*members)
        send(members[1], *range(ANSWERS, 2 * ANSWERS))
        eventually(lambda: seen(*members) == 2 * ANSWERS, what="all answers to be seen")
        assert judge.calls <= most


def test_tenants_are_those_of_the_tokens_that_other_processes_saw(kafka: Kafka, tmp_path: Path) -> None:
    tokens = [
        {"name": name, "sha256": sha256(f"token-of-{name}".encode()).hexdigest(), "tenant": name}
        for name in ("red", "blue")
    ]
    reader = {"name": "reader", "sha256": sha256(b"reads").hexdigest(), "may": ["read"]}
    receive = {"grpc": None, "http": "127.0.0.1:0", "tokens": [*tokens, reader]}
    with cluster_over(kafka, tmp_path, "tenants", receive=receive) as cluster:
        taking, judging = cluster.started("taking", "ingest"), cluster.started("judging", "evaluate")
        assert taking.running is not None
        assert judging.running is not None
        for name in ("red", "blue"):
            httpx.post(
                f"http://127.0.0.1:{taking.running.http_port}/v1/traces",
                content=encode(rag_trace(0)),
                headers={
                    "content-type": "application/x-protobuf",
                    "authorization": f"Bearer token-of-{name}",
                },
                timeout=PATIENCE_S,
            ).raise_for_status()
        url, allowed = (
            f"http://127.0.0.1:{judging.running.pages_port}/ledger",
            {"authorization": "Bearer reads"},
        )

        def judged() -> list[str]:
            accounts = httpx.get(url, headers=allowed, timeout=PATIENCE_S).json()["accounts"]
            return sorted(each["tenant"] for each in accounts if each["state"] == "judged" and each["number"])

        eventually(lambda: judged() == ["blue", "red"], what="an answer of each tenant")


def test_the_limits_of_a_token_hold_for_all_processes_together(kafka: Kafka, tmp_path: Path) -> None:
    most = 30
    token = {"name": "red", "sha256": sha256(b"red").hexdigest(), "limits": {"requests": most}}
    receive = {"grpc": None, "http": "127.0.0.1:0", "tokens": [token]}
    with cluster_over(kafka, tmp_path, "allowance", receive=receive) as cluster:
        members = [cluster.started(f"taking-{number}", "ingest") for number in range(3)]
        await_shares(*members, processes=3)
        began_s = time.monotonic()
        taken = [taken_until_refused(member, token="red") for member in members]
        minutes = (time.monotonic() - began_s) / 60
        assert min(taken) >= most / 3
        assert sum(taken) <= most * (1 + minutes) + 3
        members[0].kill()
        members[1].stop()
        await_shares(members[2], processes=1)


def await_shares(*members: Member, processes: int) -> None:
    """Wait until each of these processes divides the limits of tokens by this number."""

    def parts(member: Member) -> list[str]:
        assert member.running is not None
        return re.findall(r"share the limits of tokens: (\d+)", member.running.log.read_text("utf-8"))

    eventually(
        lambda: all(parts(member)[-1:] == [str(processes)] for member in members), what="a count of processes"
    )


def taken_until_refused(member: Member, *, token: str) -> int:
    """Return how many requests a process takes, one after the other, until the allowance is used up."""
    assert member.running is not None
    url = f"http://127.0.0.1:{member.running.http_port}/v1/traces"
    headers = {"content-type": "application/x-protobuf", "authorization": f"Bearer {token}"}
    for taken in itertools.count():
        answer = httpx.post(url, content=encode(rag_trace(0)), headers=headers, timeout=PATIENCE_S)
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            return taken
        answer.raise_for_status()
    raise AssertionError


def test_spans_are_forwarded_also_those_that_sampling_leaves_out(kafka: Kafka, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    sections = {
        "export": [{"endpoint": f"otlp-file:{out}", "forward": True}],
        "sample": {"ratio": 0.0},
    }
    with cluster_over(kafka, tmp_path, "forward", **sections) as cluster:
        member = cluster.started("all")
        send(member, *range(ANSWERS))
        eventually(lambda: len(cluster.spans()) == 3 * ANSWERS, what="all spans")


def test_a_member_waits_for_brokers_and_topics_and_says_so(kafka_jars: Path, tmp_path: Path) -> None:
    folder, ports = tmp_path / "kafka", free_ports(4)
    folder.mkdir()
    config = cluster_config(
        f"127.0.0.1:{ports[0]}", prefix="late", export=[{"endpoint": f"otlp-file:{tmp_path / 'out.jsonl'}"}]
    )
    member = Member(name="all", role="all", folder=tmp_path / "all", config=config)
    try:
        member.start()

        def reasons() -> str:
            return " ".join(member.page("/readyz")["reasons"])

        eventually(lambda: "the brokers do not answer" in reasons(), what="the reason")
        assert not member.send(encode(rag_trace(0)))
        with running_kafka(folder=folder, jars=kafka_jars, ports=ports) as kafka:
            eventually(lambda: "there is no topic" in reasons(), what="the topics to be missed")
            create_topics(kafka, prefix="late", partitions=PARTITIONS)
            eventually(lambda: member.send(encode(rag_trace(0))), what="spans to be taken")
            eventually(lambda: seen(member) == 1, what="the answer")
            member.stop()
    finally:
        member.stop()


def test_topics_that_do_not_fit_together_are_refused_at_the_start(kafka: Kafka, tmp_path: Path) -> None:
    create_topics(kafka, prefix="odd", partitions=3)
    kafka.create("odd-state", partitions=2)
    config = cluster_config(
        kafka.broker, prefix="odd", export=[{"endpoint": f"otlp-file:{tmp_path / 'out.jsonl'}"}]
    )
    done = refused(tmp_path, config, spans_topic="odd-state")
    assert "odd.state: it has 3 partitions and odd-state has 2" in done.stderr
    assert "odd-state: `max.message.bytes` is 1048588: less than" in done.stderr
    assert "Traceback" not in done.stderr


def refused(folder: Path, config: Mapping[str, Any], **kafka: str) -> subprocess.CompletedProcess[str]:
    """Start a process that ends with an error, as it is configured."""
    file = folder / "refused.yaml"
    store = {
        **config["store"],
        "path": str(folder / "refused"),
        "kafka": {**config["store"]["kafka"], **kafka},
    }
    file.write_text(json.dumps({**config, "store": store}))
    done = subprocess.run(
        [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    return done


def test_two_clusters_with_one_prefix_are_told_and_take_nothing_from_each_other(
    kafka: Kafka, tmp_path: Path
) -> None:
    with cluster_over(kafka, tmp_path, "twice") as cluster:
        kafka.create("other-spans", partitions=PARTITIONS, **{"max.message.bytes": str(64 << 20)})
        first, second = cluster.member("first"), cluster.member("second")
        second.config = {
            **cluster.config,
            "store": {"kafka": {**cluster.config["store"]["kafka"], "spans_topic": "other-spans"}},
        }
        first.start()
        await_owned(first)
        told = "members of group 'twice' read twice.spans and not other-spans"
        assert told in refused(tmp_path, cluster.config, spans_topic="other-spans").stderr
        send(first, 0)
        cluster.await_carriers(1)
        first.pause()
        group = GroupAdmin({"bootstrap.servers": kafka.broker}, "twice")
        eventually(lambda: not group.members(), what="its session to end")
        second.start()
        await_owned(second)
        first.go_on()
        eventually(
            lambda: "read other-spans and not twice.spans" in " ".join(first.page("/readyz")["reasons"]),
            what="the first to say why it does nothing",
        )
        send(second, 1)
        cluster.await_carriers(2)
        second.stop()
        send(first, 2)
        cluster.await_carriers(3)


def test_workers_share_the_shards_are_started_again_and_end_with_the_first(
    kafka: Kafka, tmp_path: Path
) -> None:
    create_topics(kafka, prefix="workers", partitions=PARTITIONS)
    ports = range(free_ports(1)[0], 32_000)[:3]
    config = cluster_config(
        kafka.broker,
        prefix="workers",
        export=[{"endpoint": f"otlp-file:{tmp_path / 'out.jsonl'}"}],
        telemetry={"listen": f"127.0.0.1:{ports[0]}"},
    )
    member = Member(
        name="workers", role="all", folder=tmp_path / "all", config=config, options=("--workers", "3")
    )

    def pages(path: str) -> list[Any]:
        try:
            return [httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5).json() for port in ports]
        except (httpx.TransportError, json.JSONDecodeError):
            return []

    def are_all_judging() -> bool:
        owned = [page["kafka"]["partitions"] for page in pages("/status")]
        return sum(owned) == PARTITIONS and min(owned) > 0

    try:
        running = member.start()
        eventually(are_all_judging, what="all three to have shards")
        tasks = Path(f"/proc/{running.process.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        assert len(children) == 2
        os.kill(int(children[0]), signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{children[0]}").exists(), what="it to be gone")
        eventually(are_all_judging, what="another one to judge")
        send(member, *range(ANSWERS))
        eventually(lambda: sum(page["seen"] for page in pages("/ledger")) == ANSWERS, what="all answers")
        running.kill()
        eventually(lambda: not Path(f"/proc/{children[1]}").exists(), what="the other to end with the first")
    finally:
        member.stop()


@pytest.mark.slow
def test_workers_and_roles_need_a_store_that_is_shared(tmp_path: Path) -> None:
    for options in (("--workers", "2"), ("--role", "ingest")):
        done = subprocess.run(
            [sys.executable, "-m", "ragtrace.cli", "collector", *options],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode != 0
        assert f"`{options[0]} {options[1]}` needs a store that several processes share" in done.stderr
