"""Detect other instrumentors of a library, so that no call is recorded twice."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from ragtrace.capture.libraries._table import InstrumentorKind, Library

_TRACERS = (
    "agentops",
    "haystack_integrations.tracing",
    "langfuse",
    "langtrace",
    "llama_index.observability",
    "lmnr",
    "logfire",
    "mlflow",
    "openinference",
    "openlit",
    "opentelemetry",
    "traceloop",
)
"""Packages that write OpenTelemetry spans. Other wrappers of a library (retries, error reports) do not
conflict."""
_TRUE = frozenset({"1", "true", "yes", "on"})


def traced_by(library: Library, env: Mapping[str, str], *, during_import: bool) -> str | None:
    """Return the other tracer of an imported library, or ``None``.

    This imports nothing: an instrumentor that is not loaded is not on. While the library is being imported, a
    loaded instrumentor is most likely the importer.
    """
    if library.variable is not None and env.get(library.variable, "").strip().lower() in _TRUE:
        return library.variable
    for path in (library.instrumentor, *library.others):
        module, _, name = path.partition(":")
        if is_on(module, name) or (during_import and module in sys.modules and not _is_ours(module)):
            return module
    if library.kind is InstrumentorKind.BUILT_IN and _is_on_by_itself(library):
        return library.module
    return next((maker for place in library.marked for maker in _makers(place)), None)


def _is_on_by_itself(library: Library) -> bool:
    """Return whether the application switched on the library's own spans."""
    module, _, name = library.instrumentor.partition(":")
    owner = getattr(sys.modules.get(module), name, None)
    return bool(getattr(owner, "_instrument_default", False))  # the only indication


def caller_of(library: Library, *, during_import: bool) -> str | None:
    """Return the framework that imported the library, or ``None`` if the application did.

    During the import, the stack frames show it. Later, a loaded framework is assumed to be the importer.
    """
    names = _importers() if during_import else sys.modules
    return next((name for name in names if library.called_by and name.startswith(library.called_by)), None)


def _importers() -> Iterator[str]:
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to find the importer
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back  # type: ignore[assignment]  # the outermost has none


def _is_ours(module: str) -> bool:
    return module.startswith("ragtrace.") or module == "pydantic_ai"


def is_on(module: str, name: str) -> bool:
    """Return whether the instrumentor of this class is on, without importing it."""
    instrumentor = getattr(sys.modules.get(module), name, None) if name else None
    instance = getattr(instrumentor, "_instance", None)
    return getattr(instance, "is_instrumented_by_opentelemetry", False) is True


def _makers(place: str) -> Iterator[str]:
    """Yield the tracers that wrapped, replaced or extended the object at this place."""
    module, _, path = place.partition(":")
    found: object = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    for each in found if isinstance(found, list) else [found]:
        yield from _wrappers(each)


def _wrappers(value: object) -> Iterator[str]:
    for _ in range(16):  # nested wrappers
        if value is None:
            return
        for origin in _origins(value):
            if origin.startswith(_TRACERS):
                yield origin
        value = getattr(value, "__wrapped__", None)


def _origins(value: object) -> Iterator[str]:
    """Yield the modules with the code of a function, of a wrapt proxy's wrapper, or of a class."""
    for part in (value, getattr(value, "_self_wrapper", None)):
        space = getattr(part, "__globals__", None)
        if isinstance(space, dict):
            yield str(space.get("__name__", ""))
        yield type(part).__module__
