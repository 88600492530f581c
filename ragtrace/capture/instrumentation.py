"""Switch capture on and off."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry import trace

import ragtrace
from ragtrace import semconv
from ragtrace.capture._guard import guarded, log, stopped, unread
from ragtrace.capture._hints import be_quiet, hint
from ragtrace.capture._recorder import Recorder, activate
from ragtrace.capture.feedback_call import feedback_counts
from ragtrace.capture.journal import note
from ragtrace.capture.privacy.policy import ContentMode, ContentPolicy, Redact
from ragtrace.capture.settings import LOG_LEVEL, Protocol, Settings, resolve, wants_quiet

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from ragtrace.capture._watch import RagCallWatch
    from ragtrace.capture.libraries.instrumentors import InstrumentedLibraries
    from ragtrace.capture.pipeline import ExportSwitch, Pipeline


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
    max_queue_bytes: int | None = None,
    quiet: bool | None = None,
) -> bool:
    """Switch capture on and return whether it is; before this the span helpers do nothing.

    The libraries of ``ragtrace.capture.libraries._table`` are instrumented as the application imports them,
    except those that somebody else already traces.

    If the application has an OpenTelemetry SDK provider, ragtrace joins it: its sampler, resource and
    exporters hold, and only an ``endpoint`` given here adds an exporter. Else a provider is made from the
    ``OTEL_*`` variables and set as the global one. What is given here goes before the environment. A second
    call changes nothing: call [`uninstrument`][ragtrace.capture.instrumentation.uninstrument] first. It never
    raises.

    Args:
        service_name: Else ``OTEL_SERVICE_NAME``. Without effect where a provider is joined.
        endpoint: ``http://host:4317`` (gRPC) or ``http://host:4318`` (HTTP); ``https://`` for TLS. Else
            ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT``.
        protocol: Else ``OTEL_EXPORTER_OTLP_PROTOCOL``, else by the endpoint's port, else gRPC.
        headers: Sent with every export, such as an authorization.
        capture_content: ``True`` and ``False`` in short for ``content="on"`` and ``"off"``.
        content: ``"on"``, ``"redacted"`` (needs the extra ``privacy``), ``"hashed"`` or ``"off"``: how
            questions, chunks and answers are recorded; or a policy with limits too. Else
            ``RAGTRACE_CAPTURE_CONTENT``, else off if ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``
            says ``NO_CONTENT`` or ``EVENT_ONLY``, else on: there is nothing to judge without.
        redact: Called as ``redact(text, part)`` for every text before it is recorded.
        tracer_provider: The provider to join, where it is not the global one.
        only: The libraries to instrument, by name: ``["openai", "qdrant"]``. Else ``RAGTRACE_ONLY``, with
            commas; else all. An empty list leaves every library alone.
        exclude: The libraries to leave alone. Else ``RAGTRACE_EXCLUDE``.
        max_queue_bytes: What spans that wait for their endpoint may take of memory, about; beyond it, the
            oldest are dropped and counted. Else ``RAGTRACE_MAX_QUEUE_BYTES``, else 64 MiB. Without effect on
            the exporters of a provider that is joined.
        quiet: Keep off stderr what keeps verdicts from coming (a library without its instrumentor, an
            endpoint that takes nothing, spans without a RAG call): each is said there once. The log has it
            all the same. Else ``RAGTRACE_QUIET``.

    ``RAGTRACE_DISABLED`` or ``OTEL_SDK_DISABLED`` keep it off. ``RAGTRACE_LOG_LEVEL`` shows diagnostics.
    """
    with _lock:
        _show_log()
        be_quiet(wants_quiet(os.environ, quiet) is True)
        settings = _settled(
            service_name=service_name,
            endpoint=endpoint,
            protocol=protocol,
            headers=headers,
            capture_content=capture_content,
            content=content,
            redact=redact,
            only=only,
            exclude=exclude,
            max_queue_bytes=max_queue_bytes,
        )
        return settings is not None and _switch_on(settings, tracer_provider) is True


def uninstrument(timeout_s: float = 30.0) -> bool:
    """Switch capture off, send what is queued, and return whether all of it was taken.

    OpenTelemetry cannot unset a global provider: one that ragtrace set stays, but exports nothing any more.
    An endpoint that shows no sign of life for two seconds is given up.
    """
    with _lock:
        return _switch_off(timeout_s) is not False


def flush(timeout_s: float = 10.0) -> bool:
    """Send what is queued and return whether all of it was taken in time."""
    return _flush(timeout_s) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatistics:
    """What became of the spans since ``instrument()``, if they went through an exporter of ragtrace's."""

    spans_ended: int = 0
    spans_exported: int = 0
    spans_failed: int = 0
    """The endpoint did not take them."""
    spans_dropped: int = 0
    """They were too many, or too large, to wait for the endpoint: the oldest."""
    spans_waiting: int = 0
    errors_stopped: int = 0
    """Errors of ragtrace's own that were kept from the application, since the process began."""
    values_unread: int = 0
    """Questions, answers and chunks in which no text was found, since the process began."""
    feedback_recorded: int = 0
    feedback_refused: int = 0
    """Calls of ``feedback`` whose target or values could not be used; both since the process began."""


