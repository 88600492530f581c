"""Transcripts: what judges were asked and said, kept by content, so that verdicts can be scored again without
a call and two evaluators compared on the same answers."""

from __future__ import annotations

from ragtrace.transcripts._comparison import (
    Comparer,
    Disagreement,
    EvaluatorComparison,
    MetricComparison,
    compare,
)
from ragtrace.transcripts._judges import recorded, replayed
from ragtrace.transcripts._reevaluation import ask_again
from ragtrace.transcripts.file import EvaluatorInfo, TranscriptRecord, Transcripts
from ragtrace.transcripts.rescore import RescoredRecord, metrics_of, rescore, unpaid
