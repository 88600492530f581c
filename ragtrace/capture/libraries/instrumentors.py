"""The libraries that ``instrument()`` knows: instrumentors that go on as they are imported, and off again.

Queries of vector stores are recorded as retrievals here, because their instrumentors omit the results.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import TracerProvider

from ragtrace import semconv
from ragtrace.capture._guard import guarded, hint, log
from ragtrace.capture._recording import Recording
from ragtrace.capture._wrapping import Arguments, traced
from ragtrace.capture.calls import ChunksOf, RetrievalCall, retrieval
from ragtrace.capture.instrumentation import note
from ragtrace.capture.tracers import follow_agents, follow_runs, in_retriever, leave_runs


class InstrumentorKind(StrEnum):
    """The author of a library's spans."""

    OPENINFERENCE = "OpenInference"
    BUILT_IN = "the library itself"
    RAGTRACE = "ragtrace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library and its instrumentation. ``docs/instrument.md`` says how they were chosen."""

    name: str
    """The name in ``only`` and ``exclude``."""
    module: str
    """The module whose import turns the instrumentor on."""
    kind: InstrumentorKind
    instrumentor: str
    """``module:name`` of the class or function that instruments it."""
    package: str | None = None
    """The instrumentor's distribution, if it is neither the library's nor ragtrace's."""
    others: tuple[str, ...] = ()
    """Other instrumentors of the library, as ``module:Class`` or ``module``; ragtrace yields to them."""
    marked: tuple[str, ...] = ()
    """``module:attribute`` of objects that other instrumentors replace or extend."""
    called_by: tuple[str, ...] = ()
    """Module prefixes of frameworks that call the library: their own spans show those calls."""
    variable: str | None = None
    """An environment variable that makes the library send spans itself."""


_FRAMEWORKS = ("langchain", "langgraph", "llama_index", "haystack", "pydantic_ai")

LIBRARIES = (
    Library(
        name="openai",
        module="openai",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.openai:OpenAIInstrumentor",
        package="openinference-instrumentation-openai",
        called_by=_FRAMEWORKS,
        others=(
            "opentelemetry.instrumentation.openai:OpenAIInstrumentor",
            "opentelemetry.instrumentation.openai.v1:OpenAIV1Instrumentor",
            "opentelemetry.instrumentation.openai_v2:OpenAIInstrumentor",
            "opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor",
            "langfuse.openai",
            "traceloop.sdk",
        ),
        marked=(
            "openai:OpenAI.request",
            "openai.resources.chat.completions:Completions.create",
            "openai.resources.responses:Responses.create",
        ),
    ),
    Library(
        name="anthropic",
        module="anthropic",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.anthropic:AnthropicInstrumentor",
        package="openinference-instrumentation-anthropic",
        called_by=_FRAMEWORKS,
        others=(
            "opentelemetry.instrumentation.anthropic:AnthropicInstrumentor",
            "opentelemetry.instrumentation.genai.anthropic:AnthropicInstrumentor",
            "traceloop.sdk",
        ),
        marked=("anthropic.resources.messages:Messages.create",),
    ),
    Library(
        name="langchain",
        module="langchain_core",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.langchain:LangChainInstrumentor",
        package="openinference-instrumentation-langchain",
        others=(
            "opentelemetry.instrumentation.langchain:LangchainInstrumentor",
            "opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor",
            "traceloop.sdk",
        ),
        marked=("langchain_core.callbacks:BaseCallbackManager.__init__",),
        variable="LANGSMITH_OTEL_ENABLED",
    ),
    Library(
        name="llama-index",
        module="llama_index.core",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.llama_index:LlamaIndexInstrumentor",
        package="openinference-instrumentation-llama-index",
        others=(
            "opentelemetry.instrumentation.llamaindex:LlamaIndexInstrumentor",
            "opentelemetry.instrumentation.genai.llama_index:LlamaIndexInstrumentor",
            "llama_index.observability.otel",
            "traceloop.sdk",
        ),
        marked=("llama_index.core.instrumentation:root_dispatcher.span_handlers",),
    ),
    Library(
        name="haystack",
        module="haystack",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.haystack:HaystackInstrumentor",
        package="openinference-instrumentation-haystack",
        others=("opentelemetry.instrumentation.haystack:HaystackInstrumentor", "traceloop.sdk"),
        marked=(
            "haystack:Pipeline.run",
            "haystack.tracing:tracer.actual_tracer",
        ),
    ),
    Library(
        name="pydantic-ai",
        module="pydantic_ai",
        kind=InstrumentorKind.BUILT_IN,
        instrumentor="pydantic_ai:Agent",
    ),
    Library(
        name="chromadb",
        module="chromadb",
        kind=InstrumentorKind.RAGTRACE,
        instrumentor="ragtrace.capture.libraries.instrumentors:instrument_chroma",
        others=("opentelemetry.instrumentation.chromadb:ChromaInstrumentor", "traceloop.sdk"),
        marked=("chromadb:Collection.query",),
    ),
    Library(
        name="qdrant",
        module="qdrant_client",
        kind=InstrumentorKind.RAGTRACE,
        instrumentor="ragtrace.capture.libraries.instrumentors:instrument_qdrant",
    ),
    Library(
        name="weaviate",
        module="weaviate",
        kind=InstrumentorKind.RAGTRACE,
        instrumentor="ragtrace.capture.libraries.instrumentors:instrument_weaviate",
    ),
)
"""OpenLLMetry's spans of Qdrant and Weaviate hold no results, so ragtrace adds its own retrieval spans."""


