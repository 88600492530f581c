"""Verdicts that are scored again: the same steps and checks as at first, with a judge who only repeats."""

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
    """A record whose verdicts were scored again."""

    before: TranscriptRecord
    after: TranscriptRecord

    @property
    def is_whole(self) -> bool:
        """Whether every metric found what it needed in the transcript."""
        return not any(each.error_type == _NOT_KNOWN for each in self.after.evaluation.failures)

    @property
    def asks_anew(self) -> bool:
        """Whether a metric would have to ask something new: not one that failed before, as it fails again."""
        failed = {(each.metric, each.profile) for each in self.before.evaluation.failures}
        return any(
            each.error_type == _NOT_KNOWN and (each.metric, each.profile) not in failed
            for each in self.after.evaluation.failures
        )

    def carrier(self, options: AttachOptions, *, now_ns: int) -> Span:
        """Build the carrier of the new verdicts, which names the old one where both tell the same metrics.

        It tells of no cost: that stands on the old one.

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
    """Evaluate records again out of what was said about them; no judge is asked.

    Without ``metrics``: those that ran, with their thresholds. What was never asked comes back as a
    ``MetricFailure`` of the type ``not_in_transcript``.
    """

    @cache
    def voice(identity: JudgeIdentity, session: str) -> Judge:
        return replayed(identity, transcripts, session=session)

    for each in kept:
        evaluation = await evaluate(
            each.record,
            metrics=metrics_of(each.evaluation) if metrics is None else metrics,
            judge=voice(each.evaluation.judge, each.session),
            second_judge=voice(each.second_judge, each.session) if each.second_judge else None,
            limits=each.limits,
            embedder=embedder,
            clock=clock,
        )
        yield RescoredRecord(before=each, after=replace(each, evaluation=evaluation))


def metrics_of(evaluation: Evaluation) -> list[Metric]:
    """Make the metrics that an evaluation ran, with their thresholds and rules of a pass.

    Raises:
        ConfigError: one is of code that was named by its place: name it again.
    """
    return [_again(outcome) for outcome in evaluation.outcomes]


def _again(outcome: MetricOutcome) -> Metric:
    if isinstance(outcome, MetricFailure):
        return metric_named(outcome.metric, profile=outcome.profile)
    return metric_named(
        outcome.metric, profile=outcome.profile, threshold=outcome.threshold, pass_when=outcome.pass_when
    )


def unpaid(kept: TranscriptRecord) -> TranscriptRecord:
    """Take the cost out of an evaluation that made no call."""
    evaluation = kept.evaluation
    outcomes = tuple(replace(outcome, usage=Usage()) for outcome in evaluation.outcomes)
    return replace(kept, evaluation=replace(evaluation, outcomes=outcomes, usage=Usage()))


def _metrics_told(span: Span) -> frozenset[str]:
    return frozenset(key for key in span.attributes if key.startswith(semconv.LABEL_PREFIX))
