"""Scores recorded verdicts again: the same steps and checks, with a replaying judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from ragtrace.model import JudgeIdentity, MetricFailure, MetricOutcome, Usage
from ragtrace.pipeline.carriers import attach
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.pipeline.spec import MetricSpec
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace.traces.attach import AttachOptions, Sample
from ragtrace.traces.trace import Span
from ragtrace.transcripts._judges import replayed
from ragtrace.transcripts.file import TranscriptRecord, Transcripts

_NOT_KNOWN = "not_in_transcript"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredRecord:
    """A record with rescored verdicts."""

    before: TranscriptRecord
    after: TranscriptRecord

    @property
    def is_whole(self) -> bool:
        """Whether the transcript had every reply that the metrics needed."""
        return not any(failure.error_type == _NOT_KNOWN for failure in self.after.evaluation.failures)

    @property
    def asks_anew(self) -> bool:
        """Whether a metric needs a new request; recorded failures do not count, since they fail again."""
        failed = {(failure.metric, failure.profile) for failure in self.before.evaluation.failures}
        return any(
            failure.error_type == _NOT_KNOWN and (failure.metric, failure.profile) not in failed
            for failure in self.after.evaluation.failures
        )

    def carrier(self, options: AttachOptions, *, now_ns: int) -> Span | None:
        """Build the carrier of the new verdicts. It supersedes the old one if both have the same metrics.

        It has no cost: the old one has it. ``None`` if the new verdicts get no carrier.

        Raises:
            InputError: the record does not come from a trace.
        """
        make = partial(
            attach,
            record=self.after.record,
            sample=self.after.sample or Sample(rule="ratio", rate=1.0, probability=1.0),
            options=options,
            now_ns=now_ns,
            mode="backfill",
        )
        was = make(self.before.evaluation)
        return make(unpaid(self.after).evaluation, earlier=(was,) if was else ())


async def rescore(
    kept: Iterable[TranscriptRecord],
    transcripts: Transcripts,
    *,
    metrics: Sequence[Metric] | None = None,
    embedder: Embedder | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[RescoredRecord]:
    """Evaluate records again from recorded replies; no judge is asked.

    ``metrics`` defaults to those that ran, with their thresholds. If a reply is missing, the metric returns a
    ``MetricFailure`` of the type ``not_in_transcript``.
    """

    @cache
    def voice(identity: JudgeIdentity, session: str) -> Judge:
        return replayed(identity, transcripts, session=session)

    for record in kept:
        ran = record.metrics if metrics is None else ()
        evaluator = Evaluator(
            metrics=metrics_of(record) if metrics is None else metrics,
            judge=voice(record.evaluation.judge, record.session),
            second_judge=voice(record.second_judge, record.session) if record.second_judge else None,
            limits=record.limits,
            embedder=embedder,
        )
        evaluation = await evaluator.evaluate(record.record, clock=clock)
        yield RescoredRecord(before=record, after=replace(record, evaluation=evaluation, metrics=ran))


def metrics_of(record: TranscriptRecord) -> list[Metric]:
    """Make the metrics of a record's evaluation, with their settings, thresholds and pass rules.

    Raises:
        ConfigError: a metric came from code at an address that an earlier version did not keep.
    """
    specs = record.metrics or tuple(_spec_of(outcome) for outcome in record.evaluation.outcomes)
    return [
        _passing_as(outcome, spec).open()
        for outcome, spec in zip(record.evaluation.outcomes, specs, strict=True)
    ]


def _spec_of(outcome: MetricOutcome) -> MetricSpec:
    return MetricSpec(name=outcome.metric, profile=outcome.profile)


def _passing_as(outcome: MetricOutcome, spec: MetricSpec) -> MetricSpec:
    if isinstance(outcome, MetricFailure):
        return spec
    return replace(spec, threshold=outcome.threshold, pass_when=outcome.pass_when)


def unpaid(kept: TranscriptRecord) -> TranscriptRecord:
    """Remove the cost of an evaluation without calls."""
    evaluation = kept.evaluation
    outcomes = tuple(replace(outcome, usage=Usage()) for outcome in evaluation.outcomes)
    return replace(kept, evaluation=replace(evaluation, outcomes=outcomes, usage=Usage()))
