"""The deployment files, each checked by the program that reads it, and against the collector itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.metrics import Observation
from prometheus_client.parser import text_string_to_metric_families

from ragtrace_collector.config import CollectorConfig, load_config, parse_config
from ragtrace_collector.config.values import KafkaConfig
from ragtrace_collector.operations.metrics import METRICS, Readings, SelfMetrics
from ragtrace_collector.service.check import check_config
from ragtrace_collector.service.collector import CANCEL_S
from tests.backends.binary import required_binary
from tests.backends.helm_program import Helm
from tests.backends.otelcol import OtelCol
from tests.dashboards import metrics_in, read, targets_in
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE, PROMETHEUS = DEPLOY / "compose", DEPLOY / "prometheus"
CHART = DEPLOY / "helm" / "ragtrace"
UNIT = DEPLOY / "systemd" / "ragtrace-collector.service"


def run(program: str, *arguments: str | Path, cwd: Path = DEPLOY) -> str:
    """Run a checker, or skip where it is not installed; return what it says, and fail where it complains."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    command = [found, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


async def scraped_names() -> set[str]:
    """Return the name of every series that a scrape can hold."""

    async def everything() -> Readings:
        return {metric.name: (Observation(1),) for metric in METRICS}

    metrics = SelfMetrics(everything, push_to=None)
    page, _ = await metrics.page("")
    await metrics.aclose()
    families = text_string_to_metric_families(page.decode())
    return {sample.name for family in families for sample in family.samples}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:ragtrace|process)_[a-z_]+", text))


def test_prometheus_takes_its_configuration_and_rules() -> None:
    run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    run("promtool", "check", "rules", PROMETHEUS / "alerts.yml")
    run("promtool", "check", "rules", PROMETHEUS / "judging-rules.yml")


def test_every_alert_fires_when_it_should_and_is_silent_when_all_is_well() -> None:
    run("promtool", "test", "rules", PROMETHEUS / "alerts.test.yml")


