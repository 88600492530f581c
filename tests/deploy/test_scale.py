"""examples/scale: each file checked by the program that reads it, and all of them against each other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig, load_config, parse_config
from ragtrace_collector.service.check import check_config
from tests.backends.helm_program import Helm
from tests.backends.otelcol import OtelCol

SCALE = Path(__file__).parents[2] / "examples" / "scale"
CHART = SCALE / "helm" / "ragtrace"
PLAIN = {
    "ragtrace.yaml": ("--set", "autoscaling.enabled=false"),
    "keda.yaml": ("--show-only", "templates/autoscaling.yaml"),
}
REGENERATE = "REGENERATE_GOLDEN"
SASL = {"kafka": {"sasl": {"mechanism": "SCRAM-SHA-512", "username": "ragtrace"}, "tls": {}}}

Manifest = dict[str, Any]


def of_kind(manifests: list[Manifest], kind: str, role: str) -> Manifest:
    (found,) = [
        each for each in manifests if each["kind"] == kind and each["metadata"]["name"].endswith(role)
    ]
    return found


def plain(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((SCALE / "kubernetes" / name).read_text()))


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """What makes pods, with the pod that each makes."""
    for each in manifests:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield each, each["spec"]["template"]


def configs(manifests: list[Manifest]) -> Mapping[str, CollectorConfig]:
    data = of_kind(manifests, "ConfigMap", "ragtrace")["data"]
    environ = {"POD_NAME": "ragtrace-evaluate-0", "KAFKA_PASSWORD": "secret"}
    return {name: parse_config(text, where=name, environ=environ) for name, text in data.items()}


@pytest.fixture(params=["default", "scram", "from the topic"])
def rendered(helm: Helm, request: pytest.FixtureRequest, tmp_path: Path) -> list[Manifest]:
    """The chart with values that people set."""
    values = {"default": {}, "scram": SASL, "from the topic": {"ingest": {"enabled": False}}}[request.param]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    return helm.manifests(CHART, "--values", str(tmp_path / "values.yaml"))


@pytest.mark.parametrize("name", ["ingest", "evaluate"])
def test_a_configuration_is_fine(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("RAGTRACE_SHARDS", str(tmp_path / "shards"))
    config = load_config(SCALE / f"{name}.yaml")
    assert config.role == name
    check_config(config)


def test_both_roles_name_one_cluster() -> None:
    ingest, evaluate = (load_config(SCALE / f"{name}.yaml", environ={}) for name in ("ingest", "evaluate"))
    assert ingest.store.kafka is not None
    assert evaluate.store.kafka is not None
    assert ingest.store.kafka.brokers == evaluate.store.kafka.brokers
    assert ingest.store.kafka.spans == evaluate.store.kafka.spans


def test_the_opentelemetry_collector_takes_the_file_for_kafka(otelcol: OtelCol) -> None:
    done = otelcol.validate(SCALE / "otelcol-kafka.yaml")
    assert done.returncode == 0, done.stderr


def test_its_topic_is_the_one_that_ragtrace_reads() -> None:
    exporter = yaml.safe_load((SCALE / "otelcol-kafka.yaml").read_text())["exporters"]["kafka"]
    kafka = load_config(SCALE / "evaluate.yaml", environ={}).store.kafka
    assert kafka is not None
    assert exporter["partition_traces_by_id"] is True
    assert exporter["traces"] == {"topic": kafka.spans, "encoding": "otlp_proto"}


def test_the_opentelemetry_collector_takes_the_file_for_load_balancing(balancing_otelcol: OtelCol) -> None:
    done = balancing_otelcol.validate(SCALE / "otelcol-loadbalancing.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["otelcol-kafka.yaml", "otelcol-loadbalancing.yaml"])
def test_a_collector_in_front_keeps_carriers_from_being_judged(name: str) -> None:
    config = yaml.safe_load((SCALE / name).read_text())
    assert "filter/carriers" in config["service"]["pipelines"]["traces/ragtrace"]["processors"]
    assert "filter/carriers" not in config["service"]["pipelines"]["traces/backend"]["processors"]


def test_helm_finds_no_fault_in_the_chart(helm: Helm) -> None:
    done = helm.run("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_manifests_are_what_the_chart_renders_to(helm: Helm, name: str) -> None:
    told = f"# helm template ragtrace examples/scale/helm/ragtrace {' '.join(PLAIN[name])}\n"
    done = helm.template(CHART, *PLAIN[name])
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("# Source: ")]
    written, file = told + "\n".join(lines) + "\n", SCALE / "kubernetes" / name
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        file.write_text(written)
    assert file.read_text() == written, f"run once with {REGENERATE}=1 if this is meant"


def test_the_collector_takes_what_the_chart_configures(
    rendered: list[Manifest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    for name, config in configs(rendered).items():
        assert config.role == name.removesuffix(".yaml")
        store = config.store.model_copy(update={"path": tmp_path / name})
        check_config(config.model_copy(update={"store": store}))


def test_selectors_find_the_pods_that_are_made(rendered: list[Manifest]) -> None:
    made = [pod["metadata"]["labels"] for _, pod in pods(rendered)]
    selectors = [
        each["spec"]["selector"].get("matchLabels", each["spec"]["selector"])
        for each in rendered
        if each["kind"] in ("Deployment", "StatefulSet", "Service", "PodDisruptionBudget")
    ]
    assert len(selectors) >= 3
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in made) == 1
    for owner, pod in pods(rendered):
        if owner["kind"] != "Job":
            assert owner["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_probes_and_ports_are_where_the_collector_listens(rendered: list[Manifest]) -> None:
    found = configs(rendered)
    for owner, pod in pods(rendered):
        (container,) = pod["spec"]["containers"]
        if owner["kind"] == "Job":
            continue
        config = found[Path(container["args"][-1]).name]
        ports = {port["name"]: f"0.0.0.0:{port['containerPort']}" for port in container["ports"]}
        listening = {"pages": config.telemetry.listen}
        if config.role == "ingest":
            assert config.receive.grpc is not None
            listening["otlp-grpc"] = config.receive.grpc
        assert ports == listening
        probes = [probe["httpGet"] for key, probe in container.items() if key.endswith("Probe")]
        assert {probe["path"] for probe in probes} == {"/livez", "/readyz"}
        assert {probe["port"] for probe in probes} == {"pages"}


def test_a_stop_is_waited_for_as_long_as_it_may_take(rendered: list[Manifest]) -> None:
    for config in configs(rendered).values():
        longest_s = (config.drain_timeout + config.cancel_timeout).total_seconds()
        for owner, pod in pods(rendered):
            if owner["kind"] != "Job":
                assert pod["spec"]["terminationGracePeriodSeconds"] > longest_s


def test_every_pod_is_restricted_and_finds_its_volumes(rendered: list[Manifest]) -> None:
    for owner, pod in pods(rendered):
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        claims = {each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", ())}
        volumes = {each["name"] for each in spec["volumes"]} | claims
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["automountServiceAccountToken"] is False


def test_an_evaluator_is_named_as_its_pod_and_keeps_its_disk(rendered: list[Manifest]) -> None:
    evaluate = of_kind(rendered, "StatefulSet", "evaluate")
    (container,) = evaluate["spec"]["template"]["spec"]["containers"]
    (name,) = [each for each in container["env"] if each["name"] == "POD_NAME"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    kafka = configs(rendered)["evaluate.yaml"].store.kafka
    assert kafka is not None
    assert kafka.group_instance_id == "ragtrace-evaluate-0"
    assert evaluate["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }


def test_keda_watches_the_group_and_topic_of_the_evaluators(rendered: list[Manifest]) -> None:
    scaled = of_kind(rendered, "ScaledObject", "evaluate")["spec"]
    kafka = configs(rendered)["evaluate.yaml"].store.kafka
    assert kafka is not None
    lag = next(each["metadata"] for each in scaled["triggers"] if each["type"] == "kafka")
    assert (lag["consumerGroup"], lag["topic"]) == (kafka.prefix, kafka.spans)
    assert lag["bootstrapServers"].split(",") == list(kafka.brokers)
    assert (
        scaled["scaleTargetRef"]["name"] == of_kind(rendered, "StatefulSet", "evaluate")["metadata"]["name"]
    )
    job = of_kind([each for each in rendered if each["kind"] == "Job"], "Job", "")
    partitions = next(
        argument.partition("=")[2]
        for argument in job["spec"]["template"]["spec"]["containers"][0]["args"]
        if argument.startswith("--partitions=")
    )
    assert scaled["maxReplicaCount"] <= int(partitions)
    assert "replicas" not in of_kind(rendered, "StatefulSet", "evaluate")["spec"]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        pytest.param("autoscaling.max=40", "kafka.partitions is 12", id="more processes than shards"),
        pytest.param("kafka.partitions=0", "/kafka/partitions", id="no partition"),
        pytest.param("config.role=all", "/config/role", id="what the chart sets"),
        pytest.param("kafka.broker=x:9092", "broker", id="an unknown value"),
        pytest.param("evaluate.replicas=two", "/evaluate/replicas", id="a word for a number"),
        pytest.param("kafka.sasl.mechanism=PLAIN,kafka.sasl.username=me", "readable", id="an open password"),
    ],
)
def test_wrong_values_are_refused_with_their_place(helm: Helm, values: str, fault: str) -> None:
    done = helm.template(CHART, "--set", values)
    assert done.returncode != 0
    assert fault in done.stderr


def test_the_values_that_are_shipped_are_allowed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((CHART / "values.yaml").read_text()), schema)


def test_a_role_without_a_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match="role: evaluate"):
        parse_config("{role: evaluate, export: [{endpoint: http://localhost:4317}]}", where="x", environ={})