def statistics() -> CaptureStatistics:
    """Count what was recorded, and what was lost on the way."""
    installed, feedback = _installed, feedback_counts()
    told = CaptureStatistics(
        errors_stopped=stopped(),
        values_unread=unread(),
        feedback_recorded=feedback.recorded,
        feedback_refused=feedback.refused,
    )
    if installed is None or installed.pipeline is None:
        return told
    counts = installed.pipeline.counts()
    return replace(
        told,
        spans_ended=counts.ended,
        spans_exported=counts.exported,
        spans_failed=counts.failed,
        spans_dropped=counts.dropped,
        spans_waiting=counts.waiting,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installed:
    settings: Settings
    provider: TracerProvider
    pipeline: Pipeline | None
    watch: RagCallWatch
    export_switches: tuple[ExportSwitch, ...]
    libraries: InstrumentedLibraries


_lock = threading.RLock()  # two threads that start an application race to instrument it
_installed: _Installed | None = None
_export_switches: WeakKeyDictionary[TracerProvider, ExportSwitch] = WeakKeyDictionary()
_own: WeakKeyDictionary[TracerProvider, bool] = WeakKeyDictionary()


def _unlock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock)  # whoever held it is not in the child


@guarded
def _settled(**told: Any) -> Settings:
    return resolve(os.environ, **told)


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
    from ragtrace.capture._watch import RagCallWatch
    from ragtrace.capture.pipeline import Pipeline

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
    for export_switch in installed.export_switches:
        export_switch.pipeline = export_switch.watch = None
    _report(installed)
    return installed.pipeline is None or installed.pipeline.close(timeout_s)


def _report(installed: _Installed) -> None:
    """Say what kept the spans from being judged, if something did."""
    installed.watch.report()
    if installed.pipeline is not None or not installed.watch.seen:
        return
    joined = getattr(installed.provider, "_active_span_processor", None)  # the SDK says it nowhere else
    processors = getattr(joined, "_span_processors", None)
    if processors is not None and all(each in installed.export_switches for each in processors):
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
    """Return the global provider if the application set one; one of our own does not count."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider) or provider in _own:
        return None
    if not _takes(provider):  # type: ignore[arg-type]
        log.warning("ragtrace: joins a tracer provider that is not of the OpenTelemetry SDK")
    return provider  # type: ignore[return-value]  # whatever it is, it makes tracers


def _own_global_provider() -> tuple[TracerProvider, ...]:
    provider = trace.get_tracer_provider()
    return (provider,) if provider in _own else ()  # type: ignore[return-value]  # ours are of the SDK


def _new_provider(settings: Settings) -> TracerProvider:
    """Make a provider. The SDK reads sampler, resource and whatever code does not say from ``OTEL_*``."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from ragtrace.capture.pipeline import span_limits

    given = {semconv.SERVICE_NAME: settings.service_name} if settings.service_name else {}
    provider = TracerProvider(
        resource=Resource.create(given), span_limits=span_limits(os.environ), shutdown_on_exit=False
    )
    _own[provider] = True
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    return provider


def _takes(provider: TracerProvider) -> bool:
    return hasattr(provider, "add_span_processor")  # those of the SDK do


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
