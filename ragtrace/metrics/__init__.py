"""Metrics of a RAG answer, and the judge steps they share."""

from ragtrace.metrics.answers import RagScore
from ragtrace.metrics.faithfulness import Faithfulness
from ragtrace.metrics.registry import metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import Prompts, StepLimits, VerifyForm, VerifySettings

__all__ = [
    "StepLimits",
    "StepSession",
    "metric_named",
]
