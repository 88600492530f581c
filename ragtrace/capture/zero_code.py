"""What ``opentelemetry-instrument`` starts: an entry point of ``opentelemetry_post_instrument``."""

from __future__ import annotations

import os

from ragtrace.capture.guard import guarded
from ragtrace.capture.instrumentation import instrument
from ragtrace.capture.libraries import LIBRARIES

__all__ = ["instrument_by_agent"]

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"


@guarded
def instrument_by_agent() -> None:
    """Switch capture on after every other instrumentor, so that what they trace is left to them.

    The agent has set the SDK up by then: ragtrace joins it. The libraries that
    ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` names are left alone, and everything with ``*`` or ``ragtrace``.
    """
    disabled = _names(os.environ.get(DISABLED, ""))
    if {"*", "ragtrace"} & disabled:
        return
    left = [
        library.name
        for library in LIBRARIES
        if disabled & {library.name, f"{library.name}-client", f"{library.name}-ai"}
    ]
    instrument(exclude=[*left, *_names(os.environ.get("RAGTRACE_EXCLUDE", ""))])


def _names(listed: str) -> set[str]:
    return {name.strip().lower().replace("_", "-") for name in listed.split(",") if name.strip()}
