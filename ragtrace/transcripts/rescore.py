"""Scores recorded verdicts again: the same steps and checks, with a replaying judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from ragtrace import semconv
from ragtrace.evaluation import evaluate
from ragtrace.metrics import metric_named
from ragtrace.model import Evaluation, JudgeIdentity, MetricFailure, MetricOutcome, Usage
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace.traces.attach import AttachOptions, Sample, carrier
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

    def carrier(self, options: AttachOptions, *, now_ns: int) -> Span:
        """Build the carrier of the new verdicts. It supersedes the old one if both have the same metrics.

        It has no cost: the old one has it.

        Raises:
            InputError: the record does not come from a trace.
        """
        make = partial(
            carrier,
            record=self.after.record,
            sample=self.after.sample or Sample(rule="ratio", rate=1.0, probability=1.0),
            options=options,
            now_ns=now_ns,
            mode="backfill",
        )
        now = unpaid(self.after).evaluation
        was, span = make(self.before.evaluation), make(now)
        return make(now, supersedes=was.span_id) if _metrics_told(was) == _metrics_told(span) else span


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
        evaluation = await evaluate(
            record.record,
            metrics=metrics_of(record.evaluation) if metrics is None else metrics,
            judge=voice(record.evaluation.judge, record.session),
            second_judge=voice(record.second_judge, record.session) if record.second_judge else None,
            limits=record.limits,
            embedder=embedder,
            clock=clock,
        )
        yield RescoredRecord(before=record, after=replace(record, evaluation=evaluation))


def metrics_of(evaluation: Evaluation) -> list[Metric]:
    """Make the metrics of an evaluation, with their thresholds and pass rules.

    Raises:
        ConfigError: a metric came from code at an address; name it again.
    """
    return [_again(outcome) for outcome in evaluation.outcomes]


def _again(outcome: MetricOutcome) -> Metric:
    if isinstance(outcome, MetricFailure):
        return metric_named(outcome.metric, profile=outcome.profile)
    return metric_named(
        outcome.metric, profile=outcome.profile, threshold=outcome.threshold, pass_when=outcome.pass_when
    )


def unpaid(kept: TranscriptRecord) -> TranscriptRecord:
    """Remove the cost of an evaluation without calls."""
    evaluation = kept.evaluation
    outcomes = tuple(replace(outcome, usage=Usage()) for outcome in evaluation.outcomes)
    return replace(kept, evaluation=replace(evaluation, outcomes=outcomes, usage=Usage()))


def _metrics_told(span: Span) -> frozenset[str]:
    return frozenset(key for key in span.attributes if key.startswith(semconv.LABEL_PREFIX))
