"""Score metrics reach real monitoring: Prometheus with exemplars, and an OpenTelemetry Collector."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from ragtrace.stats import Weighed, weighted_mean
from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.process import eventually, free_ports
from tests.backends.prometheus_server import Prometheus, running_prometheus
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


@contextmanager
def scraped(folder: Path, collector: CollectorProcess) -> Iterator[Prometheus]:
    """Run a Prometheus that has seen everything judged."""
    assert collector.pages_port
    with running_prometheus(folder, scrapes={"ragtrace": collector.pages_port}) as prometheus:
        eventually(
            lambda: prometheus.value('sum(ragtrace_answers{state=~"judged|sampled_out"})') == NUMBER,
            what="all answers",
        )
        yield prometheus


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
def test_prometheus_answers_every_query_of_the_docs(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    telemetry = {"listen": f"127.0.0.1:{port}"}
    with (
        collector_process(tmp_path, config(tmp_path, telemetry=telemetry)) as collector,
        running_prometheus(tmp_path, scrapes={"ragtrace": port}) as prometheus,
    ):
        send(collector, first=1_000)  # Prometheus sees growth only from a first scrape on
        eventually(lambda: prometheus.value("max(ragtrace_evaluation_judged)"), what="a first answer")
        before = len(judged(collector))
        send(collector)
        eventually(
            lambda: prometheus.value('sum(ragtrace_answers{state=~"judged|sampled_out"})') == 2 * NUMBER,
            what="all answers",
        )
        assert len(judged(collector)) > before
        for title, query in queries().items():
            rows = eventually(lambda query=query: prometheus.series(query), what=title)  # type: ignore[misc]
            assert all(value == value for _, value in rows), title


@pytest.mark.slow
def test_mean_interval_and_pass_rate_are_those_of_the_library(tmp_path: Path) -> None:
    with collector_process(tmp_path, config(tmp_path)) as collector:
        send(collector)
        with scraped(tmp_path, collector) as prometheus:
            weighed = judged(collector)
            expected = weighted_mean(weighed)
            assert expected is not None
            total = "sum(ragtrace_evaluation_score_weighted_count)"
            mean = prometheus.value(f"sum(ragtrace_evaluation_score_weighted_sum) / {total}")
            passing = prometheus.value(
                'sum(ragtrace_evaluation_score_weighted_count{gen_ai_evaluation_score_label="pass"}) / '
                + total
            )
            sums = {
                name: prometheus.value(f"sum(ragtrace_evaluation_{name}_total)")
                for name in ("score_weighted_squared", "score_weighted_product", "weight_squared")
            }
            weight = prometheus.value(total)
            coverage = prometheus.value("min(ragtrace_evaluation_coverage)")
    assert mean == pytest.approx(expected.mean)
    of_passing = weighted_mean(item._replace(value=float(item.value > 0.5)) for item in weighed)
    assert passing == pytest.approx(of_passing.mean)  # type: ignore[union-attr]
    squares, product, weights = (sums[name] for name in sums)
    assert None not in (squares, product, weights, weight, mean)
    variance = (squares - 2 * mean * product + mean**2 * weights) / weight**2  # type: ignore[operator]
    exact = sum(((item.value - expected.mean) / (item.probability or 1)) ** 2 for item in weighed)
    assert sqrt(variance) == pytest.approx(sqrt(exact) / (weight or 1), rel=1e-6)
    assert coverage == 1, "what sampling left out counts"
