"""The application side: switch capture on, and record RAG calls as OpenTelemetry spans."""

from ragtrace.capture.generation import GenerationCall, generation
from ragtrace.capture.instrument import CaptureStatistics, flush, instrument, statistics, uninstrument
from ragtrace.capture.policy import ContentPolicy
from ragtrace.capture.rag import RagCall, rag
from ragtrace.capture.retrieval import RetrievalCall, retrieval

__all__ = [
    "CaptureStatistics",
    "ContentPolicy",
    "GenerationCall",
    "RagCall",
    "RetrievalCall",
    "flush",
    "generation",
    "instrument",
    "rag",
    "retrieval",
    "statistics",
    "uninstrument",
]
