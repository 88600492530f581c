"""Jaeger's query API v3, of OTLP JSON; and the JSON of v2, which people download from Jaeger's page.

In v2, times are microseconds. Arrays are JSON text, and kinds, status and scope are tags, by OpenTelemetry's
rules for exporting to Jaeger (https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/jaeger/).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from ragtrace.backends.http_api import HttpReader
from ragtrace.errors import InputError, ReadError, ReadOversized
from ragtrace.model import AttributeValue
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, StatusCode, Trace

_KINDS: Final = {kind.name.lower(): kind for kind in SpanKind}
_CODES: Final = {code.name: code for code in StatusCode}
_SCOPE: Final = (("otel.scope.name", "otel.library.name"), ("otel.scope.version", "otel.library.version"))
_OWN: Final = frozenset(
    {"span.kind", "otel.status_code", "otel.status_description", "w3c.tracestate", "internal.span.format"}
    | {name for names in _SCOPE for name in names}
)

Json = Mapping[str, Any]


def spans_of_v2(body: Json) -> tuple[Span, ...]:
    """Return the spans of all traces in a response.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the response has another form.
    """
    return tuple(
        _span(span, _resource(trace["processes"][span["processID"]]))
        for trace in body["data"]
        for span in trace["spans"]
    )


def _span(span: Json, resource: Resource) -> Span:
    tags = _tags(span.get("tags"))
    start_ns = int(span["startTime"]) * 1_000
    parent, links = _references(span)
    return Span(
        trace_id=span["traceID"].zfill(32),
        span_id=span["spanID"].zfill(16),
        parent_span_id=parent,
        name=span["operationName"],
        kind=_KINDS.get(str(tags.get("span.kind")), SpanKind.UNSPECIFIED),
        start_ns=start_ns,
        end_ns=start_ns + int(span["duration"]) * 1_000,
        attributes={key: value for key, value in tags.items() if key not in _OWN},
        events=tuple(_event(log) for log in span.get("logs") or ()),
        links=links,
        status_code=_status(tags),
        status_message=str(tags.get("otel.status_description", "")),
        trace_state=str(tags.get("w3c.tracestate", "")),
        resource=resource,
        scope=Scope(name=_first(tags, _SCOPE[0]), version=_first(tags, _SCOPE[1])),
    )


def _references(span: Json) -> tuple[str | None, tuple[SpanLink, ...]]:
    """Split references into the parent, which is the first CHILD_OF within the trace, and links."""
    parent, links = None, []
    for each in span.get("references") or ():
        is_within = each["traceID"] == span["traceID"]
        if parent is None and is_within and each["refType"] == "CHILD_OF":
            parent = each["spanID"].zfill(16)
        else:
            links.append(SpanLink(trace_id=each["traceID"].zfill(32), span_id=each["spanID"].zfill(16)))
    return parent, tuple(links)


def _resource(process: Json) -> Resource:
    return Resource(attributes={"service.name": process["serviceName"], **_tags(process.get("tags"))})


def _event(log: Json) -> SpanEvent:
    fields = _tags(log.get("fields"))
    name = str(fields.pop("event", ""))
    return SpanEvent(name=name, time_ns=int(log["timestamp"]) * 1_000, attributes=fields)


def _tags(tags: Iterable[Json] | None) -> dict[str, AttributeValue]:
    return {tag["key"]: _value(tag) for tag in tags or ()}


def _value(tag: Json) -> AttributeValue:
    value = tag.get("value")
    if tag.get("type") == "int64":
        return int(str(value))
    if tag.get("type") == "float64":
        return float(str(value))
    return value if isinstance(value, str | bool | int | float) else str(value)


def _status(tags: Mapping[str, AttributeValue]) -> StatusCode:
    if "otel.status_code" in tags:
        return _CODES.get(str(tags["otel.status_code"]), StatusCode.UNSET)
    return StatusCode.ERROR if tags.get("error") in (True, "true") else StatusCode.UNSET


def _first(tags: Mapping[str, AttributeValue], names: Iterable[str]) -> str:
    return next((str(tags[name]) for name in names if name in tags), "")


_TRACE_ID_DIGITS: Final = 32
_MICROSECOND_NS: Final = 1_000
_TRACES: Final = "/api/v3/traces"


class JaegerReader(HttpReader):
    """Read traces by id and by search from Jaeger's query service (port 16686)."""

    back_end = "Jaeger"
    shortest_ns = _MICROSECOND_NS
    most_traces = 100
    """It returns whole traces, so this is some megabytes at most."""

    def __init__(self, base_url: str, **options: Any) -> None:
        super().__init__(base_url, **options)
        self._is_jaeger = False

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if Jaeger has none."""
        trace_id = normalized_trace_id(trace_id)
        if not self._is_jaeger:
            await self.services()
        # else Jaeger adjusts the times of spans for clock skew
        body = await self._api.text(f"{_TRACES}/{trace_id}", {"raw_traces": "true"})
        return self._traces(body).get(trace_id)

    async def search(self, query: TraceQuery) -> Page:
        """Search once, for whole traces; without a service, search all services.

        An oversized page counts as cut, so that its window is split.
        """
        if query.traceql is not None:
            raise ReadError("Jaeger has no TraceQL: give a service, an operation or tags")
        if query.service is None:
            named = [replace(query, service=service) for service in await self.services()]
            return Page.joined([await self.search(one) for one in named])
        try:
            return await self._page(query)
        except ReadOversized:
            if query.until_ns - query.since_ns <= self.shortest_ns:
                raise
            return Page(found={}, limit=self._traces_at_once, is_cut=True)

    async def _page(self, query: TraceQuery) -> Page:
        if query.tags:
            return await self._search_by_tags(query)
        asked: dict[str, str | int | None] = {
            "query.start_time_min": _rfc3339(query.since_ns),
            "query.start_time_max": _rfc3339(query.until_ns - 1),
            "query.num_traces": self._traces_at_once,
            "query.raw_traces": "true",
            "query.service_name": query.service,
            "query.operation_name": query.operation,
        }
        return Page.of(
            self._traces(await self._api.text(_TRACES, _set_of(asked))), limit=self._traces_at_once
        )

    def _traces(self, body: str | None) -> dict[str, Trace | None]:
        with self._api.reading():
            spans = [span for part in _parts(body or "") for span in decode_json(part)]
        by_trace = sorted(spans, key=lambda span: span.trace_id)
        grouped = groupby(by_trace, key=lambda span: span.trace_id)
        return {trace_id: Trace.of(trace_id, members) for trace_id, members in grouped}

    async def _search_by_tags(self, query: TraceQuery) -> Page:
        """Search with v2, because v3 over HTTP has no parameter for tags. The traces are read with v3, which
        keeps the types of values."""
        asked: dict[str, str | int | None] = {
            "start": query.since_ns // _MICROSECOND_NS,
            "end": (query.until_ns - 1) // _MICROSECOND_NS,
            "limit": self._traces_at_once,
            "service": query.service,
            "operation": query.operation,
            "tags": json.dumps(dict(query.tags)),
        }
        found = await self._api.document("/api/traces", _set_of(asked)) or {}
        with self._api.reading():
            ids = [trace["traceID"].zfill(32) for trace in found.get("data") or ()]
        return Page.of(dict.fromkeys(ids), limit=self._traces_at_once)

    async def services(self) -> tuple[str, ...]:
        """Return the names of the services that sent spans."""
        found = await self._api.document("/api/v3/services")
        if found is None or found.keys() - {"services"}:  # without any service, it is empty
            raise ReadError(
                f"{self._api.where} is not a Jaeger with API v3: is this its query API (port 16686)?"
            )
        self._is_jaeger = True
        with self._api.reading():
            return tuple(map(str, found.get("services") or ()))


def _set_of(asked: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {key: value for key, value in asked.items() if value is not None}


def normalized_trace_id(trace_id: str) -> str:
    """Return the id in 32 digits: Jaeger's page and Tempo omit leading zeros.

    Raises:
        InputError: it is not hex.
    """
    digits = trace_id.strip().lower()
    if not digits or len(digits) > _TRACE_ID_DIGITS or set(digits) - set("0123456789abcdef"):
        raise InputError(f"{trace_id!r} is not a trace id: give up to {_TRACE_ID_DIGITS} hex digits")
    return digits.zfill(_TRACE_ID_DIGITS)


def _parts(body: str) -> Iterator[str]:
    """Split a body into its JSON objects (large traces are streamed), without the wrapper."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(body):
        tree, end = decoder.raw_decode(body, position)
        result = tree.get("result", tree) if isinstance(tree, dict) else tree
        yield json.dumps(result)
        position = end + len(body[end:]) - len(body[end:].lstrip())


def _rfc3339(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
