"""Score metrics reach real monitoring: Prometheus with exemplars, and an OpenTelemetry Collector."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from ragtrace.stats import Weighed
from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.process import eventually, free_ports
from tests.backends.prometheus_server import running_prometheus
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

DOCS = Path(__file__).parents[3] / "docs" / "monitor.md"
NUMBER = 40
WRONG_EVERY = 4


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "assemble": {"quiet_period": "50ms"},
        "judge": {"use": "lexical"},
        "sample": {"ratio": 0.5, "rules": [{"name": "bot", "attributes": {"service.name": "bot"}}]},
        "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}],
        "store": {"path": str(folder / "store.db")},
        "telemetry": {"listen": "127.0.0.1:0"},
        **changes,
    }


def send(collector: CollectorProcess, *, first: int = 0) -> None:
    """Send answers of two services; every fourth of them contradicts its chunk."""
    spans = [
        span
        for number in range(first, first + NUMBER)
        for span in rag_trace(
            number,
            answer="Refunds take 30 days." if number % WRONG_EVERY == 0 else "Refunds take 14 days.",
            service="bot" if number % 2 else "shop",
        )
    ]
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        export(encode(spans), timeout=PATIENCE_S)


def judged(collector: CollectorProcess) -> list[Weighed]:
    """Return the scores that the ledger's export has, with their sampling probabilities."""
    page = httpx.get(f"http://127.0.0.1:{collector.pages_port}/metrics", timeout=PATIENCE_S).text
    found = re.findall(r'ragtrace_evaluation_score_count\{[^}]*service_name="(\w+)"[^}]*\} ([\d.]+)', page)
    totals = re.findall(r'ragtrace_evaluation_score_sum\{[^}]*service_name="(\w+)"[^}]*\} ([\d.]+)', page)
    weighed = []
    for (service, count), (_, total) in zip(found, totals, strict=True):
        score = float(total) / float(count)  # of one label all have the same score here
        weighed += [Weighed(score, {"shop": 0.5, "bot": 1.0}[service], "")] * int(float(count))
    return [item._replace(cluster=str(number)) for number, item in enumerate(weighed)]


def queries() -> dict[str, str]:
    """Return the queries of the docs by their titles."""
    found = re.findall(r"^\*\*(.+?)\*\*.*?```promql\n(.+?)```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    return {title: query.replace("[1d]", "[1h]").strip() for title, query in found}


@pytest.mark.slow
@pytest.mark.night
def test_prometheus_answers_every_query_of_the_docs(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    telemetry = {"listen": f"127.0.0.1:{port}"}
    with (
        collector_process(tmp_path, config(tmp_path, telemetry=telemetry)) as collector,
        running_prometheus(tmp_path, scrapes={"ragtrace": port}) as prometheus,
    ):
        send(collector, first=1_000)  # Prometheus sees growth only from a first scrape on
        eventually(lambda: prometheus.value("max(ragtrace_evaluation_judged)"), what="a first answer")
        send(collector)
        eventually(
            lambda: prometheus.value('sum(ragtrace_answers{state=~"judged|sampled_out"})') == 2 * NUMBER,
            what="all answers",
        )
        for title, query in queries().items():
            rows = eventually(lambda query=query: prometheus.series(query), what=title)  # type: ignore[misc]
            assert all(value == value for _, value in rows), title
