"""Panels of Grafana's kinds, drawn alike: what they ask is told by their callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from grafana_foundation_sdk.builders import common as parts
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS: Final = dashboard.DataSourceRef(type_val="prometheus", uid="prometheus")
NOTHING: Final = "nothing judged"
"""What a panel says in place of a number of nothing."""
_WIDTH: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One PromQL query of a panel."""

    expr: str
    name: str = ""
    """Of its series: Grafana's legend format. Panels refer to series by it."""
    exemplars: bool = False

    def ranged(
        self, ref: str, format_: PromQueryFormat = PromQueryFormat.TIME_SERIES
    ) -> prometheus.Dataquery:
        return self._query(ref, format_).range().exemplar(self.exemplars)

    def instant(
        self, ref: str, format_: PromQueryFormat = PromQueryFormat.TIME_SERIES
    ) -> prometheus.Dataquery:
        return self._query(ref, format_).instant()

    def _query(self, ref: str, format_: PromQueryFormat) -> prometheus.Dataquery:
        found = prometheus.Dataquery().datasource(PROMETHEUS).ref_id(ref).expr(self.expr)
        return found.legend_format(self.name or "__auto").format(format_)


def properties(**values: object) -> list[dashboard.DynamicConfigValue]:
    """Return overrides of a field; in a name, ``__`` stands for a point."""
    return [
        dashboard.DynamicConfigValue(id_val=name.replace("__", "."), value=value)
        for name, value in values.items()
    ]


def _refs(asks: Sequence[Ask]) -> Sequence[tuple[str, Ask]]:
    return [(chr(ord("A") + place), ask) for place, ask in enumerate(asks)]


def number_panel(
    title: str, text: str, asks: Sequence[Ask], *, unit: str = "short", width: int = 4
) -> stat.Panel:
    """Return big numbers: each query's of now."""
    panel = stat.Panel().title(title).description(text).unit(unit).span(width).height(4)
    panel = panel.datasource(PROMETHEUS).decimals(1 if unit == "percentunit" else 0)
    for ref, ask in _refs(asks):
        panel = panel.with_target(ask.instant(ref))
    panel = panel.reduce_options(parts.ReduceDataOptions().calcs(["lastNotNull"])).no_value(NOTHING)
    panel = panel.color_mode(common.BigValueColorMode.NONE).graph_mode(common.BigValueGraphMode.NONE)
    return panel.text_mode(
        common.BigValueTextMode.VALUE_AND_NAME if len(asks) > 1 else common.BigValueTextMode.VALUE
    )


def lines_panel(
    title: str, text: str, asks: Sequence[Ask], *, unit: str = "short", width: int = 12, stacked: bool = False
) -> timeseries.Panel:
    panel = timeseries.Panel().title(title).description(text).unit(unit).span(width).height(8)
    panel = panel.datasource(PROMETHEUS).no_value(NOTHING).line_width(2).min(0)
    panel = panel.show_points(common.VisibilityMode.AUTO)
    if unit == "percentunit":
        panel = panel.max(1)
    if stacked:
        mode = parts.StackingConfig().mode(common.StackingMode.NORMAL)
        panel = panel.stacking(mode).fill_opacity(40).line_width(1)
    for ref, ask in _refs(asks):
        panel = panel.with_target(ask.ranged(ref))
    return panel


def banded(panel: timeseries.Panel, *, low: str, high: str) -> timeseries.Panel:
    """Fill between two series of the panel, and draw neither."""
    edge: Mapping[str, Any] = {"custom__lineWidth": 0, "custom__showPoints": "never"}
    panel = panel.override_by_name(low, properties(**edge))
    return panel.override_by_name(high, properties(**edge, custom__fillBelowTo=low, custom__fillOpacity=20))


def heat_panel(title: str, text: str, ask: Ask) -> heatmap.Panel:
    """Return buckets over time: the darker, the more."""
    panel = heatmap.Panel().title(title).description(text).span(12).height(8).datasource(PROMETHEUS)
    colors = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
    ask = replace(ask, name="{{le}}")
    return (
        panel.with_target(ask.ranged("A", PromQueryFormat.HEATMAP))
        .calculate(False)
        .color(colors)
        .exemplars_color("rgba(255,140,0,0.9)")
    )


def merged(panel: table.Panel, names: Mapping[str, str]) -> table.Panel:
    """Join the queries' rows by their labels, and name the columns."""
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    hidden = {"Time": True}
    options = {"excludeByName": hidden, "renameByName": dict(names)}
    return panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=options))


def joined_table(title: str, text: str, asks: Sequence[Ask], *, width: int = 12) -> table.Panel:
    """Return a table with a column for each query, named like it; rows with the same labels are one."""
    panel = table.Panel().title(title).description(text).span(width).height(7).datasource(PROMETHEUS)
    for ref, ask in _refs(asks):
        panel = panel.with_target(ask.instant(ref, PromQueryFormat.TABLE))
    panel = merged(panel, {f"Value #{ref}": ask.name for ref, ask in _refs(asks)}).no_value(NOTHING)
    for ask in asks:
        unit = "short" if ask.name.startswith(("answers", "scores", "results")) else "percentunit"
        panel = panel.override_by_name(ask.name, properties(unit=unit, decimals=0 if unit == "short" else 1))
    return panel


def states_panel(
    title: str, text: str, asks: Sequence[Ask], states: Mapping[str, tuple[str, str]]
) -> statetimeline.Panel:
    """Return states over time: words and colors by value."""
    results = {
        value: dashboard.ValueMappingResult(text=word, color=color) for value, (word, color) in states.items()
    }
    panel = statetimeline.Panel().title(title).description(text).span(12).height(6).datasource(PROMETHEUS)
    panel = panel.mappings([dashboard.ValueMap(options=results)]).no_value("nothing noted yet")
    for ref, ask in _refs(asks):
        panel = panel.with_target(ask.ranged(ref))
    return panel


def alerts_panel(title: str, text: str) -> build.Panel:
    """Return the list of alerts that fire. The SDK has no builder for its options."""
    options = {
        "viewMode": "list",
        "maxItems": 20,
        "sortOrder": 3,
        "alertName": "",
        "datasource": PROMETHEUS.uid,
        "stateFilter": {"firing": True, "pending": True, "noData": False, "normal": False, "error": True},
    }
    panel = build.Panel().type("alertlist").title(title).description(text).options(options)
    return panel.span(12).height(6).datasource(PROMETHEUS)
