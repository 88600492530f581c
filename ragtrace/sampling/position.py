"""Which traces are judged, where only a share of them is: a pure function of the trace id."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["RULE_RATIO", "keeps"]

RULE_RATIO: Final = "ratio"
"""``ragtrace.sample.rule`` of what a ratio kept."""
_RESOLUTION_BITS: Final = 53  # every fraction of this many bits is exact in a double


def keeps(trace_id: str, ratio: float) -> bool:
    """Say whether a ratio in [0, 1] keeps the trace.

    The same at every replica and in back-fill, and nested: what a ratio keeps, every higher ratio keeps.
    The id is hashed, so that the choice is independent of a head sampler in the application that compares
    the id's own bits (OpenTelemetry's ``TraceIdRatioBased``).
    """
    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") >> (64 - _RESOLUTION_BITS)
    return position < ratio * (1 << _RESOLUTION_BITS)
