"""The deployment files, each checked by the program that reads it, and against the collector itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ragtrace_collector.config import CollectorConfig, load_config, parse_config
from ragtrace_collector.operations._instruments import METRICS, Measurement, Readings
from ragtrace_collector.operations.metrics import SelfMetrics
from ragtrace_collector.service.check import check_config
from tests.backends.binary import required_binary
from tests.backends.otelcol import OtelCol
from tests.dashboards.asked import metrics_in, read, targets_in
from tests.integration.cli.program import run as program
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE, PROMETHEUS = DEPLOY / "compose", DEPLOY / "prometheus"
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
        return {metric.name: (Measurement(1),) for metric in METRICS}

    metrics = SelfMetrics(everything, push_to=None)
    page, _ = await metrics.page("")
    await metrics.aclose()
    families = text_string_to_metric_families(page.decode())
    return {sample.name for family in families for sample in family.samples}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:ragtrace|process)_[a-z_]+", text))


@pytest.mark.slow
def test_prometheus_takes_its_configuration_and_rules() -> None:
    run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    run("promtool", "check", "rules", PROMETHEUS / "alerts.yml")
    run("promtool", "check", "rules", PROMETHEUS / "judging-rules.yml")


def test_the_shipped_rules_about_judging_are_those_of_the_command(tmp_path: Path) -> None:
    written = tmp_path / "judging-rules.yml"
    done = program("rules", "--out", str(written))
    assert done.exit_code == 0, done.output
    assert written.read_text() == (PROMETHEUS / written.name).read_text(), "run `ragtrace rules --out` again"


@pytest.mark.slow
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


async def test_dashboards_of_quality_ask_for_metrics_that_there_are() -> None:
    known = await scraped_names()
    for file in (COMPOSE / "grafana/dashboards").glob("quality-*.json"):
        asked = {
            name
            for target in targets_in(read(file.name))
            if target.source == "prometheus"
            for name in metrics_in(target.asked["expr"])
        }
        own = {name for name in asked if not name.startswith("ragtrace_evaluation_")}
        assert len(own) > 5
        assert own <= known


async def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    texts = [rule["expr"] for rule in alert_rules()]
    texts += [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    asked = set().union(*map(names_in, texts))
    assert len(asked) > 20
    assert asked <= await scraped_names()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((COMPOSE / "grafana/dashboards/ragtrace.json").read_text())
    return found


def test_the_dashboard_reads_from_a_data_source_that_is_provisioned() -> None:
    sources = yaml.safe_load((COMPOSE / "grafana/provisioning/datasources/datasources.yaml").read_text())
    known = {source["uid"] for source in sources["datasources"]}
    asked = {target["datasource"]["uid"] for panel in dashboard()["panels"] for target in panel["targets"]}
    assert asked <= known
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


@pytest.mark.slow
def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ragtrace/bin/ragtrace", "/bin/true"))
    assert "ragtrace-collector" not in run("systemd-analyze", "verify", unit)
    run(
        "systemd-analyze", "security", "--offline=true", "--threshold=15", unit
    )  # of 100: the lower, the safer


@pytest.fixture(params=["compose", "kubernetes"])
def collector_config(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CollectorConfig:
    """The collector's own configuration in a deployment."""
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    if request.param == "compose":
        return load_config(COMPOSE / "collector.yaml", environ={})
    return parse_config(manifests()["ConfigMap"]["data"]["collector.yaml"], where="ConfigMap", environ={})


def manifests() -> dict[str, Any]:
    """Return what Kubernetes is given, by kind."""
    return {
        each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes/collector.yaml").read_text())
    }


