"""Switch capture on and off, as code says, else the environment, else a default."""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from opentelemetry import trace

import ragtrace
from ragtrace import semconv
from ragtrace.capture._guard import Recorder, activate, be_quiet, counts, guarded, hint, log
from ragtrace.capture.privacy.policy import MODES, SHORTEST_KEY, ContentMode, ContentPolicy, Redact, possible

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from ragtrace.capture.libraries.instrumentors import InstrumentedLibraries
    from ragtrace.capture.pipeline import ExportSwitch, Pipeline, RagCallWatch


CONTENT = "RAGTRACE_CAPTURE_CONTENT"
KEY = "RAGTRACE_CONTENT_KEY"
_OTEL_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_NOT_ON_SPANS = frozenset({"no_content", "event_only", "false"})
_SHORT_FORMS: Mapping[str, ContentMode] = {
    **dict.fromkeys(("1", "true", "yes"), "on"),
    **dict.fromkeys(("0", "false", "no"), "off"),
    **{mode: mode for mode in MODES},
}


def resolved_policy(
    env: Mapping[str, str],
    content: ContentPolicy | ContentMode | None,
    redact: Redact | None,
) -> ContentPolicy:
    """Return the policy with its mode: ``off`` if the requested mode is unknown or not available."""
    if isinstance(content, ContentPolicy | None):
        policy = content or ContentPolicy()
        told = policy.mode
    else:  # a word, or a mistake such as False: an unknown value records nothing
        policy, told = ContentPolicy(), _mode(str(content), "content")
    mode = told or _mode_by_env(env)
    key = policy.key or env.get(KEY) or None
    if key is not None and len(key) < SHORTEST_KEY:
        log.error("ragtrace: content is off: %s has less than %d characters", KEY, SHORTEST_KEY)
        mode, key = "off", None
    return replace(policy, mode=possible(mode), key=key, redact=redact or policy.redact)


def _mode_by_env(env: Mapping[str, str]) -> ContentMode:
    word = env.get(CONTENT, "").strip()
    if word:
        return _mode(word, CONTENT)
    return "off" if env.get(_OTEL_CONTENT, "").strip().lower() in _NOT_ON_SPANS else "on"


def _mode(word: str, where: str) -> ContentMode:
    mode = _SHORT_FORMS.get(word.strip().lower())
    if mode is None:
        log.error("ragtrace: %s is none of %s: content is off", where, ", ".join(MODES))
    return mode or "off"


Protocol = Literal["grpc", "http/protobuf"]

MAX_QUEUE_BYTES: Final = 64 << 20
LOG_LEVEL = "RAGTRACE_LOG_LEVEL"
ENDPOINT_OVERRIDE = "RAGTRACE_ENDPOINT_OVERRIDE"
"""Overrides the code: ``ragtrace doctor --app`` uses it to receive the spans of an unchanged application."""
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_HTTP_PORTS = (4318, 4328)
"""The OTLP default, which the ragtrace collector uses too."""
_TRACES_PATH = "/v1/traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one ``instrument()``; two calls with equal settings are the same call."""

    disabled: bool
    service_name: str | None
    endpoint: str | None
    """In the exporter's form; ``None`` leaves it to the ``OTEL_EXPORTER_OTLP_*`` variables."""
    protocol: Protocol
    headers: tuple[tuple[str, str], ...]
    exports: bool
    """Not if ``OTEL_TRACES_EXPORTER`` is ``none``."""
    policy: ContentPolicy
    only: frozenset[str] | None = None
    """The libraries to instrument, by name; ``None`` means all known libraries."""
    exclude: frozenset[str] = frozenset()
    threads: bool = True
    """Whether a call is carried into the threads that it starts."""
    max_queue_bytes: int = MAX_QUEUE_BYTES
    """The memory limit of the export queue."""
    target: str = ""
    """The destination, for messages; without credentials."""
    target_by: Literal["code", "environment", "default"] = "default"
    """The source of the endpoint setting."""


