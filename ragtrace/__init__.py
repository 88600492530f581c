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
    "ragtrace.errors": ("RagtraceError",),
    "ragtrace.frames": ("evaluate_records", "evaluate_sync"),
    "ragtrace.model": ("Chunk", "Evaluation", "RagRecord"),
    "ragtrace.pipeline": ("evaluate",),
}
"""The modules of the names that are not of ``ragtrace.capture``."""

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
    if name not in __all__:
        raise AttributeError(f"module 'ragtrace' has no attribute {name!r}")
    home = next((module for module, names in _HOME.items() if name in names), "ragtrace.capture")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
