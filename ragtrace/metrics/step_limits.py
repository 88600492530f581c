"""Limits of a judge call, and of the part of a record that is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ragtrace.metrics.verify_settings import VerifySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """Limits of a call and of the judged part of a record."""

    sentences_per_call: int = 60
    claims_per_call: int = 20
    """Also limits the sentences of a reference."""
    chunks_per_call: int = 40
    statements_per_call: int = 60
    context_chars: int = 60_000
    """Characters of chunks in one call; longer contexts need several calls."""
    max_sentences: int = 300
    """Further sentences of an answer or a reference are not judged; the evaluation reports it."""
    max_packs: int = 8
    """Chunks in further packs are not shown; claims that need them are unjudged."""
    retrieval: Literal["merged", "separate"] = "merged"
    """Whether steps C and D share one call if both are needed."""
    verify: VerifySettings = field(default_factory=VerifySettings)
    """The form of verify requests, and their canary claims."""