def when_imported(module: str, action: Callable[[], object]) -> None:
    """Call the action now if the module is imported, else as the last step of its import.

    The action must not raise, because that would fail the application's import.
    """
    with _lock:
        if module not in sys.modules:
            _pending.setdefault(module, []).append(action)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            return
    action()


_lock = threading.Lock()  # one thread may load a module while another registers for it
_pending: dict[str, list[Callable[[], object]]] = {}


class _Finder(MetaPathFinder):
    """Finds no module itself: it asks the other finders and wraps their loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _pending:
            return None
        spec = _found_by_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            _watch(spec)
        return spec


_finder = _Finder()


def _found_by_others(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not _finder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
    return None


def _watch(spec: ModuleSpec) -> None:
    loader = spec.loader
    assert loader is not None  # checked by the caller
    load = loader.exec_module

    def load_and_act(module: ModuleType) -> None:
        del loader.exec_module  # restore the module's own loader after this one call
        load(module)
        with _lock:
            actions = _pending.pop(spec.name, [])
        for action in actions:
            action()

    loader.exec_module = load_and_act  # type: ignore[method-assign]


_TRACERS = (
    *("agentops", "haystack_integrations.tracing", "langfuse", "langtrace", "llama_index.observability"),
    *("lmnr", "logfire", "mlflow", "openinference", "openlit", "opentelemetry", "traceloop"),
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
        is_ours = module.startswith("ragtrace.") or module == "pydantic_ai"
        if is_on(module, name) or (during_import and module in sys.modules and not is_ours):
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


TakeBack = Callable[[], object]
"""Restores a library's original state."""


class InstrumentedLibraries:
    """The libraries that ragtrace instrumented, and those it will instrument once imported."""

    def __init__(self, provider: TracerProvider, *, content: bool) -> None:
        self._provider = provider
        self._content = content
        self._is_on = True
        self._take_back: dict[str, TakeBack] = {}

    def turn_on(self, libraries: Iterable[Library]) -> None:
        """Instrument each library: now if it is imported, else on import."""
        for library in libraries:
            when_imported(library.module, partial(self._begin, library, library.module not in sys.modules))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the libraries instrumented so far."""
        return tuple(sorted(self._take_back))

    def turn_off(self) -> None:
        """Turn off all instrumentors, and turn on no further ones."""
        self._is_on = False
        while self._take_back:
            _, take_back = self._take_back.popitem()
            guarded(take_back)()

    # No lock: an import runs this once, and waiting inside an import for another importing thread deadlocks.
    @guarded
    def _begin(self, library: Library, is_import: bool) -> None:
        if not self._is_on:
            return
        other = traced_by(library, os.environ, during_import=is_import)
        if other is not None:
            log.info("ragtrace: %s is already traced by %s: not instrumented again", library.name, other)
            note("library", name=library.name, state="left", by=other)
            if library.name == "langchain":
                self._take_back[library.name] = guarded(_nest_in_others_runs)(library) or leave_runs()
            return
        present = guarded(_has_instrumentor)(library)
        if present is False:
            _tell_missing(library, caller_of(library, during_import=is_import))
            return
        take_back = (
            guarded(_TURN_ON[library.kind])(library, self._provider, self._content) if present else None
        )
        if take_back is None:
            _tell_unfit(library)
            return
        note("library", name=library.name, state="traced", by=str(library.kind))
        log.debug("ragtrace: the spans of %s are written by %s", library.name, library.kind)
        self._take_back[library.name] = take_back
        if not self._is_on:  # another thread switched it off
            self.turn_off()


def chosen(only: Collection[str] | None, exclude: Collection[str]) -> tuple[Library, ...]:
    """Return the libraries to instrument; log unknown names once."""
    known = {library.name for library in LIBRARIES}
    unknown = sorted({*(only or ()), *exclude} - known)
    if unknown:
        log.warning(
            "ragtrace: no library is named %s: only and exclude take %s",
            ", ".join(map(repr, unknown)),
            ", ".join(sorted(known)),
        )
    return of_names(only, exclude)


def of_names(only: Collection[str] | None, exclude: Collection[str]) -> tuple[Library, ...]:
    """Return the libraries of these names; ``None`` means all."""
    return tuple(
        library
        for library in LIBRARIES
        if (only is None or library.name in only) and library.name not in exclude
    )


@guarded
def release(library: Library) -> None:
    """Turn off ragtrace's own choice of instrumentor, if it was turned on without settings."""
    module, _, name = library.instrumentor.partition(":")
    if library.kind is InstrumentorKind.OPENINFERENCE and is_on(module, name):
        getattr(sys.modules[module], name)().uninstrument()


