"""Transcripts: stored requests and replies of judges, to score verdicts again without a call and to compare
two evaluators on the same answers."""

from __future__ import annotations

from ragtrace.transcripts._comparison import (
    Comparer,
    Disagreement,
    EvaluatorComparison,
    MetricComparison,
    compare,
)
from ragtrace.transcripts.file import EvaluatorInfo, TranscriptRecord, Transcripts
from ragtrace.transcripts.rescore import (
    RescoredRecord,
    ask_again,
    metrics_of,
    recorded,
    replayed,
    rescore,
    unpaid,
)
