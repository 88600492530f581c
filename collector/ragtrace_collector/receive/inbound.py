"""An export request on its way in: an immutable value that each step of the intake turns into the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.traces.otlp import TraceSlice, drop_spans_without_ids
from ragtrace_collector.receive.loop_guard import (
    drop_carriers,
    drop_own_scopes,
    drop_traces,
    has_own_scopes,
)
from ragtrace_collector.receive.tenants import needs_stamp, stamp_tenant


@dataclass(frozen=True, slots=True)
class Inbound:
    """A request, and the bytes that say the same.

    Every method returns a value: ``self`` if nothing changes, else one with a changed copy of the request.
    """

    request: ExportTraceServiceRequest
    body: bytes | None
    """The request as protobuf, if no step has changed it; else ``None``."""
    logs: bytes | None = None
    """The log records that these spans stand for: the spans stay in the store."""

    def without_own_scopes(self) -> tuple[Inbound, int]:
        """Drop the spans whose scope is a collector's; return how many there were as well."""
        return self._without(drop_own_scopes) if has_own_scopes(self.request) else (self, 0)

    def without_carriers(self) -> tuple[Inbound, int]:
        """Drop carriers whose scope got lost on the way; return how many there were as well."""
        return self._without(drop_carriers)

    def of_tenant(self, tenant: str | None) -> Inbound:
        """Write the sender's tenant on every resource, instead of any tenant that the spans name."""
        if not needs_stamp(self.request, tenant, body=self.body):
            return self
        changed = self._copy()
        stamp_tenant(changed, tenant)
        return replace(self, request=changed, body=None)

    def without_spans_without_ids(self) -> Inbound:
        """Drop the spans that belong to no trace."""
        changed = self._copy()
        drop_spans_without_ids(changed)
        return replace(self, request=changed, body=None)

    def without(self, slices: Sequence[TraceSlice]) -> Inbound:
        """Drop the spans of these traces."""
        if not slices:
            return self
        changed = self._copy()
        drop_traces(changed, slices)
        return replace(self, request=changed, body=None)

    def to_bytes(self) -> bytes:
        """Return the request as protobuf."""
        return self.request.SerializeToString() if self.body is None else self.body

    def _without(self, drop: Callable[[ExportTraceServiceRequest], int]) -> tuple[Inbound, int]:
        changed = self._copy()
        dropped = drop(changed)
        return (replace(self, request=changed, body=None), dropped) if dropped else (self, 0)

    def _copy(self) -> ExportTraceServiceRequest:
        changed = ExportTraceServiceRequest()
        changed.CopyFrom(self.request)
        return changed
