"""From a topic of a real Kafka to the verdict on the carrier, whatever breaks on the way."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from ragtrace import semconv
from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.acceptance.judge_server import running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.kafka_server import PASSWORD, USERNAME, Kafka
from tests.backends.otelcol import OtelCol
from tests.backends.process import eventually, free_ports
from tests.integration.collector.running import carriers_in
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
ANSWERS = 12
SECRET = b"what nobody may read in a log"


SASL = {"sasl.mechanism": "PLAIN", "sasl.username": USERNAME, "sasl.password": "${env:KAFKA_PASSWORD}"}


def config_of(
    folder: Path, broker: str, topic: str | list[str], options: Mapping[str, str] | None = None, **kafka: Any
) -> dict[str, Any]:
    """Return the configuration of a collector that has no other receiver."""
    read = {
        "brokers": broker,
        "topics": topic,
        "group": f"group-of-{topic}",
        "options": {"session.timeout.ms": "6000", **(options or {})},
        **kafka,
    }
    receive = {"grpc": None, "http": None, "kafka": read}
    return settings_of(folder, receive=receive, judge={"use": "lexical"})


def carriers(folder: Path) -> Sequence[Span]:
    return carriers_in(folder / "out.jsonl")


def await_carriers(folder: Path, count: int) -> Sequence[Span]:
    eventually(lambda: len(carriers(folder)) >= count, what=f"{count} carriers")
    return carriers(folder)


def page(collector: CollectorProcess, path: str) -> Any:
    return collector.page(path).json()


def metric(collector: CollectorProcess, name: str) -> float:
    """Return the sum of a metric's series."""
    lines = collector.page("/metrics").text.splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    assert found, name
    return sum(float(value) for _, _, value in found)


def await_trouble(collector: CollectorProcess, said: str) -> Mapping[str, Any]:
    """Return what ``/readyz`` says once it says this."""

    def telling() -> Mapping[str, Any] | None:
        told: Mapping[str, Any] = page(collector, "/readyz")
        return told if said in " ".join([*told["reasons"], *told["notes"]]) else None

    return eventually(telling, what=said)


def await_committed(kafka: Kafka, topic: str, offsets: Mapping[int, int]) -> None:
    eventually(lambda: kafka.committed(f"group-of-{topic}", topic) == offsets, what=f"offsets {offsets}")


