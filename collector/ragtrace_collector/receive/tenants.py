"""The tenant of spans: what the token says is written on them, and nothing else counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from ragtrace import semconv

_NAME: Final = semconv.TENANT.encode()
_Attributes: TypeAlias = "RepeatedCompositeFieldContainer[KeyValue]"


def needs_stamp(request: ExportTraceServiceRequest, tenant: str | None, *, body: bytes | None) -> bool:
    """Return whether `stamp_tenant` would change the request.

    ``body`` is the request as protobuf, if there is one. If it does not hold the name, no span does.
    """
    wanted = [] if tenant is None else [tenant]
    if any(_claims(part.resource.attributes) != wanted for part in request.resource_spans):
        return True
    may_be_on_spans = body is None or _NAME in body
    return may_be_on_spans and any(map(_claims, _of_spans(request)))


def stamp_tenant(request: ExportTraceServiceRequest | ExportLogsServiceRequest, tenant: str | None) -> None:
    """Write the tenant on every resource, instead of any tenant that the sender named."""
    if isinstance(request, ExportLogsServiceRequest):
        resources, members = [each.resource for each in request.resource_logs], _of_records(request)
    else:
        resources, members = [each.resource for each in request.resource_spans], _of_spans(request)
    for resource in resources:
        _disown(resource.attributes)
        if tenant is not None:
            resource.attributes.add(key=semconv.TENANT).value.string_value = tenant
    for attributes in members:
        _disown(attributes)


def _of_spans(request: ExportTraceServiceRequest) -> Iterator[_Attributes]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield span.attributes


def _of_records(request: ExportLogsServiceRequest) -> Iterator[_Attributes]:
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield record.attributes


def _claims(attributes: _Attributes) -> list[str]:
    return [attribute.value.string_value for attribute in attributes if attribute.key == semconv.TENANT]


def _disown(attributes: _Attributes) -> None:
    for place in reversed(range(len(attributes))):
        if attributes[place].key == semconv.TENANT:
            del attributes[place]
