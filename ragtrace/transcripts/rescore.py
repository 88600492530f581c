"""Records judges' replies, scores recorded verdicts again, and judges stored records with another judge."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace._ordered import map_in_order
from ragtrace.errors import JudgeCutOff, JudgeError, JudgeNonsense, JudgeUnable, NotInTranscript
from ragtrace.judge.cache import as_json, asked, digest, read_reply, write_reply
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import JudgeIdentity, MetricFailure, MetricOutcome, Sample, Usage
from ragtrace.pipeline import Evaluator, MetricSpec, attach
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, Metric
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.trace import Span
from ragtrace.transcripts.file import TranscriptRecord, TranscriptReply, Transcripts

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_FORM: Final = 1
"""Part of every key: changes with the format of the entries."""
_SAID: Final = {kind.__name__: kind for kind in (JudgeNonsense, JudgeCutOff, JudgeUnable)}
"""Failures that are recorded, since the next requests depend on them. Other failures are not."""


def recorded(judge: Judge, transcripts: Transcripts) -> Judge:
    """Record the judge's reply to each request."""
    return _Recorded(judge, transcripts)


def replayed(identity: JudgeIdentity, transcripts: Transcripts, *, session: str) -> Judge:
    """Return a judge that replays this judge's replies of a session, with their original usage.

    Repeated requests get their replies in order. The judge itself is never asked: a request without a
    recorded reply raises `NotInTranscript`.
    """
    return _Replayed(identity, transcripts, session)


class _Recorded(JudgeLayer):
    def __init__(self, judge: Judge, transcripts: Transcripts) -> None:
        super().__init__(judge)
        self._transcripts = transcripts

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            reply = await self.inner.ask(request)
        except tuple(_SAID.values()) as exc:
            await self._keep(request, _failed(exc))
            raise
        await self._keep(
            request, TranscriptReply(body=write_reply(reply), usage=as_json(asdict(reply.usage)))
        )
        return reply

    async def _keep(self, request: JudgeRequest[Any], said: TranscriptReply) -> None:
        await self._transcripts.keep_said(
            _key(self.identity, request),
            said,
            identity=self.identity,
            step=request.step,
            prompt=request.system,
        )


class _Replayed:
    def __init__(self, identity: JudgeIdentity, transcripts: Transcripts, session: str) -> None:
        self.identity = identity
        self._transcripts = transcripts
        self._session = session
        self._times: defaultdict[bytes, int] = defaultdict(int)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Replay the recorded reply.

        Raises:
            JudgeError: the recorded failure, or no reply is recorded.
        """
        key = _key(self.identity, request)
        said = self._transcripts.said(key, session=self._session, time=self._times[key])
        self._times[key] += 1
        if said and said.error:
            raise _error(said)
        reply = read_reply(said.body, request.reply_type, usage=_usage(said)) if said else None
        if reply is None:
            message = f"no reply of {self.identity.model} to this {request.step} is recorded"
            raise NotInTranscript(message, usage=Usage())
        return reply

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def _key(identity: JudgeIdentity, request: JudgeRequest[Any]) -> bytes:
    who = [_FORM, *identity.named]
    return digest([*asked(request, who), request.user, request.max_output_tokens])


def _failed(exc: JudgeError) -> TranscriptReply:
    return TranscriptReply(
        body=as_json({"message": str(exc)}), usage=as_json(asdict(exc.usage)), error=type(exc).__name__
    )


def _error(said: TranscriptReply) -> JudgeError:
    kind = _SAID.get(said.error, JudgeNonsense)
    return kind(json.loads(said.body)["message"], usage=_usage(said))


def _usage(said: TranscriptReply) -> Usage:
    return Usage(**json.loads(said.usage))


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
    metrics: Sequence[MetricSpec] | None = None,
) -> AsyncIterator[RescoredRecord]:
    """Evaluate records again from recorded replies; no judge is asked.

    ``metrics`` defaults to those that ran, with their thresholds. If a reply is missing, the metric returns a
    ``MetricFailure`` of the type ``not_in_transcript``.
    """

    @cache
    def voice(identity: JudgeIdentity, session: str) -> Judge:
        return replayed(identity, transcripts, session=session)

    for record in kept:
        evaluator = Evaluator(
            metrics=metrics_of(record) if metrics is None else [each.open() for each in metrics],
            judge=voice(record.evaluation.judge, record.session),
            second_judge=voice(record.second_judge, record.session) if record.second_judge else None,
            limits=record.limits,
        )
        evaluation = await evaluator.evaluate(record.record)
        ran = record.metrics if metrics is None else tuple(metrics)
        yield RescoredRecord(before=record, after=replace(record, evaluation=evaluation, metrics=ran))


def metrics_of(record: TranscriptRecord) -> list[Metric]:
    """Make the metrics of a record's evaluation, with their settings, thresholds and pass rules.

    Raises:
        ConfigError: a metric came from code at an address that an earlier version did not keep.
    """
    return [
        _passing_as(outcome, spec).open()
        for outcome, spec in zip(record.evaluation.outcomes, specs_of(record), strict=True)
    ]


def specs_of(record: TranscriptRecord) -> Sequence[MetricSpec]:
    """Return the settings of a record's metrics."""
    return record.metrics or tuple(
        MetricSpec(name=each.metric, profile=each.profile) for each in record.evaluation.outcomes
    )


def _passing_as(outcome: MetricOutcome, spec: MetricSpec) -> MetricSpec:
    if isinstance(outcome, MetricFailure):
        return spec
    return replace(spec, threshold=outcome.threshold, pass_when=outcome.pass_when)


def unpaid(kept: TranscriptRecord) -> TranscriptRecord:
    """Remove the cost of an evaluation without calls."""
    evaluation = kept.evaluation
    outcomes = tuple(replace(outcome, usage=Usage()) for outcome in evaluation.outcomes)
    return replace(kept, evaluation=replace(evaluation, outcomes=outcomes, usage=Usage()))


async def ask_again(
    kept: Iterable[TranscriptRecord],
    transcripts: Transcripts,
    judge: Judge,
    *,
    metrics: Sequence[MetricSpec] | None = None,
    on_judged: Callable[[TranscriptRecord, TranscriptRecord], None],
    concurrency: int = 8,
) -> None:
    """Judge records with another judge under their original limits, and record its replies.

    ``metrics`` defaults to those that ran. ``on_judged`` is called with each record before and after, in
    order. Records that this judge has already judged without a failure are taken from the transcripts.
    """
    asked = recorded(judge, transcripts)

    async def work(each: TranscriptRecord) -> tuple[TranscriptRecord, TranscriptRecord]:
        chosen = metrics_of(each) if metrics is None else [one.open() for one in metrics]
        evaluator = Evaluator(metrics=chosen, judge=asked, limits=each.limits)
        known = transcripts.find(each.record.id, evaluator.set, evaluator.version)
        if known and known.record == each.record and not known.evaluation.failures:
            return each, known
        evaluation = await evaluator.evaluate(each.record)
        session = transcripts.session
        ran = each.metrics if metrics is None else tuple(metrics)
        judged = replace(each, evaluation=evaluation, second_judge=None, session=session, metrics=ran)
        transcripts.keep(judged)
        return each, judged

    async def emit(pair: tuple[TranscriptRecord, TranscriptRecord]) -> None:
        on_judged(*pair)

    await map_in_order(_each(kept), work, emit, concurrency=concurrency)


async def _each(kept: Iterable[TranscriptRecord]) -> AsyncIterator[TranscriptRecord]:
    for record in kept:
        yield record
