"""Where traces are: panels that search them in Tempo or in Jaeger, and what leads from a chart to a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from grafana_foundation_sdk.builders import common as parts
from grafana_foundation_sdk.builders import table, tempo, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.runtime import UnknownDataquery
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.tempo import MetricsQueryType, SearchTableType

from ragtrace import semconv
from ragtrace.model import Label, VerdictLabel
from ragtrace_collector.telemetry.scores import DIMENSIONS
from tests.dashboards.frames import properties
from tests.dashboards.series import METRIC

Panels = Sequence[Builder[dashboard.Panel]]

_FAILED: Final = f"{semconv.CARRIER_NAME_PREFIX} {Label.FAIL}"
_LABEL: Final = f"{semconv.LABEL_PREFIX}${METRIC}"


class TraceSource(Protocol):
    """A back end that stores traces."""

    title: str
    uid: str
    one_service: bool
    """It searches in one service at a time."""

    def wrong_answers(self) -> Panels:
        """Return the panels that list answers and claims, with a link to the trace."""
        ...


class _Tempo:
    title, uid, one_service = "Tempo", "tempo", False

    def wrong_answers(self) -> Panels:
        """Search carriers by TraceQL.

        No score is selected: Grafana's tables of spans show a 0 as nothing, and XY charts leave it out.
        """
        failed = _spans(f'name = "{_FAILED}"', f'span.{_LABEL} = "{Label.FAIL}"')
        wrong = _spans(f'event.{semconv.CLAIM_VERDICT} = "{VerdictLabel.CONTRADICTED}"')
        shown = (semconv.BRIEF, semconv.TARGET_MODEL, semconv.TARGET_PROMPT_VERSION, semconv.URL)
        claim = (semconv.CLAIM_ASSERTION, semconv.CLAIM_CHUNK_IDS, semconv.CLAIM_REASON)
        worst = _rows(
            "Worst answers",
            f"Answers that fail ${METRIC}: of the last 100, the lowest scores first, as ragtrace.brief begins"
            " with the first metric's. A click opens the trace.",
            f"{failed} | {_select('span', shown)}",
            sort_by=semconv.BRIEF,
        )
        claims = _rows(
            "Contradicted claims",
            "Claims that a chunk contradicts, with the chunk's id. A click opens the trace.",
            f"{wrong} | {_select('event', claim)} | {_select('span', (semconv.BRIEF, semconv.URL))}",
            sort_by=semconv.CLAIM_CHUNK_IDS,
        )
        by_chunk = timeseries.Panel().title("Contradicted claims by chunk").span(24).height(7)
        by_chunk = by_chunk.description(
            "Which source the wrong claims are about. A carrier's claims without a chunk are not in it."
        ).datasource(_ref(self))
        count = f"{wrong} | count_over_time() by (event.{semconv.CLAIM_CHUNK_IDS})"
        query = _traceql(count).metrics_query_type(MetricsQueryType.RANGE)
        return (worst, claims, by_chunk.with_target(query).min(0))


class _Jaeger:
    title, uid, one_service = "Jaeger", "jaeger", True

    def wrong_answers(self) -> Panels:
        """Search traces by tags: Jaeger compares for equality, in one service."""
        failed = self._found(
            "Worst answers",
            f"Traces with an answer that fails ${METRIC}: the last ones. A click opens the trace.",
            {_LABEL: Label.FAIL},
        )
        wrong = self._found(
            "Contradicted claims",
            "Traces with a claim that a chunk contradicts: the last ones. A click opens the trace.",
            {semconv.CLAIM_VERDICT: VerdictLabel.CONTRADICTED},
        )
        return (failed, wrong)

    def _found(self, title: str, text: str, tags: Mapping[str, str]) -> table.Panel:
        panel = table.Panel().title(title).description(text).span(12).height(9).datasource(_ref(self))
        return panel.with_target(JaegerSearch(tags)).no_value("none found")


class JaegerSearch(Builder[UnknownDataquery]):
    """A search by tags, as Grafana's data source for Jaeger takes it; the SDK has no builder for it."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._tags = tags

    def build(self) -> UnknownDataquery:
        return UnknownDataquery(
            {
                "refId": "A",
                "datasource": {"type": JAEGER.uid, "uid": JAEGER.uid},
                "queryType": "search",
                "service": f"${DIMENSIONS[0].key}",
                "operation": _FAILED,
                "tags": " ".join(f"{name}={value}" for name, value in self._tags.items()),
                "limit": 100,
            }
        )


