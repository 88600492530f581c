"""Judges stored records with another judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from ragtrace._ordered import map_in_order
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Judge, Metric
from ragtrace.transcripts._judges import recorded
from ragtrace.transcripts.file import TranscriptRecord, Transcripts
from ragtrace.transcripts.rescore import metrics_of


async def ask_again(
    kept: Iterable[TranscriptRecord],
    transcripts: Transcripts,
    judge: Judge,
    *,
    metrics: Sequence[Metric] | None = None,
    on_judged: Callable[[TranscriptRecord, TranscriptRecord], None],
    concurrency: int = 8,
) -> None:
    """Judge records with another judge under their original limits, and record its replies.

    ``metrics`` defaults to those that ran. ``on_judged`` is called with each record before and after, in
    order. Records that this judge has already judged without a failure are taken from the transcripts.
    """
    asked = recorded(judge, transcripts)

    async def work(each: TranscriptRecord) -> tuple[TranscriptRecord, TranscriptRecord]:
        chosen = metrics_of(each) if metrics is None else metrics
        evaluator = Evaluator(metrics=chosen, judge=asked, limits=each.limits)
        known = transcripts.find(each.record.id, evaluator.set, evaluator.version)
        if known and known.record == each.record and not known.evaluation.failures:
            return each, known
        evaluation = await evaluator.evaluate(each.record)
        session = transcripts.session
        ran = each.metrics if metrics is None else ()
        judged = replace(each, evaluation=evaluation, second_judge=None, session=session, metrics=ran)
        transcripts.keep(judged)
        return each, judged

    async def emit(pair: tuple[TranscriptRecord, TranscriptRecord]) -> None:
        on_judged(*pair)

    await map_in_order(_each(kept), work, emit, concurrency=concurrency)


async def _each(kept: Iterable[TranscriptRecord]) -> AsyncIterator[TranscriptRecord]:
    for record in kept:
        yield record
