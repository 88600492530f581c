"""Reads from the configuration what the stages need."""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.backends import open_carrier_sink, open_logs_sink, open_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.ports import SpanSink
from ragtrace_collector.assemble import AssemblePolicy
from ragtrace_collector.config import CollectorConfig, ExportConfig, FollowUpConfig, SampleConfig
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.sampling import FollowUpPolicy, FollowUps, Limits, Sampler, TenantFloor


def forward_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return the endpoints that get the application's own spans."""
    return tuple(export.endpoint for export in config.export if export.forward and export.accepts_spans)


def forward_logs_to(config: CollectorConfig) -> Mapping[str, ExportConfig]:
    """Return the exports that get the application's own log records, by their name in the outbox.

    What waits there is another message than the carriers that wait for the same address.
    """
    return {
        f"forward:{export.endpoint}": export
        for export in config.export
        if export.forward and export.accepts_logs
    }


def release_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return the endpoints that get held spans: all that can, if no endpoint gets originals now."""
    return forward_to(config) or tuple(export.endpoint for export in config.export if export.accepts_spans)


def assemble_policy_of(config: CollectorConfig) -> AssemblePolicy:
    """Return how long a trace waits for its spans."""
    return AssemblePolicy(
        quiet_ns=nanoseconds(config.assemble.quiet_period),
        deadline_ns=nanoseconds(config.assemble.deadline),
        max_open_traces=config.assemble.max_open_traces,
        max_spans_per_trace=config.assemble.max_spans_per_trace,
    )


def sampler_of(config: SampleConfig) -> Sampler:
    """Build the sampler; it has seen nothing yet."""
    floor, limit, near = config.tenant_floor, config.limit, config.neighbours
    return Sampler(
        plan=config.plan(),
        fairness=TenantFloor(answers=floor) if floor else None,
        limits=Limits(answers=limit.answers, per_tenant=limit.per_tenant) if limit else None,
        follow_ups=FollowUps(_follow_up_policy(near)) if near else None,
    )


def _follow_up_policy(config: FollowUpConfig) -> FollowUpPolicy:
    return FollowUpPolicy(
        below=config.below,
        metric=config.metric,
        relations=config.same,
        most=config.most,
    )


def open_export(export: ExportConfig) -> SpanSink:
    """Open one back end, without connecting to it yet.

    Raises:
        ConfigError: its address or certificates cannot be used.
    """
    access = _access(export)
    if export.accepts_spans:
        return open_sink(export.endpoint, headers=access.headers, tls=access.tls, timeout_s=access.timeout_s)
    return open_carrier_sink(export.endpoint, access=access)


def open_logs_export(export: ExportConfig) -> SpanSink:
    """Do the same for log records as they come."""
    return open_logs_sink(export.endpoint, access=_access(export))


def _access(export: ExportConfig) -> ConnectionSettings:
    return ConnectionSettings(
        headers={name: value.get_secret_value() for name, value in export.headers.items()},
        tls=export.tls.opened() if export.tls else None,
        timeout_s=10,
    )
