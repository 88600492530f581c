"""The position of a trace between 0 and 1: a pure function of its id. A rate keeps the positions below it."""

from __future__ import annotations

import hashlib
from typing import Final

RULE_RATIO: Final = "ratio"
"""``ragtrace.sample.rule`` of answers that the ratio kept."""
_RESOLUTION_BITS: Final = 53  # every fraction of this many bits is exact in a double


def keeps(trace_id: str, rate: float) -> bool:
    """Return whether a rate in [0, 1] keeps the trace.

    The result is the same at every replica and in back-fill. Higher rates keep everything that lower rates
    keep.
    """
    return position_of(trace_id) < rate


def position_of(trace_id: str) -> float:
    """Return the position of a trace in [0, 1): uniform over ids.

    The id is hashed, so that the choice is independent of the application's head sampler, which compares the
    id's own bits (OpenTelemetry's ``TraceIdRatioBased``).
    """
    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _RESOLUTION_BITS)) / (1 << _RESOLUTION_BITS)
