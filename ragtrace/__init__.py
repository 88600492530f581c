"""Faithfulness verdicts for RAG answers, written into your existing OpenTelemetry traces.

Names load on first use (PEP 562): ``import ragtrace`` does not import openai, grpc or httpx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.capture import (
        ContentPolicy,
        current,
        feedback,
        flush,
        generation,
        instrument,
        rag,
        retrieval,
        statistics,
        uninstrument,
        update,
    )
    from ragtrace.errors import RagtraceError
    from ragtrace.frames import evaluate_records, evaluate_sync
    from ragtrace.model import Chunk, Evaluation, RagRecord
    from ragtrace.pipeline import evaluate

__version__ = "0.1.0"

_HOME = {
    "Chunk": "ragtrace.model",
    "ContentPolicy": "ragtrace.capture",
    "current": "ragtrace.capture",
    "Evaluation": "ragtrace.model",
    "RagRecord": "ragtrace.model",
    "RagtraceError": "ragtrace.errors",
    "evaluate": "ragtrace.pipeline",
    "evaluate_records": "ragtrace.frames",
    "evaluate_sync": "ragtrace.frames",
    "feedback": "ragtrace.capture",
    "flush": "ragtrace.capture",
    "generation": "ragtrace.capture",
    "instrument": "ragtrace.capture",
    "rag": "ragtrace.capture",
    "retrieval": "ragtrace.capture",
    "statistics": "ragtrace.capture",
    "uninstrument": "ragtrace.capture",
    "update": "ragtrace.capture",
}

__all__ = [
    "Chunk",
    "ContentPolicy",
    "Evaluation",
    "RagRecord",
    "RagtraceError",
    "__version__",
    "current",
    "evaluate",
    "evaluate_records",
    "evaluate_sync",
    "feedback",
    "flush",
    "generation",
    "instrument",
    "rag",
    "retrieval",
    "statistics",
    "uninstrument",
    "update",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
    raise AttributeError(f"module 'ragtrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
