"""Grafana Tempo's HTTP API: search by TraceQL, and traces by id.

Tempo truncates strings to 2,048 bytes by default, without a mark; the extractor detects truncated JSON.
"""

from __future__ import annotations

import json
from typing import Final

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.backends.http_api import HttpReader
from ragtrace.backends.jaeger import normalized_trace_id
from ragtrace.errors import ReadError
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.otlp import spans_in
from ragtrace.traces.trace import Trace

_SECOND_NS: Final = 10**9


class TempoReader(HttpReader):
    """Read traces by id and by search from Tempo's query API (port 3200)."""

    back_end = "Tempo"
    most_traces = 500
    shortest_ns = _SECOND_NS
    longest_ns = 24 * 3_600 * _SECOND_NS
    """Tempo's default limit is 168 h, but it already splits a one-day search over its queriers."""

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if Tempo has none."""
        trace_id = normalized_trace_id(trace_id)
        tree = await self._api.document(f"/api/v2/traces/{trace_id}", {})
        if tree is None or not tree.get("trace"):
            return None
        with self._api.reading():
            message = json_format.ParseDict(
                tree["trace"], ExportTraceServiceRequest(), ignore_unknown_fields=True
            )
            members = [span for span in spans_in(message) if span.trace_id == trace_id]
        return Trace.of(trace_id, members) if members else None

    async def search(self, query: TraceQuery) -> Page:
        """Search once, for trace ids. Times are rounded to whole seconds."""
        params: dict[str, str | int] = {
            "q": traceql_of(query),
            "start": query.since_ns // _SECOND_NS,
            "end": -(-query.until_ns // _SECOND_NS),
            "limit": self._traces_at_once,
            "spss": 1,
        }
        tree = await self._api.document("/api/search", params)
        if tree is None:
            raise ReadError(f"{self._api.where} has no search API: is this Tempo's query API (port 3200)?")
        with self._api.reading():
            ids = [normalized_trace_id(each["traceID"]) for each in tree.get("traces") or ()]
        return Page.of(dict.fromkeys(ids), limit=self._traces_at_once)

    async def services(self) -> tuple[str, ...]:
        """Return the names of the services that sent spans recently."""
        tree = await self._api.document("/api/search/tag/service.name/values", {}) or {}
        names = tree.get("tagValues")
        return tuple(str(name) for name in names) if isinstance(names, list) else ()


def traceql_of(query: TraceQuery) -> str:
    """Return a query in TraceQL: a span that matches all set fields, or the user's own TraceQL."""
    if query.traceql is not None:
        return query.traceql
    conditions = {"resource.service.name": query.service, "name": query.operation}
    conditions |= {f".{_name(key)}": value for key, value in query.tags.items()}
    stated = [f"{key} = {json.dumps(value)}" for key, value in conditions.items() if value is not None]
    return f"{{ {' && '.join(stated)} }}"


def _name(key: str) -> str:
    """Quote an attribute's name if TraceQL would misread it."""
    plain = key.replace(".", "").replace("_", "").replace("-", "")
    return key if plain.isalnum() else json.dumps(key)
