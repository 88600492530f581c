"""The entry point of ``opentelemetry-instrument``, in the group ``opentelemetry_post_instrument``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ragtrace.capture._guard import active, guarded
from ragtrace.capture.instrumentation import instrument, resolve
from ragtrace.capture.libraries.instrumentors import LIBRARIES, Library, chosen, release

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"


@guarded
def instrument_by_agent() -> None:
    """Switch capture on after all other instrumentors, and skip the libraries that they trace.

    ragtrace joins the SDK that the agent has set up. If the agent turned on an instrumentor that ragtrace
    would choose itself, ragtrace takes it over, because the agent has no content policy. Libraries in
    ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` are skipped; ``*`` or ``ragtrace`` there disables everything. If
    capture is already on, nothing changes.
    """
    disabled = _names(os.environ, DISABLED)
    if {"*", "ragtrace"} & disabled or active() is not None:
        return
    left = {library.name for library in LIBRARIES if _entry_points(library) & disabled}
    exclude = left | _names(os.environ, "RAGTRACE_EXCLUDE")
    settings = resolve(os.environ, exclude=exclude)
    if not settings.disabled:
        for library in chosen(settings.only, settings.exclude):
            release(library)
    instrument(exclude=exclude)


def _entry_points(library: Library) -> set[str]:
    """Return the entry-point names of this library's instrumentors."""
    name = library.name.replace("-", "_")
    return {name, f"{name}_client"}


def _names(env: Mapping[str, str], key: str) -> set[str]:
    return {name.strip() for name in env.get(key, "").split(",") if name.strip()}
