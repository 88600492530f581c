"""What ``opentelemetry-instrument`` starts: an entry point of ``opentelemetry_post_instrument``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ragtrace.capture._guard import guarded
from ragtrace.capture._recorder import active
from ragtrace.capture.instrumentation import instrument
from ragtrace.capture.libraries._table import LIBRARIES, Library
from ragtrace.capture.libraries.instrumentors import of_names, release
from ragtrace.capture.settings import resolve

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"


@guarded
def instrument_by_agent() -> None:
    """Switch capture on after every other instrumentor, so that what they trace is left to them.

    The agent has set the SDK up by then: ragtrace joins it. Of the instrumentors that ragtrace would have
    chosen itself, those that the agent turned on are taken over: the agent knows no content policy. The
    libraries that ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` names are left alone, and everything with ``*``
    or ``ragtrace``. Where capture is on already nothing changes.
    """
    disabled = _names(os.environ, DISABLED)
    if {"*", "ragtrace"} & disabled or active() is not None:
        return
    left = {library.name for library in LIBRARIES if _entry_points(library) & disabled}
    exclude = left | _names(os.environ, "RAGTRACE_EXCLUDE")
    settings = resolve(os.environ, exclude=exclude)
    if not settings.disabled:
        for library in of_names(settings.only, settings.exclude):
            release(library)
    instrument(exclude=exclude)


def _entry_points(library: Library) -> set[str]:
    """Return the names that instrumentors of this library are registered by."""
    name = library.name.replace("-", "_")
    return {name, f"{name}_client"}


def _names(env: Mapping[str, str], key: str) -> set[str]:
    return {name.strip() for name in env.get(key, "").split(",") if name.strip()}
