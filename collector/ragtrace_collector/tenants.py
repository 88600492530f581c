"""Whose spans these are: what a token says stands on them, and nothing else."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ragtrace import semconv

__all__ = ["stamp_tenant"]


def stamp_tenant(request: ExportTraceServiceRequest, tenant: str | None) -> bool:
    """Write the tenant on every resource, over any that the sender named; say whether that changed one."""
    return sum(_stamp(resource_spans.resource, tenant) for resource_spans in request.resource_spans) > 0


def _stamp(resource: Resource, tenant: str | None) -> bool:
    claims = [place for place, each in enumerate(resource.attributes) if each.key == semconv.TENANT]
    claimed = [resource.attributes[place].value.string_value for place in claims]
    if claimed == ([] if tenant is None else [tenant]):
        return False
    for place in reversed(claims):
        del resource.attributes[place]
    if tenant is not None:
        resource.attributes.add(key=semconv.TENANT).value.string_value = tenant
    return True
