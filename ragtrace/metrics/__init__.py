"""Metrics of a RAG answer, and the judge steps they share."""

from ragtrace.judge_steps import VerifyForm
from ragtrace.metrics.answer_relevance import AnswerRelevance
from ragtrace.metrics.base import BuiltInMetric, MetricFinding
from ragtrace.metrics.chunk_precision import ChunkPrecision
from ragtrace.metrics.context_precision import ContextPrecision
from ragtrace.metrics.context_recall import ContextRecall
from ragtrace.metrics.context_relevance import ContextRelevance
from ragtrace.metrics.faithfulness import Faithfulness
from ragtrace.metrics.groundedness import Groundedness
from ragtrace.metrics.hallucination import Hallucination
from ragtrace.metrics.question_similarity import QuestionSimilarity
from ragtrace.metrics.rag_score import RagScore
from ragtrace.metrics.registry import MetricInfo, available_metrics, metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import Prompts, StepLimits, VerifySettings

__all__ = [
    "RagScore",
    "StepLimits",
    "StepSession",
    "VerifySettings",
    "available_metrics",
    "metric_named",
]
