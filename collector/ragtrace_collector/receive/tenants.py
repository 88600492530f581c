"""Tenants on spans: only the tenant of the sender's token is written there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from ragtrace import semconv

_NAME: Final = semconv.TENANT.encode()
_Attributes: TypeAlias = "RepeatedCompositeFieldContainer[KeyValue]"


def stamp_tenant(request: ExportTraceServiceRequest, tenant: str | None, *, body: bytes | None) -> bool:
    """Write the tenant on every resource, and remove those that the sender wrote; say whether any changed.

    ``body`` is the request in protobuf, if it came so. If it lacks the attribute's name, no span is read.
    """
    changed = False
    for resource_spans in request.resource_spans:
        if _claims(resource_spans.resource.attributes) != ([] if tenant is None else [tenant]):
            _disown(resource_spans.resource.attributes)
            if tenant is not None:
                resource_spans.resource.attributes.add(key=semconv.TENANT).value.string_value = tenant
            changed = True
    if body is not None and _NAME not in body:
        return changed
    for attributes in _of_spans(request):
        if _claims(attributes):
            _disown(attributes)
            changed = True
    return changed


def _of_spans(request: ExportTraceServiceRequest) -> Iterator[_Attributes]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield span.attributes


def _claims(attributes: _Attributes) -> list[str]:
    return [attribute.value.string_value for attribute in attributes if attribute.key == semconv.TENANT]


def _disown(attributes: _Attributes) -> None:
    for place in reversed(range(len(attributes))):
        if attributes[place].key == semconv.TENANT:
            del attributes[place]
