"""Metrics: what is measured about a RAG answer, and the judge steps they share."""

from ragtrace.metrics.faithfulness import Faithfulness
from ragtrace.metrics.registry import MetricInfo, available_metrics, metric_named
from ragtrace.metrics.steps import Prompts, StepLimits, Steps

__all__ = [
    "Faithfulness",
    "MetricInfo",
    "Prompts",
    "StepLimits",
    "Steps",
    "available_metrics",
    "metric_named",
]
