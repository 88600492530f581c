"""Back-fill: judge the RAG answers of stored traces, and send the verdicts to the trace back end.

Find, read, extract, sample, judge, attach, send: the steps and span ids are the same as in the collector. So
a second run, or a run next to a collector, does not duplicate an evaluator's verdicts.
"""

from __future__ import annotations

from ragtrace.backfill.dry_run import DryRun, EstimateRange, RunEstimate, dry_run
from ragtrace.backfill.pipeline import Selection, SpanId, backfill, matches, span_ids
from ragtrace.backfill.progress import BackfillReport, Progress, ResumableRun