def _spans(*conditions: str) -> str:
    """Return the TraceQL of carriers that the variables choose.

    An absent attribute compares false with everything. The carrier's name, which is always there, matches
    only where a variable is ``.*``: then carriers without the attribute are found, too.
    """
    asked = (
        _chosen(attribute, key)
        for attribute, key in (
            (f"resource.{semconv.SERVICE_NAME}", "service"),
            (f"span.{semconv.TARGET_MODEL}", "model"),
            (f"span.{semconv.TARGET_PROMPT_VERSION}", "prompt_version"),
            (f"resource.{semconv.TENANT}", "tenant"),
        )
    )
    return f"{{ {' && '.join((*conditions, *asked))} }}"


def _chosen(attribute: str, key: str) -> str:
    return f'({attribute} =~ "${key}" || name =~ "${key}")'


def _select(scope: str, names: Sequence[str]) -> str:
    return f"select({', '.join(f'{scope}.{name}' for name in names)})"


def _traceql(query: str) -> tempo.TempoQuery:
    return (
        tempo.TempoQuery().datasource(_ref(TEMPO)).ref_id("A").query_type("traceql").query(query).filters([])
    )


def _search(query: str, *, limit: int) -> tempo.TempoQuery:
    return _traceql(query).limit(limit).spss(10).table_type(SearchTableType.SPANS)


def _rows(title: str, text: str, query: str, *, sort_by: str) -> table.Panel:
    panel = table.Panel().title(title).description(text).span(24).height(9).datasource(_ref(TEMPO))
    panel = panel.with_target(_search(query, limit=100)).no_value("none found")
    panel = panel.sort_by([parts.TableSortByFieldState().display_name(sort_by).desc(False)])
    for name in ("traceName", "name", "duration", semconv.SERVICE_NAME, semconv.CLAIM_VERDICT):
        panel = panel.override_by_name(name, properties(custom__hidden=True))
    panel = panel.override_by_regexp(f"/^{semconv.LABEL_PREFIX}/", properties(custom__hidden=True))
    opened = {"title": "Open the trace", "url": _explore_url(TEMPO.uid)}
    panel = panel.override_by_name(semconv.BRIEF, properties(links=[opened], custom__minWidth=400))
    page = {"title": "Open the answer's page", "url": "${__value.raw}", "targetBlank": True}
    return panel.override_by_name(semconv.URL, properties(links=[page]))


def _explore_url(uid: str) -> str:
    """Return where Explore shows the trace and the span of a row."""
    query = {"refId": "A", "queryType": "traceql", "query": "${__data.fields.traceIdHidden}"}
    query["datasource"] = {"type": uid, "uid": uid}  # type: ignore[assignment]
    pane: dict[str, Any] = {
        "datasource": uid,
        "queries": [query],
        "range": {"from": "${__from}", "to": "${__to}"},
        "panelsState": {"trace": {"spanId": "${__data.fields.spanID}"}},
    }
    panes = json.dumps({"trace": pane}, separators=(",", ":"))
    return f"/explore?schemaVersion=1&panes={quote(panes, safe='${}._:,[]')}"


def _ref(source: TraceSource) -> dashboard.DataSourceRef:
    return dashboard.DataSourceRef(type_val=source.uid, uid=source.uid)


TEMPO: Final[TraceSource] = _Tempo()
JAEGER: Final[TraceSource] = _Jaeger()
