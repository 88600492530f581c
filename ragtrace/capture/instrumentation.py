"""Switch capture on and off."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry import trace

import ragtrace
from ragtrace import semconv
from ragtrace.capture._guard import Recorder, activate, be_quiet, guarded, hint, log, stopped, unread
from ragtrace.capture.feedback_call import feedback_counts
from ragtrace.capture.privacy.policy import ContentMode, ContentPolicy, Redact
from ragtrace.capture.settings import LOG_LEVEL, Protocol, Settings, note, resolve, wants_quiet

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from ragtrace.capture.libraries.instrumentors import InstrumentedLibraries
    from ragtrace.capture.pipeline import ExportSwitch, Pipeline, RagCallWatch


def instrument(
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    protocol: Protocol | None = None,
    headers: Mapping[str, str] | None = None,
    capture_content: bool | None = None,
    content: ContentPolicy | ContentMode | None = None,
    redact: Redact | None = None,
    tracer_provider: TracerProvider | None = None,
    only: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    threads: bool = True,
    max_queue_bytes: int | None = None,
    quiet: bool | None = None,
) -> bool:
    """Switch capture on and return whether it is on. The span helpers do nothing before this call.

    Known libraries (``ragtrace.capture.libraries._table``) are instrumented on import, unless already traced.
    ``RAGTRACE_DISABLED`` or ``OTEL_SDK_DISABLED`` keep capture off. ``RAGTRACE_LOG_LEVEL`` shows diagnostics.
    If the application has an OpenTelemetry SDK provider, ragtrace joins it and keeps its sampler, resource
    and exporters; only the ``endpoint`` argument adds an exporter. Otherwise ragtrace sets a global provider
    from the ``OTEL_*`` variables. Arguments override the environment. A second call changes nothing before
    [`uninstrument`][ragtrace.capture.instrumentation.uninstrument]. It never raises.

    Args:
        service_name: Else ``OTEL_SERVICE_NAME``. No effect on a joined provider.
        endpoint: ``http://host:4317`` (gRPC) or ``http://host:4318`` (HTTP); ``https://`` for TLS. Else
            ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT``.
        protocol: Else ``OTEL_EXPORTER_OTLP_PROTOCOL``, else by the endpoint's port, else gRPC.
        headers: Sent with every export.
        capture_content: ``True`` and ``False`` are short for ``content="on"`` and ``"off"``.
        content: ``"on"``, ``"redacted"`` (extra ``privacy``), ``"hashed"`` or ``"off"``; or a policy with
            limits. Else ``RAGTRACE_CAPTURE_CONTENT``, else off if ``NO_CONTENT`` or ``EVENT_ONLY`` is in
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, else on: judging needs content.
        redact: Called as ``redact(text, part)`` for every text before it is recorded.
        tracer_provider: The provider to join, if it is not the global one.
        only: Libraries by name: ``["openai"]``. Else ``RAGTRACE_ONLY`` (commas), else all; ``[]`` is none.
        exclude: The libraries to skip. Else ``RAGTRACE_EXCLUDE``.
        threads: Carry calls into threads: ``ThreadPoolExecutor.submit`` and ``Thread.start`` are replaced.
        max_queue_bytes: Memory of the export queue; beyond it, the oldest spans are dropped and counted. Else
            ``RAGTRACE_MAX_QUEUE_BYTES``, else 64 MiB. No effect on a joined provider.
        quiet: Send hints about missing verdicts to the log only, not to stderr. Else ``RAGTRACE_QUIET``.
    """
    with _lock:
        settings = _resolved(
            service_name=service_name,
            endpoint=endpoint,
            protocol=protocol,
            headers=headers,
            capture_content=capture_content,
            content=content,
            redact=redact,
            only=only,
            exclude=exclude,
            threads=threads,
            max_queue_bytes=max_queue_bytes,
            quiet=quiet,
        )
        return settings is not None and _switch_on(settings, tracer_provider) is True


def uninstrument(timeout_s: float = 30.0) -> bool:
    """Switch capture off, export the queue, and return whether the endpoint accepted all spans.

    OpenTelemetry cannot unset a global provider: ragtrace's own stays, but exports nothing. The export stops
    if the endpoint is silent for two seconds.
    """
    with _lock:
        return _switch_off(timeout_s) is not False


def flush(timeout_s: float = 10.0) -> bool:
    """Export the queue and return whether the endpoint accepted all spans in time."""
    return _flush(timeout_s) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatistics:
    """Span counts since ``instrument()``, for spans that go through ragtrace's exporter."""

    spans_ended: int = 0
    spans_exported: int = 0
    spans_failed: int = 0
    """The endpoint did not accept them."""
    spans_dropped: int = 0
    """Dropped as the oldest from a full queue."""
    spans_waiting: int = 0
    errors_stopped: int = 0
    """Internal errors that were hidden from the application, since the process started."""
    values_unread: int = 0
    """Questions, answers and chunks without a readable text, since the process started."""
    feedback_recorded: int = 0
    feedback_refused: int = 0
    """Calls of ``feedback`` with an unusable target or value, since the process started."""


