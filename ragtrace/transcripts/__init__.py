"""Transcripts: stored requests and replies of judges, to score verdicts again without a call."""

from __future__ import annotations

from ragtrace.transcripts.file import EvaluatorInfo, TranscriptRecord, Transcripts
from ragtrace.transcripts.rescore import (
    RescoredRecord,
    ask_again,
    metrics_of,
    recorded,
    replayed,
    rescore,
    specs_of,
    unpaid,
)
