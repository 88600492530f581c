"""The application side: switch capture on, and record RAG calls as OpenTelemetry spans."""

from ragtrace.capture.feedback_call import feedback
from ragtrace.capture.generation_call import GenerationCall, generation
from ragtrace.capture.instrumentation import CaptureStatistics, flush, instrument, statistics, uninstrument
from ragtrace.capture.privacy.policy import ContentPolicy
from ragtrace.capture.rag_call import CallFacts, RagCall, current, rag, update
from ragtrace.capture.retrieval_call import RetrievalCall, retrieval
