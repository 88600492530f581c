"""Real programs watch the collector: Prometheus scrapes it, an OpenTelemetry Collector gets its metrics."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
import yaml

from tests.acceptance.collector_process import collector_process
from tests.acceptance.test_operations import config_of
from tests.backends.otelcol import OtelCol
from tests.backends.process import eventually, free_ports, is_listening, running
from tests.deploy.test_deploy import PROMETHEUS
from tests.patience import PATIENCE_S


@pytest.mark.slow
def test_prometheus_scrapes_it_and_no_alert_fires(tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed")
    (port,) = free_ports(1)
    with collector_process(tmp_path, config_of(tmp_path)) as collector:
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
        config["rule_files"] = [str(PROMETHEUS / "alerts.yml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{collector.pages_port}"]}]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            prometheus,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with running(command, env={}, ready=lambda: is_listening(port), log=tmp_path / "prometheus.log"):
            eventually(lambda: query(port, "ragtrace_collector_ready") == 1, what="a scrape")
            assert query(port, "count(ragtrace_answers)") == 11
            assert query(port, 'scrape_samples_scraped{job="ragtrace-collector"}') > 50
            assert query(port, "count(ALERTS)") is None


def query(port: int, expression: str) -> float | None:
    answer = httpx.get(
        f"http://127.0.0.1:{port}/api/v1/query", params={"query": expression}, timeout=PATIENCE_S
    )
    found = answer.raise_for_status().json()["data"]["result"]
    return float(found[0]["value"][1]) if found else None


RECEIVES = """
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{grpc}"}}}}}}}}
exporters: {{prometheus: {{endpoint: "127.0.0.1:{page}"}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
"""


def test_an_opentelemetry_collector_gets_its_metrics_over_grpc(
    otelcol: OtelCol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    grpc, page = free_ports(2)
    file = tmp_path / "metrics.yaml"
    file.write_text(RECEIVES.format(grpc=grpc, page=page))
    telemetry = {"listen": "127.0.0.1:0", "otlp_endpoint": f"grpc://127.0.0.1:{grpc}"}
    with (
        otelcol.run(file, env={}, listens_on=[grpc, page]),
        collector_process(tmp_path, config_of(tmp_path, telemetry=telemetry)),
    ):
        eventually(
            lambda: "ragtrace_answers_seen" in httpx.get(f"http://127.0.0.1:{page}/metrics").text,
            what="the metrics",
        )