def resolve(
    env: Mapping[str, str],
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    protocol: str | None = None,
    headers: Mapping[str, str] | None = None,
    content: ContentPolicy | ContentMode | None = None,
    redact: Redact | None = None,
    only: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    threads: bool = True,
    max_queue_bytes: int | None = None,
) -> Settings:
    """Resolve each setting: code first, then environment, then default."""
    by_code, by_env = endpoint, _named_by(env)
    if override := env.get(ENDPOINT_OVERRIDE):
        endpoint, protocol, headers = override, None, None
    spoken = _protocol(env, endpoint, protocol)
    return Settings(
        disabled=_flag(env, "RAGTRACE_DISABLED") is True or _flag(env, "OTEL_SDK_DISABLED") is True,
        service_name=service_name,
        endpoint=None if endpoint is None else _endpoint(endpoint, spoken),
        protocol=spoken,
        headers=tuple((key.lower(), value) for key, value in (headers or {}).items()),
        exports=endpoint is not None or _exports(env),
        policy=resolved_policy(env, content, redact),
        only=_names(only, env.get("RAGTRACE_ONLY")),
        exclude=_names(exclude, env.get("RAGTRACE_EXCLUDE")) or frozenset(),
        threads=bool(threads),
        max_queue_bytes=_queue_bytes(env, max_queue_bytes),
        target=_shown(by_code or by_env or _DEFAULT_TARGET[spoken]),
        target_by="code" if by_code else "environment" if by_env else "default",
    )


def cooperative(settings: Settings, env: Mapping[str, str]) -> Settings:
    """Return settings that suit gevent and eventlet: gRPC would block all their greenlets while it waits.

    Spans then go by HTTP, to the usual HTTP port if the endpoint has the usual gRPC port.
    """
    by = next((library for library, (module, asks) in _GREEN.items() if _is_patched(module, asks)), None)
    if by is None or settings.protocol != "grpc":
        return settings
    endpoint = settings.endpoint or _named_by(env)
    target = _DEFAULT_TARGET["http/protobuf"]
    if endpoint is not None:
        endpoint = _endpoint(_GRPC_PORT.sub(lambda port: f":{int(port[1]) + 1}", endpoint), "http/protobuf")
        target = _shown(endpoint.removesuffix(_TRACES_PATH))
    log.info("ragtrace: %s replaced the sockets, so spans go by HTTP, to %s", by, target)
    return replace(settings, protocol="http/protobuf", endpoint=endpoint, target=target)


_GREEN: Final = {
    "gevent": ("gevent.monkey", "is_module_patched"),
    "eventlet": ("eventlet.patcher", "is_monkey_patched"),
}
_GRPC_PORT: Final = re.compile(r":(4317|4327)(?=/|$)")


def _is_patched(module: str, asks: str) -> bool:
    ask = getattr(sys.modules.get(module), asks, None)
    return ask is not None and ask("socket") is True


@guarded
def wants_quiet(env: Mapping[str, str], argument: bool | None) -> bool:
    """Return whether hints go to the log only: from code, else from ``RAGTRACE_QUIET``."""
    return _flag(env, "RAGTRACE_QUIET") is True if argument is None else bool(argument)


_DEFAULT_TARGET: Final[Mapping[Protocol, str]] = {
    "grpc": "http://localhost:4317",
    "http/protobuf": "http://localhost:4318",
}
"""OpenTelemetry's defaults."""


def _named_by(env: Mapping[str, str]) -> str | None:
    return env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")


def _shown(endpoint: str) -> str:
    """Remove possible secrets: the user and the query."""
    try:
        parts = urlsplit(_with_scheme(endpoint))
    except ValueError:
        return "(no address)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _names(argument: Iterable[str] | None, by_env: str | None) -> frozenset[str] | None:
    if argument is None:
        argument = None if by_env is None else by_env.split(",")
    elif isinstance(argument, str):
        argument = [argument]
    return None if argument is None else frozenset(name.strip().lower() for name in argument if name.strip())


