"""Extract RAG calls from a trace.

A convention (one module under ``conventions``) reads a span. ``calls`` finds the RAG calls in the span tree.
``record`` chooses the source of each part, with the reason.
"""

from __future__ import annotations

from ragtrace.traces.extract._calls import is_evaluator
from ragtrace.traces.extract._mapping import AttributeMapping, AttributePath
from ragtrace.traces.extract._rules import ContextFrom, ExtractRules
from ragtrace.traces.extract.extraction import Extraction, ExtractionNote, extract_records
