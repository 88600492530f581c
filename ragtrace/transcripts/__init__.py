"""Transcripts: what judges were asked and said, kept by content, so that verdicts can be scored again without
a call and two evaluators compared on the same answers."""

from __future__ import annotations

from ragtrace.transcripts.comparison import (
    Comparing,
    Disagreement,
    EvaluatorComparison,
    MetricComparison,
    compare,
)
from ragtrace.transcripts.file import EvaluatorInfo, Kept, Transcripts
from ragtrace.transcripts.judges import recorded, replayed
from ragtrace.transcripts.reevaluation import ask_again
from ragtrace.transcripts.rescore import Rescored, metrics_of, rescore, unpaid

__all__ = [
    "Comparing",
    "Disagreement",
    "EvaluatorComparison",
    "EvaluatorInfo",
    "Kept",
    "MetricComparison",
    "Rescored",
    "Transcripts",
    "ask_again",
    "compare",
    "metrics_of",
    "recorded",
    "replayed",
    "rescore",
    "unpaid",
]