def test_a_deployed_configuration_is_fine(collector_config: CollectorConfig, tmp_path: Path) -> None:
    assert collector_config.store.path == Path("/var/lib/ragtrace/ragtrace.db")
    update = {"store": collector_config.store.model_copy(update={"path": tmp_path / "ragtrace.db"})}
    if collector_config.receive.tokens_file:
        made = [program("token", "--name", *who) for who in manifest_tokens()]
        (tmp_path / "tokens.yaml").write_text("".join(done.stdout.split("\n", 1)[1] for done in made))
        tokens = {"tokens_file": tmp_path / "tokens.yaml"}
        update["receive"] = collector_config.receive.model_copy(update=tokens)
    check_config(collector_config.model_copy(update=update))


def manifest_tokens() -> list[list[str]]:
    """Return the arguments of the tokens that the manifest's comment makes."""
    text = (DEPLOY / "kubernetes/collector.yaml").read_text()
    (listed,) = re.findall(r"for who in (.*); do", text)
    return [who.split() for who in re.findall("'([^']*)'", listed)]


def test_a_stop_is_waited_for_as_long_as_it_may_take(collector_config: CollectorConfig) -> None:
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    waits = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    waits += re.findall(r"stop_grace_period: (\d+)s", (COMPOSE / "compose.yaml").read_text())
    waits.append(pod["terminationGracePeriodSeconds"])
    longest_s = (collector_config.drain_timeout + collector_config.cancel_timeout).total_seconds()
    assert len(waits) == 3
    assert all(int(wait) > longest_s for wait in waits)


def test_kubernetes_looks_where_the_collector_listens() -> None:
    config = yaml.safe_load(manifests()["ConfigMap"]["data"]["collector.yaml"])
    (container,) = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listening = [config["receive"]["grpc"], config["telemetry"]["listen"], config["ui"]["listen"]]
    probes = [probe["httpGet"] for key, probe in container.items() if key.endswith("Probe")]
    assert [f"0.0.0.0:{port}" for port in ports.values()] == listening
    assert {probe["path"] for probe in probes} == {"/livez", "/readyz"}
    assert all(probe["port"] in ports for probe in probes)


def test_kubernetes_lets_through_what_the_configuration_needs_and_no_more() -> None:
    documents = [*yaml.safe_load_all((DEPLOY / "kubernetes/collector.yaml").read_text())]
    policy = manifests()["NetworkPolicy"]["spec"]
    (container,) = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    names = {port["name"] for port in container["ports"]}
    served = {
        port["targetPort"]
        for each in documents
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    }
    let_in = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    assert served == names == set(let_in)
    assert all(rule["from"] for rule in policy["ingress"])
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    config = yaml.safe_load(manifests()["ConfigMap"]["data"]["collector.yaml"])
    reached = [*(each["endpoint"] for each in config["export"]), config["ui"]["traces"]]
    needed = {int(address.rpartition(":")[2]) for address in reached} | {53, 443}
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == needed
    assert all(rule["to"] for rule in policy["egress"])


def test_every_file_that_a_container_is_given_is_there() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    mounts = [volume.partition(":")[0] for each in services.values() for volume in each.get("volumes", ())]
    files = [mount for mount in mounts if mount.startswith(".")]
    assert len(files) > 5
    assert all((COMPOSE / file).exists() for file in files)
    assert (COMPOSE / services["ragtrace"]["build"]["context"] / "collector" / "Dockerfile").exists()


@pytest.mark.slow
def test_compose_takes_its_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    run("docker", "compose", "config", "--quiet", cwd=COMPOSE)


def test_jaeger_and_the_collector_in_front_take_their_files(otelcol: OtelCol) -> None:
    for files in ([COMPOSE / "jaeger.yaml"], [ROOT / "otel-config.yaml", COMPOSE / "otelcol-tempo.yaml"]):
        flags = [flag for file in files for flag in ("--config", file)]
        run(str(otelcol.binary), "validate", *flags)


@pytest.mark.slow
def test_tempo_takes_its_file() -> None:
    run(str(required_binary("tempo")), f"-config.file={COMPOSE / 'tempo.yaml'}", "-config.verify=true")