def _protocol(env: Mapping[str, str], endpoint: str | None, argument: str | None) -> Protocol:
    by_env = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    name = (argument or by_env or "").strip().lower()
    if name == "grpc":
        return "grpc"
    if name == "http/protobuf":
        return "http/protobuf"
    if name:
        log.error("ragtrace: OTLP protocol %r is not supported: use 'grpc' or 'http/protobuf'", name)
    return "http/protobuf" if _looks_like_http(endpoint or _named_by(env) or "") else "grpc"


def _looks_like_http(endpoint: str) -> bool:
    try:
        parts = urlsplit(_with_scheme(endpoint))
        return parts.port in _HTTP_PORTS or parts.path.rstrip("/").endswith(_TRACES_PATH)
    except ValueError:
        return False


def _endpoint(endpoint: str, protocol: Protocol) -> str:
    url = _with_scheme(endpoint)
    if protocol == "grpc" or url.rstrip("/").endswith(_TRACES_PATH):
        return url
    return url.rstrip("/") + _TRACES_PATH


def _with_scheme(endpoint: str) -> str:
    # The gRPC exporter parses `localhost:4317` as a URL with the scheme `localhost` and then uses TLS.
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def _exports(env: Mapping[str, str]) -> bool:
    named = env.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if named not in {"otlp", "none", ""}:
        log.error("ragtrace: OTEL_TRACES_EXPORTER %r is not supported: use otlp or none", named)
    return named == "otlp"


def _queue_bytes(env: Mapping[str, str], argument: int | None) -> int:
    given: object = env.get("RAGTRACE_MAX_QUEUE_BYTES", "").strip() if argument is None else argument
    if given == "":
        return MAX_QUEUE_BYTES
    number = int(given) if isinstance(given, int) or (isinstance(given, str) and given.isdecimal()) else 0
    if number > 0:
        return number
    log.error("ragtrace: max_queue_bytes is not a number of bytes above 0: using %d", MAX_QUEUE_BYTES)
    return MAX_QUEUE_BYTES


def _flag(env: Mapping[str, str], key: str) -> bool | None:
    value = env.get(key, "").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    if value:
        log.error("ragtrace: %s=%r is neither true nor false: ignored", key, value)
    return None


JOURNAL: Final = "RAGTRACE_DOCTOR_JOURNAL"


@guarded
def note(event: str, **facts: str | bool | None) -> None:
    """Write what ``instrument()`` did to the journal file of ``ragtrace doctor --app``, if there is one.

    No line contains captured content.
    """
    path = os.environ.get(JOURNAL)
    if not path:
        return
    line = json.dumps({"event": event, "pid": os.getpid(), **facts})
    file = os.open(path, os.O_WRONLY | os.O_APPEND)  # no O_CREAT: the doctor made it
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def instrument(
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    protocol: Protocol | None = None,
    headers: Mapping[str, str] | None = None,
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

    Known libraries (``ragtrace.capture.libraries.instrumentors``) are instrumented on import, unless already
    traced. ``RAGTRACE_DISABLED`` or ``OTEL_SDK_DISABLED`` keep it off. ``RAGTRACE_LOG_LEVEL`` shows logs.
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
    return CaptureStatistics(
        **counts,
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
    from ragtrace.capture._recording import follow_threads
    from ragtrace.capture.pipeline import Pipeline, RagCallWatch

    pipeline, watch = Pipeline(settings) if exporting else None, RagCallWatch()
    export_switches = tuple(
        _export_switch(member) for member in {provider, *_own_global_provider()} if _takes(member)
    )
    for export_switch in export_switches:
        export_switch.pipeline, export_switch.watch = pipeline, watch
    from ragtrace.capture.libraries.instrumentors import InstrumentedLibraries, chosen
    from ragtrace.capture.tracers import NestingProvider

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
    from ragtrace.capture.tracers import PolicedProvider

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
    installed.watch.report()
    return installed.pipeline is None or installed.pipeline.close(timeout_s)


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
