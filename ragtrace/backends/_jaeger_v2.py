"""Convert Jaeger's older JSON (``/api/traces``), which its page uses, to OTLP spans.

Times are microseconds. Arrays are JSON text, and kinds, status and scope are tags, by OpenTelemetry's
rules for exporting to Jaeger (https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/jaeger/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ragtrace.model import AttributeValue
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, StatusCode

_KINDS: Final = {kind.name.lower(): kind for kind in SpanKind}
_CODES: Final = {code.name: code for code in StatusCode}
_SCOPE: Final = (("otel.scope.name", "otel.library.name"), ("otel.scope.version", "otel.library.version"))
_OWN: Final = frozenset(
    {"span.kind", "otel.status_code", "otel.status_description", "w3c.tracestate", "internal.span.format"}
    | {name for names in _SCOPE for name in names}
)

Json = Mapping[str, Any]


def trace_ids_of_v2(body: Json) -> tuple[str, ...]:
    """Return the ids of all traces in a response, without reading their spans.

    Raises:
        KeyError, TypeError, AttributeError: the response has another form.
    """
    return tuple(trace["traceID"].zfill(32) for trace in body["data"])


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