def test_a_trace_in_a_topic_gets_its_verdict(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create(f"verdict-{tmp_path.name[-12:]}")
    kafka.write(topic, encode(rag_trace(0)), key=trace_id_of(0).encode())
    kafka.write(topic, encode(rag_trace(1, answer="Refunds take 90 days.")), key=trace_id_of(1).encode())
    with collector_process(tmp_path, config_of(tmp_path, kafka.broker, topic)) as collector:
        found = await_carriers(tmp_path, 2)
        await_committed(kafka, topic, {0: 2})
        assert {span.trace_id: span.attributes[SCORE] for span in found} == {
            trace_id_of(0): 1.0,
            trace_id_of(1): 0.0,
        }
        eventually(lambda: metric(collector, "ragtrace_kafka_lag") == 0, what="no lag")
        assert metric(collector, "ragtrace_collector_kafka_messages_total") == 2
        assert metric(collector, "ragtrace_kafka_connected") == 1
        assert page(collector, "/readyz") == {"ready": True, "judging": True, "reasons": [], "notes": []}
        assert page(collector, "/status")["kafka"]["partitions"] == 1
    with collector_process(tmp_path, config_of(tmp_path, kafka.broker, topic)) as collector:
        eventually(lambda: page(collector, "/status")["kafka"]["partitions"] == 1, what="its partition")
        kafka.write(topic, encode(rag_trace(2)), key=trace_id_of(2).encode())
        await_carriers(tmp_path, 3)
        assert metric(collector, "ragtrace_collector_kafka_messages_total") == 1


def exporter_in_the_docs() -> str:
    """Return the configuration of the kafka exporter that docs/kafka.md gives."""
    text = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text("utf-8")
    (block,) = (each for each in text.split("```yaml\n")[1:] if each.startswith("exporters:"))
    return block.partition("```")[0]


def fnv1a_partitions(kafka: Kafka, keys: Sequence[bytes], *, partitions: int) -> Mapping[bytes, int]:
    """Return where librdkafka puts keys by FNV-1a."""
    topic = kafka.create("fnv1a", partitions=partitions)
    producer = Producer({"bootstrap.servers": kafka.broker, "partitioner": "fnv1a_random"})
    for key in keys:
        producer.produce(topic, value=b"", key=key)
    assert producer.flush(PATIENCE_S) == 0
    return {message.key(): message.partition() for message in kafka.read(topic, len(keys))}


def test_what_a_real_opentelemetry_collector_writes_gets_its_verdict(
    kafka: Kafka, otelcol: OtelCol, tmp_path: Path
) -> None:
    topic = kafka.create("of-otelcol", partitions=4)
    exporter = exporter_in_the_docs().replace("kafka:9092", kafka.broker).replace("otlp_spans", topic)
    port, metrics = free_ports(2)
    config = tmp_path / "otelcol.yaml"
    config.write_text(
        f"""
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
{exporter}
service:
  telemetry:
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {metrics}}}}}}}}}]}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [kafka]}}}}
"""
    )
    spans = [span for number in range(ANSWERS) for span in rag_trace(number)]
    with otelcol.run(config, env={}, listens_on=[port]):
        httpx.post(
            f"http://127.0.0.1:{port}/v1/traces",
            content=encode(spans),
            headers={"content-type": "application/x-protobuf"},
            timeout=PATIENCE_S,
        ).raise_for_status()
        messages = kafka.read(topic, ANSWERS)
    found = {message.key(): message.partition() for message in messages}
    keys = [trace_id_of(number).encode() for number in range(ANSWERS)]
    assert found == fnv1a_partitions(kafka, keys, partitions=4)
    assert set(found.values()) > {0}
    with collector_process(tmp_path, config_of(tmp_path, kafka.broker, topic)):
        judged = await_carriers(tmp_path, ANSWERS)
    assert {span.trace_id: span.attributes[SCORE] for span in judged} == {
        trace_id_of(number): 1.0 for number in range(ANSWERS)
    }


@pytest.mark.parametrize(
    ("mode", "committed", "again"),
    [
        pytest.param("dies", {}, ANSWERS, id="before"),
        pytest.param("dies-behind", {0: ANSWERS}, 0, id="behind", marks=pytest.mark.night),
    ],
)
def test_a_collector_that_dies_around_a_commit_judges_all_once(
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    committed: Mapping[int, int],
    again: int,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")
    topic = kafka.create(f"again-{mode}")
    kafka.write_traces(topic, *(rag_trace(number, answer=ANSWER) for number in range(ANSWERS)))
    with running_judge(REPLIES) as judge:
        config = {
            **config_of(tmp_path, kafka.broker, topic),
            "judge": {"use": "openai:rule", "base_url": judge.base_url, "api_key_env": "JUDGE_KEY"},
        }
        uncommitted = (sys.executable, Path(__file__).with_name("uncommitted.py"), mode)
        with collector_process(tmp_path, config, program=uncommitted) as collector:
            collector.process.wait(PATIENCE_S)
        assert kafka.committed(f"group-of-{topic}", topic) == committed
        with collector_process(tmp_path, config) as collector:
            await_committed(kafka, topic, {0: ANSWERS})
            found = await_carriers(tmp_path, ANSWERS)
            eventually(lambda: page(collector, "/ledger")["open_traces"] == 0, what="all traces read")
            assert metric(collector, "ragtrace_collector_kafka_messages_total") == again
            assert page(collector, "/ledger")["seen"] == ANSWERS
        assert judge.calls == 2 * ANSWERS
    assert len(carriers(tmp_path)) == len({span.span_id for span in found}) == ANSWERS


def logs_request() -> bytes:
    """Return log records of the protocol, which a wrong exporter may write into a topic of traces."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1)
    record.body.string_value = SECRET.decode()
    return request.SerializeToString()


POISON: Mapping[str, Sequence[bytes | None]] = {
    "empty": [None, b""],
    "not_otlp": [SECRET, encode(rag_trace(7))[:-20], encode_json(rag_trace(8)).encode()[:-20]],
    "no_spans": [logs_request()],
    "too_large": [SECRET * 40_000],
}


def test_what_cannot_be_read_goes_to_the_dead_letters_and_reading_goes_on(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.create("poison", **{"max.message.bytes": "4000000"})
    dead = kafka.create("poison.dead-letter", **{"max.message.bytes": "4000000"})
    written = [value for values in POISON.values() for value in values]
    kafka.write(topic, *written, key=b"k")
    kafka.write_traces(topic, rag_trace(0))
    config = config_of(tmp_path, kafka.broker, topic)
    config["receive"]["max_message_bytes"] = "1MB"
    with collector_process(tmp_path, config) as collector:
        await_carriers(tmp_path, 1)
        await_committed(kafka, topic, {0: len(written) + 1})
        counted = {reason: len(values) for reason, values in POISON.items()}
        assert page(collector, "/ledger")["dead_letters"] == counted
        assert metric(collector, "ragtrace_collector_kafka_dead_letters_total") == len(written)
    copies = kafka.read(dead, len(written))
    assert [copy.value() for copy in copies] == written
    reasons = [dict(copy.headers() or [])["ragtrace.reason"].decode() for copy in copies]
    assert reasons == [reason for reason, values in POISON.items() for _ in values]
    assert dict(copies[-1].headers() or [])["ragtrace.offset"] == str(len(written) - 1).encode()
    log = collector.log.read_text()
    assert "poison, partition 0, offset 0" in log
    assert SECRET.decode() not in log
    assert SECRET not in (tmp_path / "store.db").read_bytes()


def test_without_a_dead_letter_topic_the_ledger_knows(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("ledger-only")
    kafka.write(topic, SECRET, key=b"k")
    kafka.write_traces(topic, rag_trace(0))
    config = config_of(tmp_path, kafka.broker, topic, dead_letter="no-such-topic")
    with collector_process(tmp_path, config) as collector:
        await_carriers(tmp_path, 1)
        await_committed(kafka, topic, {0: 2})
        assert page(collector, "/ledger")["dead_letters"] == {"not_otlp": 1}
    assert "could not be copied to topic no-such-topic" in collector.log.read_text()


def test_a_full_store_pauses_reading_and_nothing_is_lost_even_if_it_dies(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")
    topic = kafka.create("full", partitions=2)
    filler = "Refunds are paid by card. " * 2_000
    traces = [
        rag_trace(number, answer=ANSWER, chunks=("Refunds take 14 days.", filler))
        for number in range(3 * ANSWERS)
    ]
    kafka.write_traces(topic, *traces)
    with running_judge(REPLIES) as judge:
        judge.hold_from(1)
        config = {
            **config_of(tmp_path, kafka.broker, topic),
            "judge": {"use": "openai:rule", "base_url": judge.base_url, "api_key_env": "JUDGE_KEY"},
        }
        config["store"]["max_bytes"] = "1MB"
        config["assemble"]["linger"] = "0s"
        with collector_process(tmp_path, config) as collector:
            eventually(lambda: page(collector, "/status")["kafka"]["paused"], what="a pause")
            assert "the store holds more than" in " ".join(page(collector, "/readyz")["reasons"])
            collector.kill()
        with collector_process(tmp_path, config) as collector:
            eventually(lambda: page(collector, "/status")["kafka"]["paused"], what="a pause")
            judge.release()
            found = await_carriers(tmp_path, len(traces))
            eventually(lambda: not page(collector, "/status")["kafka"]["paused"], what="the end of the pause")
            eventually(
                lambda: sum(kafka.committed(f"group-of-{topic}", topic).values()) == len(traces),
                what="offsets",
            )
            assert metric(collector, "ragtrace_collector_kafka_pauses_total") >= 1
    assert sorted(span.trace_id for span in found) == [trace_id_of(number) for number in range(len(traces))]


@pytest.mark.slow
def test_another_receiver_stays_ready_without_a_broker(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = config_of(tmp_path, f"127.0.0.1:{port}", "spans")
    config["receive"]["http"] = "127.0.0.1:0"
    with collector_process(tmp_path, config) as collector:
        told = await_trouble(collector, "nothing is read from Kafka")
        assert told["ready"] is True
        assert collector.send(*rag_trace(0)).status_code == 200
        await_carriers(tmp_path, 1)


def test_a_broker_with_tls_and_credentials_is_told_of_what_is_wrong(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create("credentials")
    kafka.write_traces(topic, rag_trace(0))
    options = {"security.protocol": "SASL_SSL", **SASL}
    trusting = config_of(tmp_path, kafka.tls_broker, topic, {**options, "ssl.ca.location": str(kafka.ca)})
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    with collector_process(tmp_path, config_of(tmp_path, kafka.tls_broker, topic, options)) as collector:
        await_trouble(collector, "certificate verify failed")
    monkeypatch.setenv("KAFKA_PASSWORD", "expired-password")
    with collector_process(tmp_path, trusting) as collector:
        await_trouble(collector, "the brokers refuse the credentials in `receive.kafka.options`")
    assert "expired-password" not in collector.log.read_text()
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    with collector_process(tmp_path, trusting):
        await_carriers(tmp_path, 1)


def two_of_a_group(
    kafka: Kafka, folder: Path, topic: str, **options: str
) -> list[tuple[Path, dict[str, Any]]]:
    """Return folders and configurations of two collectors of a topic; ``NAME`` stands for the folder's."""
    kafka.create(topic, partitions=4)
    folders = [folder / "one", folder / "two"]
    for each in folders:
        each.mkdir()
    named = [{key: value.replace("NAME", each.name) for key, value in options.items()} for each in folders]
    return [
        (each, config_of(each, kafka.broker, topic, own)) for each, own in zip(folders, named, strict=True)
    ]


def await_shares(*members: CollectorProcess) -> None:
    share = [4 // len(members)] * len(members)
    eventually(
        lambda: [page(each, "/status")["kafka"]["partitions"] for each in members] == share,
        what=f"{share} partitions",
    )


def test_a_collector_that_is_killed_and_comes_back_by_its_name_has_its_answers_judged_once(
    kafka: Kafka, tmp_path: Path
) -> None:
    one, two = two_of_a_group(kafka, tmp_path, "several", **{"group.instance.id": "NAME"})

    def judged() -> list[str]:
        return [span.trace_id for folder, _ in (one, two) for span in carriers(folder)]

    with collector_process(*two) as second:
        with collector_process(*one) as first:
            await_shares(first, second)
            kafka.write_traces("several", *map(rag_trace, range(30)))
            eventually(lambda: carriers(one[0]), what="a verdict of the first")
            first.kill()
        kafka.write_traces("several", *map(rag_trace, range(30, 60)))
        with collector_process(*one) as first:  # soon enough to get its partitions again
            eventually(lambda: len(set(judged())) == 60, what="all verdicts")
            assert len(judged()) == 60
            assert page(first, "/ledger")["seen"] + page(second, "/ledger")["seen"] == 60


def test_an_answer_whose_spans_were_split_when_partitions_moved_is_told_by_both(
    kafka: Kafka, tmp_path: Path
) -> None:
    one, two = two_of_a_group(kafka, tmp_path, "split")
    traces = [rag_trace(number) for number in range(12)]

    with collector_process(*two) as second:
        with collector_process(*one) as first:
            await_shares(first, second)
            kafka.write_traces("split", *(others for _, *others in traces))
            eventually(lambda: sum(kafka.committed("group-of-split", "split").values()) == 12, what="offsets")
            split = {each for each in range(12) if page(first, f"/why/{trace_id_of(each)}").get("trace")}
            first.kill()
        await_shares(second)
        kafka.write_traces("split", *([root] for root, *_ in traces))
        with collector_process(*one) as first:

            def told(number: int) -> set[tuple[str, str]]:
                reports = [page(member, f"/why/{trace_id_of(number)}") for member in (first, second)]
                return {(each["state"], each["reason"]) for report in reports for each in report["answers"]}

            both = {("judged", ""), ("ineligible", "no_retrieval")}  # by the generation alone; the root alone
            eventually(lambda: all(told(number) == both for number in split), what="what was split")
            whole = set(range(12)) - split
            eventually(lambda: all(("judged", "") in told(number) for number in whole), what="the others")
            assert split
            assert not any(("ineligible", "no_retrieval") in told(number) for number in whole)


def test_messages_without_a_key_are_counted(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("unkeyed", partitions=2)
    kafka.write(topic, encode(rag_trace(0)), encode(rag_trace(1)))
    with collector_process(tmp_path, config_of(tmp_path, kafka.broker, topic)) as collector:
        await_carriers(tmp_path, 2)
        assert metric(collector, "ragtrace_collector_kafka_messages_unkeyed_total") == 2


def test_a_topic_may_have_a_tenant(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("tenant")
    kafka.write_traces(topic, rag_trace(0))
    with collector_process(tmp_path, config_of(tmp_path, kafka.broker, topic, tenant="acme")):
        (carrier,) = await_carriers(tmp_path, 1)
    assert carrier.resource.attributes[semconv.TENANT] == "acme"