def _turn_on_openinference(library: Library, provider: TracerProvider, content: bool) -> TakeBack | None:
    module, _, name = library.instrumentor.partition(":")
    instrumentor = getattr(import_module(module), name)()
    instrumentor.instrument(
        tracer_provider=provider, config=_trace_config(content), raise_exception_on_conflict=True
    )
    if not instrumentor.is_instrumented_by_opentelemetry:
        return None
    restore = follow_runs(instrumentor) if library.name == "langchain" else None

    def take_back() -> None:
        instrumentor.uninstrument()
        if restore is not None:
            restore()

    return take_back


def _nest_in_others_runs(library: Library) -> TakeBack | None:
    """Follow the runs of the application's own instrumentor, if it is the one that ragtrace would turn on."""
    module, _, name = library.instrumentor.partition(":")
    return follow_runs(getattr(sys.modules[module], name)()) if is_on(module, name) else None


def _turn_on_pydantic_ai(library: Library, provider: TracerProvider, content: bool) -> TakeBack | None:
    agent = import_module("pydantic_ai").Agent
    settings = import_module("pydantic_ai.models.instrumented").InstrumentationSettings
    agent.instrument_all(settings(tracer_provider=provider, include_content=content))
    restore = follow_agents(agent)

    def take_back() -> None:
        restore()
        agent.instrument_all(False)

    return take_back


def _turn_on_own(library: Library, provider: TracerProvider, content: bool) -> TakeBack | None:
    module, _, name = library.instrumentor.partition(":")
    take_back: TakeBack = getattr(import_module(module), name)()
    return take_back


_TURN_ON: dict[InstrumentorKind, Callable[[Library, TracerProvider, bool], TakeBack | None]] = {
    InstrumentorKind.OPENINFERENCE: _turn_on_openinference,
    InstrumentorKind.BUILT_IN: _turn_on_pydantic_ai,
    InstrumentorKind.RAGTRACE: _turn_on_own,
}


def _has_instrumentor(library: Library) -> bool:
    module = library.instrumentor.partition(":")[0]
    try:
        import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not module.startswith(exc.name):
            raise
        return False
    return True


def _tell_missing(library: Library, caller: str | None) -> None:
    """Print a hint that names the instrumentor to install, unless a framework's spans show the calls."""
    note("library", name=library.name, state="missing", package=library.package, by=caller)
    if caller is not None:
        log.info("ragtrace: %s is traced only in calls by %s", library.name, caller)
        return
    hint(
        f"{library.name} has no instrumentor",
        f"{library.name} is imported, but its calls are not traced: pip install {library.package} "
        f"(or skip it: exclude=[{library.name!r}])",
    )


def _tell_unfit(library: Library) -> None:
    note("library", name=library.name, state="unfit", package=library.package)
    tracing = library.package or "what traces it"
    hint(
        f"{library.name} is not traced",
        f"{library.name} is imported, but its calls are not traced: {tracing} does not fit the installed "
        "version (RAGTRACE_LOG_LEVEL=info shows what failed)",
    )


def _trace_config(content: bool) -> object:
    """Return OpenInference's settings: with content, its variables apply; without, it hides all."""
    config = import_module("openinference.instrumentation").TraceConfig
    if content:
        return config()
    known = {field.name for field in fields(config)}
    return config(**{name: True for name in known if name.startswith("hide_")})