def statistics() -> CaptureStatistics:
    """Return the counts of recorded and lost spans."""
    installed = _installed
    recorded, refused = feedback_counts()
    return CaptureStatistics(
        errors_stopped=stopped(),
        values_unread=unread(),
        feedback_recorded=recorded,
        feedback_refused=refused,
        **({} if installed is None or installed.pipeline is None else installed.pipeline.counts()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installed:
    settings: Settings
    provider: TracerProvider
    pipeline: Pipeline | None
    watch: RagCallWatch
    export_switches: tuple[ExportSwitch, ...]
    libraries: InstrumentedLibraries
    restore_threads: Callable[[], None] | None


_lock = threading.RLock()  # two threads that start an application race to instrument it
_installed: _Installed | None = None
_export_switches: WeakKeyDictionary[TracerProvider, ExportSwitch] = WeakKeyDictionary()
_own: WeakKeyDictionary[TracerProvider, bool] = WeakKeyDictionary()


def _unlock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)  # its holder does not exist in the child


@guarded
def _resolved(*, quiet: bool | None, **arguments: Any) -> Settings:
    _show_log()
    be_quiet(wants_quiet(os.environ, quiet) is True)
    return resolve(os.environ, **arguments)


@guarded
def _switch_on(settings: Settings, provider: TracerProvider | None) -> bool:
    if settings.disabled:
        log.info("ragtrace: switched off by the environment")
        note("disabled")
        return False
    if _installed is not None:
        if settings != _installed.settings:
            log.warning("ragtrace: already instrumented, with other settings: call uninstrument() first")
        return True
    joined = provider or _application_provider()
    note("on", joined=joined is not None, target=settings.target, by=settings.target_by)
    if joined is None:
        _install(settings, _new_provider(settings), exporting=True)
    else:
        _install(settings, joined, exporting=settings.endpoint is not None)
    return True


def _install(settings: Settings, provider: TracerProvider, *, exporting: bool) -> None:
    global _installed
    from ragtrace.capture._threads import follow_threads
    from ragtrace.capture.pipeline import Pipeline, RagCallWatch

    pipeline, watch = Pipeline(settings) if exporting else None, RagCallWatch()
    export_switches = tuple(
        _export_switch(member) for member in {provider, *_own_global_provider()} if _takes(member)
    )
    for export_switch in export_switches:
        export_switch.pipeline, export_switch.watch = pipeline, watch
    from ragtrace.capture.libraries.instrumentors import InstrumentedLibraries, chosen
    from ragtrace.capture.libraries.langchain_runs import NestingProvider

    tracer = provider.get_tracer(
        semconv.SCOPE_CAPTURE, ragtrace.__version__, schema_url=semconv.GENAI_SCHEMA_URL
    )
    activate(Recorder(tracer=tracer, policy=settings.policy))
    libraries = InstrumentedLibraries(
        NestingProvider(_policed(provider, settings.policy)), content=settings.policy.foreign_content
    )
    _installed = _Installed(
        settings=settings,
        provider=provider,
        pipeline=pipeline,
        watch=watch,
        export_switches=export_switches,
        libraries=libraries,
        restore_threads=follow_threads() if settings.threads else None,
    )
    atexit.register(uninstrument)
    libraries.turn_on(chosen(settings.only, settings.exclude))


def _policed(provider: TracerProvider, policy: ContentPolicy) -> trace.TracerProvider:
    if policy.verbatim:
        return provider
    from ragtrace.capture.privacy.foreign import PolicedProvider

    return PolicedProvider(provider, policy)


@guarded
def _switch_off(timeout_s: float) -> bool:
    global _installed
    activate(None)
    installed, _installed = _installed, None
    atexit.unregister(uninstrument)
    if installed is None:
        return True
    installed.libraries.turn_off()
    if installed.restore_threads is not None:
        installed.restore_threads()
    for export_switch in installed.export_switches:
        export_switch.pipeline = export_switch.watch = None
    _report(installed)
    return installed.pipeline is None or installed.pipeline.close(timeout_s)


def _report(installed: _Installed) -> None:
    """Print a hint if something kept the spans from being judged."""
    installed.watch.report()
    if installed.pipeline is not None or not installed.watch.seen:
        return
    joined = getattr(installed.provider, "_active_span_processor", None)  # the SDK has no public access
    processors = getattr(joined, "_span_processors", None)
    if processors is not None and all(processor in installed.export_switches for processor in processors):
        hint(
            "nowhere",
            "spans ended in the application's own tracer provider, which has no exporter: give it one, or "
            "name an endpoint with `ragtrace.instrument(endpoint=…)`",
        )


@guarded
def _flush(timeout_s: float) -> bool:
    installed = _installed
    if installed is None:
        return True
    if installed.pipeline is not None:
        return installed.pipeline.flush(timeout_s)
    return installed.provider.force_flush(int(timeout_s * 1_000))


def _application_provider() -> TracerProvider | None:
    """Return the global provider if the application, not ragtrace, set it."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider) or provider in _own:
        return None
    if not _takes(provider):  # type: ignore[arg-type]
        log.warning("ragtrace: joins a tracer provider that is not from the OpenTelemetry SDK")
    return provider  # type: ignore[return-value]  # it makes tracers, whatever its class


def _own_global_provider() -> tuple[TracerProvider, ...]:
    provider = trace.get_tracer_provider()
    return (provider,) if provider in _own else ()  # type: ignore[return-value]  # ours are SDK providers


def _new_provider(settings: Settings) -> TracerProvider:
    """Make a provider. The SDK reads the sampler, the resource and other defaults from ``OTEL_*``."""
    from opentelemetry.sdk.trace import TracerProvider

    from ragtrace.capture.pipeline import new_resource, span_limits

    given = {semconv.SERVICE_NAME: settings.service_name} if settings.service_name else {}
    provider = TracerProvider(
        resource=new_resource(given), span_limits=span_limits(os.environ), shutdown_on_exit=False
    )
    _own[provider] = True
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
        logging.getLogger(trace.__name__).addFilter(_say_too_late)
    return provider


def _say_too_late(record: logging.LogRecord) -> bool:
    """Print a hint in place of OpenTelemetry's own line, which says neither why nor what to do."""
    if (
        not record.getMessage().startswith("Overriding of current TracerProvider")
        or not _own_global_provider()
    ):
        return True
    return not hint(
        "too late",
        "the application set its tracer provider after ragtrace.instrument(), so OpenTelemetry ignored it, "
        "and its exporters get no spans: call ragtrace.instrument() after set_tracer_provider()",
    )


def _takes(provider: TracerProvider) -> bool:
    return hasattr(provider, "add_span_processor")  # the SDK's providers do


def _export_switch(provider: TracerProvider) -> ExportSwitch:
    from ragtrace.capture.pipeline import ExportSwitch

    if provider not in _export_switches:
        _export_switches[provider] = ExportSwitch()
        provider.add_span_processor(_export_switches[provider])
    return _export_switches[provider]


@guarded
def _show_log() -> None:
    level = os.environ.get(LOG_LEVEL, "").strip().upper()
    if not level or any(type(handler) is logging.StreamHandler for handler in log.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.setLevel(level)
    log.addHandler(handler)
