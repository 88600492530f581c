"""Where a trace stands between 0 and 1: a pure function of its id, which every rate is compared with."""

from __future__ import annotations

import hashlib
from typing import Final

RULE_RATIO: Final = "ratio"
"""``ragtrace.sample.rule`` of what the ratio kept."""
_RESOLUTION_BITS: Final = 53  # every fraction of this many bits is exact in a double


def keeps(trace_id: str, rate: float) -> bool:
    """Say whether a rate in [0, 1] keeps the trace.

    The same at every replica and in back-fill, and nested: what a rate keeps, every higher rate keeps.
    """
    return position_of(trace_id) < rate


def position_of(trace_id: str) -> float:
    """Return the position of a trace in [0, 1): uniform over ids.

    The id is hashed, so that the choice is independent of a head sampler in the application that compares
    the id's own bits (OpenTelemetry's ``TraceIdRatioBased``).
    """
    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _RESOLUTION_BITS)) / (1 << _RESOLUTION_BITS)