Query = Callable[[Any, Arguments], RetrievalCall]
"""Makes the retrieval of one call from the called object."""


def instrument_chroma() -> TakeBack:
    """Record ``Collection.query``, sync and async, with documents, ids and distances."""
    owners = [
        import_module("chromadb.api.models.Collection").Collection,
        import_module("chromadb.api.models.AsyncCollection").AsyncCollection,
    ]
    return _all_back([_record(owner, "query", _chroma_query) for owner in owners])


def instrument_qdrant() -> TakeBack:
    """Record the queries of ``QdrantClient`` and ``AsyncQdrantClient`` with payloads, ids and scores."""
    module = import_module("qdrant_client")
    return _all_back(
        [
            _record(owner, method, _qdrant_query)
            for owner in (module.QdrantClient, module.AsyncQdrantClient)
            for method in ("query_points", "query_batch_points", "query_points_groups", "search")
            if hasattr(owner, method)
        ]
    )


def instrument_weaviate() -> TakeBack:
    """Record ``collection.query.near_text`` and the like, with properties, ids, distances or scores."""
    module = import_module("weaviate.collections.query")
    return _all_back(
        [
            _record(owner, method, _weaviate_query)
            for owner in (module._QueryCollection, module._QueryCollectionAsync)  # noqa: SLF001 - private
            for method in ("near_text", "near_vector", "near_object", "hybrid", "bm25")
            if hasattr(owner, method)
        ]
    )


def _record(owner: type, method: str, query: Query) -> TakeBack:
    """Replace a method with one that records its calls; return a function that restores it."""
    own = owner.__dict__.get(method)
    function = getattr(owner, method)

    def begin(given: Arguments) -> Recording:
        return Recording() if _in_retrieval() else query(given.args[0], given)

    recorded = traced(function, begin)
    setattr(owner, method, recorded)

    def take_back() -> None:
        if owner.__dict__.get(method) is not recorded:
            return  # another library wrapped it since: our wrapper does nothing while capture is off
        if own is None:
            delattr(owner, method)
        else:
            setattr(owner, method, own)

    return take_back


def _all_back(take_backs: Sequence[TakeBack]) -> TakeBack:
    def take_back() -> None:
        for put_back in take_backs:
            put_back()

    return take_back


def _in_retrieval() -> bool:
    """Return whether a framework or the application already records the enclosing retrieval."""
    attributes = getattr(trace.get_current_span(), "attributes", None) or {}
    return (
        in_retriever()
        or attributes.get(semconv.RAG_KIND) == semconv.KIND_RETRIEVAL
        or attributes.get(semconv.OI_KIND) == semconv.OI_RETRIEVER
    )


def _retrieval(query: object, source: object, top_k: object, chunks: ChunksOf | None = None) -> RetrievalCall:
    return retrieval(
        query if isinstance(query, str) else None,
        data_source=source if isinstance(source, str) else None,
        top_k=top_k if isinstance(top_k, int) else None,
        chunks=chunks,
    )


def _argument(given: Arguments, name: str, position: int | None = None) -> Any:
    if position is not None and name not in given.kwargs and position < len(given.args):
        return given.args[position]
    return given.kwargs.get(name)


def _chroma_query(collection: Any, given: Arguments) -> RetrievalCall:
    texts = _argument(given, "query_texts", 2)
    query = texts if isinstance(texts, str) else "\n".join(texts or ()) or None
    return _retrieval(query, collection.name, _argument(given, "n_results", 6) or 10)


def _qdrant_query(_client: object, given: Arguments) -> RetrievalCall:
    query = _argument(given, "query", 2)
    asked = getattr(query, "nearest", query)  # a document, which the client or the server embeds
    return _retrieval(
        getattr(asked, "text", None),
        _argument(given, "collection_name", 1),
        _argument(given, "limit") or 10,
        lambda result: list(_qdrant_points(result)),
    )


def _qdrant_points(result: Any) -> Iterator[Any]:
    if isinstance(result, list):
        for each in result:
            yield from _qdrant_points(each)
    elif hasattr(result, "groups"):
        for group in result.groups:
            yield from group.hits
    elif hasattr(result, "points"):
        yield from result.points
    else:
        yield result


def _weaviate_query(queries: Any, given: Arguments) -> RetrievalCall:
    query = _argument(given, "query", 1)
    text = (
        query if isinstance(query, str) or not isinstance(query, Collection) else "\n".join(map(str, query))
    )
    return _retrieval(text, getattr(queries, "_name", None), _argument(given, "limit"))
