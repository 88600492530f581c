"""The application side: switch capture on, and record RAG calls as OpenTelemetry spans."""

from ragtrace.capture.calls import (
    CallFacts,
    GenerationCall,
    RagCall,
    RetrievalCall,
    current,
    feedback,
    generation,
    rag,
    retrieval,
    update,
)
from ragtrace.capture.instrumentation import CaptureStatistics, flush, instrument, statistics, uninstrument
from ragtrace.capture.privacy.policy import ContentPolicy