def test_every_alert_is_tried_on_series_that_break_it_and_on_series_that_do_not() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
    fired = {
        each["alertname"] for test in tests for each in test.get("alert_rule_test", ()) if each["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in alert_rules()}
    well = names_in(" ".join(each["series"] for each in tests[-1]["input_series"]))
    assert {name for rule in alert_rules() for name in names_in(rule["expr"])} <= well


def alert_rules() -> Iterator[dict[str, Any]]:
    for file in ("alerts.yml", "judging-rules.yml"):
        for group in yaml.safe_load((PROMETHEUS / file).read_text())["groups"]:
            yield from group["rules"]


async def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    texts = [rule["expr"] for rule in alert_rules()]
    texts += [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    asked = set().union(*map(names_in, texts))
    assert len(asked) > 20
    for file in (COMPOSE / "grafana/dashboards").glob("quality-*.json"):
        targets = [each for each in targets_in(read(file.name)) if each.source == "prometheus"]
        named = {name for target in targets for name in metrics_in(target.asked["expr"])}
        asked |= {name for name in named if not name.startswith("ragtrace_evaluation_")}
    assert asked <= await scraped_names()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((COMPOSE / "grafana/dashboards/ragtrace.json").read_text())
    return found


def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ragtrace/bin/ragtrace", "/bin/true"))
    assert "ragtrace-collector" not in run("systemd-analyze", "verify", unit)
    run(
        "systemd-analyze", "security", "--offline=true", "--threshold=15", unit
    )  # of 100: the lower, the safer


MANY = ("database.secretName=ragtrace-database", "all.replicas=0", "ingest.replicas=2", "evaluate.replicas=2")
SCALED = ("evaluate.maxReplicas=6", "autoscaling.queued=500", "database.pods.app=postgres")
CHARTS = {
    "one": (),
    "scaled": (*MANY, *SCALED),
    "reviewed": (*MANY, "config.ui.reviews=/var/lib/ragtrace/reviews.jsonl"),
}
URL = "postgresql://ragtrace:secret@postgres/ragtrace"
Manifest = dict[str, Any]


def rendered(helm: Helm, values: Sequence[str]) -> list[Manifest]:
    return helm.manifests(CHART, *(part for value in values for part in ("--set", value)))


@pytest.fixture(params=CHARTS)
def manifests(helm: Helm, request: pytest.FixtureRequest) -> list[Manifest]:
    """What the chart renders to with values that people set."""
    return rendered(helm, CHARTS[request.param])


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] == kind]


def pods(manifests: Sequence[Manifest]) -> list[Manifest]:
    return [each["spec"]["template"] for each in of_kind(manifests, "StatefulSet")]


def config_of(manifests: Sequence[Manifest]) -> CollectorConfig:
    (made,) = of_kind(manifests, "ConfigMap")
    environ = {"DATABASE_URL": URL}
    return parse_config(made["data"]["collector.yaml"], where="ConfigMap", environ=environ)


def test_helm_finds_no_fault_in_the_chart(helm: Helm) -> None:
    done = helm.run("lint", "--strict", "--kube-version", "1.32.0", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_values_are_refused(helm: Helm) -> None:
    for fault, values in {
        "a file belongs to one process": ("all.replicas=2",),
        "judged by `all` or `evaluate`": (*MANY, "evaluate.replicas=0"),
        "url": ("database.url=postgresql://x",),
    }.items():
        done = helm.template(CHART, *(part for value in values for part in ("--set", value)))
        assert done.returncode != 0
        assert fault in done.stderr


@pytest.mark.parametrize("values", CHARTS.values(), ids=CHARTS)
def test_a_chart_is_what_the_collector_takes_and_its_parts_find_each_other(
    helm: Helm, values: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    manifests = rendered(helm, values)
    config = config_of(manifests)
    check_configuration(config, tmp_path)
    assert URL not in json.dumps(manifests)
    check_stops(config, manifests)
    for owner in of_kind(manifests, "StatefulSet"):
        check_pod(config, owner)
    check_selectors(manifests)
    check_network_policy(config, manifests)


def check_configuration(config: CollectorConfig, folder: Path) -> None:
    (line,) = re.findall(r'echo "(- .*)" >> tokens.yaml', (CHART / "values.yaml").read_text())
    (folder / "tokens.yaml").write_text(line.replace("$digest", "ab" * 32))
    update: dict[str, object] = {
        "receive": config.receive.model_copy(update={"tokens_file": folder / "tokens.yaml"}),
        "ui": config.ui.model_copy(update={"reviews": None}),
    }
    if config.store.url is None:
        assert config.store.path == Path("/var/lib/ragtrace/ragtrace.db")
        update["store"] = config.store.model_copy(update={"path": folder / "ragtrace.db"})
    check_config(config.model_copy(update=update))


def check_stops(config: CollectorConfig, manifests: Sequence[Manifest]) -> None:
    """A stop is waited for as long as it may take."""
    waits = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    waits += re.findall(r"stop_grace_period: (\d+)s", (COMPOSE / "compose.yaml").read_text())
    waits += [pod["spec"]["terminationGracePeriodSeconds"] for pod in pods(manifests)]
    longest_s = config.drain_timeout.total_seconds() + CANCEL_S
    assert len(waits) >= 3
    assert all(int(wait) > longest_s for wait in waits)


def check_pod(config: CollectorConfig, owner: Manifest) -> None:
    """A pod plays its role where it is looked for."""
    pod = owner["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listening = [config.receive.grpc, config.telemetry.listen, config.ui.listen]
    assert [f"0.0.0.0:{port}" for port in ports.values()] == listening
    probes = {key: probe["httpGet"] for key, probe in container.items() if key.endswith("Probe")}
    assert {probe["port"] for probe in probes.values()} == {"pages"}
    assert probes["readinessProbe"]["path"] == "/readyz"
    role = pod["metadata"]["labels"]["app.kubernetes.io/component"]
    assert container["args"][3:] == ([] if config.store.url is None else ["--role", role])
    claims = {each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", ())}
    assert claims == (set() if config.store.url and not config.ui.reviews else {"state"})
    volumes = {each["name"] for each in pod["spec"]["volumes"]} | claims
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def check_selectors(manifests: Sequence[Manifest]) -> None:
    made = [pod["metadata"]["labels"] for pod in pods(manifests)]
    names = {f"{each['metadata']['name']}-0" for each in of_kind(manifests, "StatefulSet")}
    for each in manifests:
        if each["kind"] in ("StatefulSet", "Service", "PodDisruptionBudget"):
            selector = each["spec"]["selector"]
            wanted = dict(selector.get("matchLabels", selector))
            assert wanted.pop("statefulset.kubernetes.io/pod-name", min(names)) in names
            assert any(wanted.items() <= labels.items() for labels in made)
    (senders,) = [each for each in of_kind(manifests, "Service") if each["metadata"]["name"] == "ragtrace"]
    taking = [labels for labels in made if senders["spec"]["selector"].items() <= labels.items()]
    assert {labels["app.kubernetes.io/component"] for labels in taking} <= {"all", "ingest"}
    assert taking


def test_an_autoscaler_is_for_processes_that_there_are(helm: Helm) -> None:
    manifests = rendered(helm, CHARTS["scaled"])
    (scaler,) = of_kind(manifests, "HorizontalPodAutoscaler")
    (scaled,) = [each for each in of_kind(manifests, "StatefulSet") if "replicas" not in each["spec"]]
    assert scaler["spec"]["scaleTargetRef"]["name"] == scaled["metadata"]["name"] == "ragtrace-evaluate"
    assert scaler["spec"]["metrics"][1]["external"]["metric"]["name"] in names_in(
        (PROMETHEUS / "alerts.yml").read_text()
    )


def check_network_policy(config: CollectorConfig, manifests: Sequence[Manifest]) -> None:
    """It lets through what the configuration needs, and no more."""
    (policy,) = [each["spec"] for each in of_kind(manifests, "NetworkPolicy")]
    served = {port["targetPort"] for each in of_kind(manifests, "Service") for port in each["spec"]["ports"]}
    let_in = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    assert served == set(let_in) == {"otlp-grpc", "pages", "ui"}
    assert all(rule["from"] for rule in policy["ingress"])
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    reached = [*(str(each.endpoint) for each in config.export), str(config.ui.traces)]
    needed = {int(address.rstrip("/").rpartition(":")[2]) for address in reached} | {53, 443}
    let_out = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert let_out - {5432} == needed
    assert all(rule["to"] for rule in policy["egress"])


@pytest.mark.parametrize("store", [None, URL])
def test_the_configuration_of_the_containers_is_fine(store: str | None, tmp_path: Path) -> None:
    environ = {"RAGTRACE_STORE": store or str(tmp_path / "ragtrace.db")}
    check_config(load_config(COMPOSE / "collector.yaml", environ=environ))
    assert load_config(COMPOSE / "collector.yaml", environ={}).store.path == Path(
        "/var/lib/ragtrace/ragtrace.db"
    )


def test_every_file_that_a_container_is_given_is_there() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    mounts = [volume.partition(":")[0] for each in services.values() for volume in each.get("volumes", ())]
    files = [mount for mount in mounts if mount.startswith(".")]
    assert len(files) > 5
    assert all((COMPOSE / file).exists() for file in files)
    assert (COMPOSE / services["ragtrace"]["build"]["context"] / "collector" / "Dockerfile").exists()


def test_jaeger_and_the_collector_in_front_take_their_files(otelcol: OtelCol) -> None:
    for files in ([COMPOSE / "jaeger.yaml"], [ROOT / "otel-config.yaml", COMPOSE / "otelcol-tempo.yaml"]):
        flags = [flag for file in files for flag in ("--config", file)]
        run(str(otelcol.binary), "validate", *flags)


def test_tempo_takes_its_file() -> None:
    run(str(required_binary("tempo")), f"-config.file={COMPOSE / 'tempo.yaml'}", "-config.verify=true")


def test_the_collector_in_front_of_kafka_writes_what_ragtrace_reads(otelcol: OtelCol) -> None:
    file = DEPLOY / "kafka" / "otelcol.yaml"
    done = otelcol.validate(file)
    assert done.returncode == 0, done.stderr
    config, receiver = yaml.safe_load(file.read_text()), KafkaConfig(brokers=("127.0.0.1:9092",))
    exporter, pipelines = config["exporters"]["kafka"], config["service"]["pipelines"]
    assert exporter["partition_traces_by_id"] is True
    assert exporter["traces"] == {"topic": receiver.topics[0], "encoding": "otlp_proto"}
    assert "filter/carriers" in pipelines["traces/ragtrace"]["processors"]
    assert "filter/carriers" not in pipelines["traces/backend"]["processors"]
