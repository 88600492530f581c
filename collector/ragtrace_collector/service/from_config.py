"""What the stages follow, out of the configuration."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from ragtrace.backends import open_sink
from ragtrace.ports import SpanSink
from ragtrace.traces.attach import AttachOptions
from ragtrace_collector.assemble.open_traces import AssemblePolicy
from ragtrace_collector.config import CollectorConfig, ExportConfig, FollowUpConfig, SampleConfig
from ragtrace_collector.evaluate.retry_policy import RetryPolicy
from ragtrace_collector.evaluate.stage import EvaluateStage, PartialEvaluations
from ragtrace_collector.judge.live import LiveConfig
from ragtrace_collector.sample.stage import SampleStage
from ragtrace_collector.sampling import FollowUpPolicy, FollowUps, Limits, Sampler, TenantFloor


def forward_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return the endpoints that get the application's own spans."""
    return tuple(export.endpoint for export in config.export if export.forward)


def release_to(config: CollectorConfig) -> tuple[str, ...]:
    """Return who gets held spans: all, where they were held before and none is to get originals now."""
    return forward_to(config) or tuple(export.endpoint for export in config.export)


def following(sample_stage: SampleStage, config: CollectorConfig, sampler: Sampler) -> SampleStage:
    """Return the settler under another configuration."""
    return replace(
        sample_stage,
        reader=replace(sample_stage.reader, rules=config.extract.opened()),
        quarantine=replace(
            sample_stage.quarantine,
            max_crashes=config.evaluate.max_crashes,
            most_cpu_ns=nanoseconds(config.assemble.max_cpu),
        ),
        sampler=sampler,
        max_revisions=config.assemble.max_revisions,
    )


def shared_evaluator_of(evaluator: EvaluateStage, live: LiveConfig) -> EvaluateStage:
    """Return the evaluator under what is in force now."""
    config = live.config
    return replace(
        evaluator,
        reader=replace(evaluator.reader, rules=config.extract.opened()),
        evaluator=live.shared_evaluator.evaluator,
        partial=PartialEvaluations(),  # what another evaluator found is not this one's finding
        watch=replace(evaluator.watch, sampler=live.sampler),
        attach=attach_options_of(config),
        retry_policy=retry_policy_of(config),
        attempt_s=config.evaluate.job_timeout.total_seconds(),
    )


def assemble_policy_of(config: CollectorConfig) -> AssemblePolicy:
    """Return how long spans are waited for."""
    return AssemblePolicy(
        quiet_ns=nanoseconds(config.assemble.quiet_period),
        deadline_ns=nanoseconds(config.assemble.deadline),
        max_open_traces=config.assemble.max_open_traces,
        max_spans_per_trace=config.assemble.max_spans_per_trace,
    )


def sampler_of(config: SampleConfig) -> Sampler:
    """Build the sampler that a configuration describes, without what it saw before."""
    floor, limit, near = config.tenant_floor, config.limit, config.neighbours
    return Sampler(
        plan=config.plan(),
        fairness=TenantFloor(answers=floor.answers, window_ns=nanoseconds(floor.window)) if floor else None,
        limits=Limits(answers=limit.answers, per_tenant=limit.per_tenant) if limit else None,
        follow_ups=FollowUps(_follow_up_policy(near)) if near else None,
    )


def _follow_up_policy(config: FollowUpConfig) -> FollowUpPolicy:
    return FollowUpPolicy(
        below=config.below,
        metric=config.metric,
        relations=config.same,
        rate=config.rate,
        most=config.most,
        window_ns=nanoseconds(config.window),
    )


def retry_policy_of(config: CollectorConfig) -> RetryPolicy:
    """Return when a failed answer is tried again."""
    return RetryPolicy(
        retry_delays_ns=tuple(nanoseconds(delay) for delay in config.evaluate.retry_delays),
        wait_ns=nanoseconds(config.evaluate.probe_delays[0]),
        deadline_ns=nanoseconds(config.evaluate.deadline),
        max_crashes=config.evaluate.max_crashes,
    )


def attach_options_of(config: CollectorConfig) -> AttachOptions:
    """Return what carriers show."""
    return AttachOptions(
        carrier_time=config.attach.carrier_time,
        tempo_slack_s=config.attach.tempo_slack.total_seconds(),
        max_claims=config.attach.max_claims,
        content=config.attach.content,
        mark_failed_as_error=config.attach.mark_failed_as_error,
    )


def nanoseconds(duration: timedelta) -> int:
    """Return a duration as clocks count."""
    return int(duration.total_seconds() * 1e9)


def open_export(export: ExportConfig) -> SpanSink:
    """Open one back end; nothing is connected yet.

    Raises:
        ConfigError: its address or certificates cannot be used.
    """
    return open_sink(
        export.endpoint,
        headers={name: value.get_secret_value() for name, value in export.headers.items()},
        tls=export.tls.opened() if export.tls else None,
        timeout_s=export.timeout.total_seconds(),
    )
