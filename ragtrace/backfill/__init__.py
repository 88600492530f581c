"""Back-fill: judge the RAG answers of traces that are stored already, and send the verdicts after them.

Find, read, extract, sample, judge, attach, send: the same steps and the same span ids as in the collector, so
that a second run, or a run beside a collector, makes no second opinion of the same evaluator.
"""

from __future__ import annotations

from ragtrace.backfill._estimate import EstimateRange, RunEstimate
from ragtrace.backfill._selection import Selection, SpanId
from ragtrace.backfill._trace_search import matches
from ragtrace.backfill.dry_run import DryRun, dry_run
from ragtrace.backfill.pipeline import backfill, span_ids
from ragtrace.backfill.progress import Progress
from ragtrace.backfill.report import BackfillReport
from ragtrace.backfill.resume import ResumableRun
