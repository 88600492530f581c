"""From a trace to the RAG calls in it.

A convention (one module under ``conventions``) says what a span holds. ``calls`` finds the RAG calls in the
tree of spans, ``record`` chooses what to believe, and says why.
"""

from __future__ import annotations

from ragtrace.traces.extract._calls import is_evaluator
from ragtrace.traces.extract._mapping import AttributeMapping, AttributePath
from ragtrace.traces.extract._rules import ContextFrom, ExtractRules
from ragtrace.traces.extract.extraction import Extraction, ExtractionNote, extract_records
