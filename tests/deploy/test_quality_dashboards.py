"""The dashboards of quality: Grafana reads them, they ask the same, and every query finds rows."""

from __future__ import annotations

import base64
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import httpx
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ragtrace import semconv
from tests.backends.process import eventually
from tests.dashboards import QUALITY, Target, filled, read, targets_in, variables_in
from tests.deploy.test_deploy import COMPOSE
from tests.deploy.watched import MODEL, SERVICE, STEP_S, TENANT, VERSION, Watched, watched_answers
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FILES = [*QUALITY]
TARGETS = [(name, target) for name in FILES for target in targets_in(read(name))]
MACROS = {"__range": "5m", "__rate_interval": "1m", "window": "5m", "metric": "faithfulness"}
CHOSEN = {
    "all": {"service": ".*", "model": ".*", "prompt_version": ".*", "tenant": ".*"},
    "one": {"service": SERVICE, "model": f"{MODEL}|m-2", "prompt_version": VERSION, "tenant": TENANT},
}


def test_both_ask_the_same_of_prometheus() -> None:
    tempo, jaeger = (
        [target.asked for file, target in TARGETS if file == name and target.source == "prometheus"]
        for name in FILES
    )
    assert tempo == jaeger


def test_grafanas_own_types_read_a_dashboard_and_lose_nothing() -> None:
    register_default_plugins()
    for name in FILES:
        typed = json.loads(json.dumps(Dashboard.from_json(read(name)), cls=JSONEncoder))
        assert [*_lost(read(name), typed, name)] == []


def _lost(written: Any, typed: Any, where: str) -> Iterator[str]:
    """Yield what the types don't know. They may add defaults."""
    if isinstance(written, dict) and isinstance(typed, dict):
        for key, value in written.items():
            yield from _lost(value, typed.get(key), f"{where}.{key}")
    elif isinstance(written, list) and isinstance(typed, list) and len(written) == len(typed):
        for place, (one, other) in enumerate(zip(written, typed, strict=True)):
            yield from _lost(one, other, f"{where}[{place}]")
    elif written != typed:
        yield where


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_answers(tmp_path_factory.mktemp("watched")) as found:
        yield found


@pytest.mark.backend
@pytest.mark.parametrize("name", FILES)
def test_every_query_of_every_panel_finds_rows(watched: Watched, name: str) -> None:
    for target in targets_in(read(name)):
        values = MACROS | CHOSEN["one"]
        if target.source == "jaeger":  # one service, always
            values["service"] = SERVICE
        eventually(partial(_rows, watched, target, values), what=f"rows of {name} {target}", deadline_s=60)


def _rows(watched: Watched, target: Target, values: Mapping[str, str]) -> list[Any]:
    match target.source:
        case "prometheus":
            return _series(watched, target.asked, values)
        case "tempo":
            return _spans(watched, target.asked, values)
        case "jaeger":
            return _traces(watched, target.asked, values)
        case other:
            raise AssertionError(other)


def _series(watched: Watched, asked: Mapping[str, Any], values: Mapping[str, str]) -> list[Any]:
    expression = filled(asked["expr"], values)
    if asked.get("instant"):
        found: list[Sequence[float]] = [[value] for _, value in watched.prometheus.series(expression)]
    else:
        now = time.time()
        found = [*watched.prometheus.over_time(expression, start_s=now - 10, end_s=now, step_s=1)]
    return [values for values in found if not all(map(math.isnan, values))]


def _spans(watched: Watched, asked: Mapping[str, Any], values: Mapping[str, str]) -> list[Any]:
    query, end_s = filled(asked["query"], values), int(time.time()) + STEP_S
    if "metricsQueryType" not in asked:
        return watched.tempo.search(query, start_s=watched.since_s, end_s=end_s, limit=asked["limit"])
    response = httpx.get(
        f"{watched.tempo.url}/api/metrics/query_range",
        params={"q": query, "start": watched.since_s, "end": end_s, "step": "15s"},
        timeout=PATIENCE_S,
    )
    assert response.is_success, f"{query}: {response.text}"
    series = response.json().get("series") or []
    return [line for line in series if any(sample.get("value") for sample in line["samples"])]


def _traces(watched: Watched, asked: Mapping[str, Any], values: Mapping[str, str]) -> list[Any]:
    tags = dict(pair.split("=", 1) for pair in filled(asked["tags"], values).split())
    service = filled(asked["service"], values)
    return watched.jaeger.search(service, tags, operation=asked["operation"], limit=asked["limit"])


@pytest.mark.backend
@pytest.mark.parametrize("name", FILES)
def test_every_variable_has_values_and_every_annotation_is_understood(watched: Watched, name: str) -> None:
    for variable in variables_in(read(name)):
        series, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        assert watched.prometheus.label_values(series, label), variable["name"]
    annotations = read(name)["annotations"]["list"]
    assert len(annotations) == 2
    for annotation in annotations:  # all is well here: what it asks must be right, not found
        watched.prometheus.series(filled(annotation["expr"], MACROS))


@pytest.mark.backend
def test_every_dot_on_a_chart_leads_to_a_trace_and_to_the_wrong_claim(watched: Watched) -> None:
    charts = [target for _, target in TARGETS if target.asked.get("exemplar")]
    assert {target.panel for target in charts} == {"Scores of all traffic", "Single answers"}
    for chart in charts:
        dots = watched.prometheus.exemplars(filled(chart.asked["expr"], MACROS | CHOSEN["all"]))
        assert len({dot["labels"]["trace_id"] for dot in dots}) > 1
        for dot in dots:
            carrier = _carrier(watched, dot["labels"]["trace_id"], dot["labels"]["span_id"])
            if float(dot["value"]) < 1:
                assert semconv.CLAIM_EVENT_PREFIX + "contradicted" in {
                    event["name"] for event in carrier["events"]
                }


def _carrier(watched: Watched, trace_id: str, span_id: str) -> dict[str, Any]:
    """Return the span that a dot or a row names: both back ends have it."""

    def in_tempo() -> dict[str, Any] | None:
        trace = watched.tempo.trace(trace_id) or {"resourceSpans": []}
        groups = [scope for group in trace["resourceSpans"] for scope in group["scopeSpans"]]
        spans = {base64.b64decode(span["spanId"]).hex(): span for scope in groups for span in scope["spans"]}
        return spans.get(span_id)

    def in_jaeger() -> bool:
        trace = watched.jaeger.trace(trace_id)
        return trace is not None and span_id in {span["spanID"] for span in trace["spans"]}

    eventually(in_jaeger, what=f"span {span_id} in Jaeger")
    return eventually(in_tempo, what=f"span {span_id} in Tempo")


def test_a_dot_is_sent_to_data_sources_that_are_provisioned() -> None:
    file = COMPOSE / "grafana" / "provisioning" / "datasources" / "datasources.yaml"
    sources = {source["uid"]: source for source in yaml.safe_load(file.read_text())["datasources"]}
    sent = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert [(link["name"], link["datasourceUid"]) for link in sent] == [
        ("trace_id", "tempo"),
        ("trace_id", "jaeger"),
    ]
    for name in FILES:
        panels = [panel for panel in read(name)["panels"] if panel["type"] != "row"]
        assert {panel["datasource"]["uid"] for panel in panels} <= set(sources)
        assert all(panel["targets"] for panel in panels if panel["type"] != "alertlist")
