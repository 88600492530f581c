"""otel-config.yaml, validated and run by a real OpenTelemetry Collector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from ragtrace import semconv
from tests.backends.otelcol import OtelCol
from tests.backends.otlp_receiver import OtlpReceiver
from tests.backends.process import eventually, free_ports

CONFIG = Path(__file__).parents[2] / "otel-config.yaml"
APP_SPANS = {"rag", "retrieval"}
ALL_SPANS = {"rag", "retrieval", "evaluation fail"}

StartReceiver = Callable[[], OtlpReceiver]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    grpc: int
    http: int
    metrics: int
    spanmetrics: int

    def env(self, *, traces: str, ragtrace: str) -> dict[str, str]:
        return {
            "OTELCOL_OTLP_GRPC": f"127.0.0.1:{self.grpc}",
            "OTELCOL_OTLP_HTTP": f"127.0.0.1:{self.http}",
            "OTELCOL_METRICS": str(self.metrics),
            "SPANMETRICS_PORT": str(self.spanmetrics),
            "SPANMETRICS_INTERVAL": "100ms",
            "TRACES_ENDPOINT": traces,
            "RAGTRACE_ENDPOINT": ragtrace,
        }


@pytest.fixture
def ports() -> Ports:
    grpc, http, metrics, spanmetrics = free_ports(4)
    return Ports(grpc=grpc, http=http, metrics=metrics, spanmetrics=spanmetrics)


@pytest.fixture
def with_spanmetrics(tmp_path: Path) -> Path:
    """The configuration with its commented lines in force."""
    config = tmp_path / "with-spanmetrics.yaml"
    config.write_text(CONFIG.read_text().replace("#~ ", ""))
    return config


@contextmanager
def running_otelcol(
    otelcol: OtelCol, ports: Ports, *, traces: str, ragtrace: str, config: Path = CONFIG
) -> Iterator[None]:
    env = ports.env(traces=traces, ragtrace=ragtrace)
    with otelcol.run(config, env=env, listens_on=(ports.grpc, ports.http)):
        yield


def send_app_and_carrier_spans(exporter: SpanExporter) -> None:
    """Send two spans of an application and a carrier, in one request."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    app, evaluation = provider.get_tracer("shop"), provider.get_tracer(semconv.SCOPE_EVALUATION)
    with app.start_as_current_span("rag"):
        with app.start_as_current_span("retrieval"):
            pass
        with evaluation.start_as_current_span("evaluation fail"):
            pass
    provider.shutdown()


def over_grpc(ports: Ports) -> SpanExporter:
    return GrpcSpanExporter(endpoint=f"http://127.0.0.1:{ports.grpc}")


def over_http(ports: Ports) -> SpanExporter:
    return HttpSpanExporter(endpoint=f"http://127.0.0.1:{ports.http}/v1/traces")


def names(receiver: OtlpReceiver, count: int) -> set[str]:
    return {span.name for span in receiver.wait_for_spans(count)}


def default_of(variable: str, config: Path = CONFIG) -> str:
    found: set[str] = set(re.findall(rf"\$\{{env:{variable}:-([^}}]+)\}}", config.read_text()))
    (default,) = found
    return default


def test_the_defaults_join_the_two_collectors() -> None:
    ours = yaml.safe_load((CONFIG.parent / "collector" / "config.yaml").read_text())
    assert ours["receive"]["grpc"] == default_of("RAGTRACE_ENDPOINT")
    (back_end,) = ours["export"]
    assert urlsplit(back_end["endpoint"]).port == urlsplit(f"//{default_of('OTELCOL_OTLP_GRPC')}").port


def test_the_configuration_is_valid_without_any_setting(otelcol: OtelCol) -> None:
    verdict = otelcol.validate(CONFIG)
    assert verdict.returncode == 0, verdict.stderr


@pytest.mark.parametrize("exporter", [over_grpc, over_http])
def test_the_back_end_gets_every_span_and_ragtrace_all_but_carriers(
    otelcol: OtelCol, otlp_receiver: StartReceiver, ports: Ports, exporter: Callable[[Ports], SpanExporter]
) -> None:
    traces, ragtrace = otlp_receiver(), otlp_receiver()
    with running_otelcol(otelcol, ports, traces=traces.endpoint, ragtrace=ragtrace.endpoint):
        send_app_and_carrier_spans(exporter(ports))
        assert names(traces, len(ALL_SPANS)) == ALL_SPANS
        assert names(ragtrace, len(APP_SPANS)) == APP_SPANS


def test_the_back_end_gets_its_spans_while_ragtrace_is_away(
    otelcol: OtelCol, otlp_receiver: StartReceiver, ports: Ports
) -> None:
    traces, (nobody,) = otlp_receiver(), free_ports(1)
    with running_otelcol(otelcol, ports, traces=traces.endpoint, ragtrace=f"127.0.0.1:{nobody}"):
        send_app_and_carrier_spans(over_grpc(ports))
        assert names(traces, len(ALL_SPANS)) == ALL_SPANS


def test_span_metrics_leave_carriers_out(
    otelcol: OtelCol, otlp_receiver: StartReceiver, ports: Ports, with_spanmetrics: Path
) -> None:
    traces, ragtrace = otlp_receiver(), otlp_receiver()
    with running_otelcol(
        otelcol, ports, traces=traces.endpoint, ragtrace=ragtrace.endpoint, config=with_spanmetrics
    ):
        send_app_and_carrier_spans(over_grpc(ports))
        page = eventually(lambda: span_metrics_page(ports), what="span metrics")
    assert all(f'span_name="{name}"' in page for name in APP_SPANS)
    assert "evaluation fail" not in page


def span_metrics_page(ports: Ports) -> str | None:
    page = httpx.get(f"http://127.0.0.1:{ports.spanmetrics}/metrics").text
    return page if "span_name=" in page else None
