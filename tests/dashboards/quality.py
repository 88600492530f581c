"""The dashboards of quality: one for traces in Tempo, one for Jaeger, both with metrics in Prometheus."""

from __future__ import annotations

import json
from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from ragtrace import semconv
from ragtrace_collector.telemetry.scores import DIMENSIONS, SCORE, Dimension
from tests.dashboards.frames import PROMETHEUS
from tests.dashboards.panels import rows
from tests.dashboards.series import METRIC, MODEL_CHANGES, gauge, label
from tests.dashboards.traces import JAEGER, TEMPO, TraceSource

SOURCES: Final = (TEMPO, JAEGER)
ALL: Final = ".*"
"""What a variable is where all values are chosen: it also matches series without the label."""
_SCORES: Final = f"{label(SCORE.name)}_count"
_COLORS: Final = {"Judge drift": "orange", "Another model as judge": "purple"}


def file_name(source: TraceSource) -> str:
    return f"quality-{source.uid}.json"


def json_of(source: TraceSource) -> str:
    return json.dumps(_dashboard(source), cls=JSONEncoder, indent=1, ensure_ascii=False) + "\n"


def _dashboard(source: TraceSource) -> dashboard.Dashboard:
    found = (
        build.Dashboard(f"ragtrace: quality ({source.title} + Prometheus)")
        .uid(f"ragtrace-quality-{source.uid}")
        .description("How faithful answers are, from the sample to the trend and the wrong claim.")
        .tags(["ragtrace"])
        .time("now-24h", "now")
        .refresh("1m")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(_to_the_collector())
    )
    for variable in _variables(source):
        found = found.with_variable(variable)
    for annotation in _annotations():
        found = found.annotation(annotation)
    for title, panels in rows(source):
        found = found.with_row(build.Row(title))
        for panel in panels:
            found = found.with_panel(panel)
    return _numbered(found.build())


def _numbered(found: dashboard.Dashboard) -> dashboard.Dashboard:
    """Give each panel an id, as links to one need it."""
    for number, panel in enumerate(found.panels or (), start=1):
        panel.id_val = number
    return found


def _to_the_collector() -> build.DashboardLink:
    link = build.DashboardLink("The collector").type(dashboard.DashboardLinkType.LINK)
    return link.url("/d/ragtrace-collector").keep_time(True).icon("dashboard")


def _variables(source: TraceSource) -> list[build.QueryVariable | build.IntervalVariable]:
    metric = _values(METRIC, semconv.EVALUATION_NAME).current(_option("faithfulness"))
    traffic = [_of_traffic(dimension, source) for dimension in DIMENSIONS]
    window = build.IntervalVariable("window").label("Window of a point").current(_option("1h"))
    return [metric, *traffic, window.values("10m,30m,1h,6h,1d,7d")]


def _of_traffic(dimension: Dimension, source: TraceSource) -> build.QueryVariable:
    variable = _values(dimension.key, dimension.attribute)
    if source.one_service and dimension.attribute == semconv.SERVICE_NAME:
        return variable.description(f"{source.title} searches in one service at a time.")
    variable = variable.multi(True).include_all(True).all_value(ALL)
    return variable.current(dashboard.VariableOption(selected=True, text="All", value="$__all"))


def _values(name: str, attribute: str) -> build.QueryVariable:
    variable = build.QueryVariable(name).label(name.replace("_", " ").capitalize()).datasource(PROMETHEUS)
    asked: dict[str, object] = {"query": f"label_values({_SCORES}, {label(attribute)})", "refId": name}
    variable = variable.query(asked).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    return variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)


def _option(value: str) -> dashboard.VariableOption:
    return dashboard.VariableOption(selected=True, text=value, value=value)


def _annotations() -> list[build.AnnotationQuery]:
    asked = {
        "Judge drift": f"max({gauge('ragtrace.drift.detected')}) > 0",
        "Another model as judge": f"{MODEL_CHANGES} > 0",
    }
    return [
        build.AnnotationQuery()
        .name(name)
        .datasource(PROMETHEUS)
        .enable(True)
        .icon_color(_COLORS[name])
        .expr(expr)
        for name, expr in asked.items()
    ]
