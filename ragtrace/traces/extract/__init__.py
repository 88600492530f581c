"""Extract RAG calls from a trace.

A convention is a table (``conventions``) of the spans that it describes and where they hold each part.
``calls`` finds the RAG calls in the span tree.
``record`` chooses the source of each part, with the reason.
"""

from __future__ import annotations

from ragtrace.traces.extract._answers import unwrap
from ragtrace.traces.extract._calls import is_evaluator
from ragtrace.traces.extract._missing import Unread
from ragtrace.traces.extract._rules import AttributeMapping, ContextFrom, ExtractRules
from ragtrace.traces.extract.convention import AttributePath
from ragtrace.traces.extract.extraction import Extraction, ExtractionNote, extract_records
