"""What ``instrument()`` was configured with: by code, else by the environment, else a default."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from ragtrace.capture._guard import guarded, log
from ragtrace.capture.privacy.policy import MODES, SHORTEST_KEY, ContentMode, ContentPolicy, Redact, possible

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
    capture: bool | None,
    content: ContentPolicy | ContentMode | None,
    redact: Redact | None,
) -> ContentPolicy:
    """Return the policy with its mode: ``off`` if the requested mode is unknown or not available."""
    if isinstance(content, ContentPolicy | None):
        policy = content or ContentPolicy()
        told = policy.mode
    else:  # a word, or a mistake such as False: an unknown value records nothing
        policy, told = ContentPolicy(), _mode(str(content), "content")
    mode = _with_short_form(told, capture) or _mode_by_env(env)
    key = policy.key or env.get(KEY) or None
    if key is not None and len(key) < SHORTEST_KEY:
        log.error("ragtrace: content is off: %s has less than %d characters", KEY, SHORTEST_KEY)
        mode, key = "off", None
    return replace(policy, mode=possible(mode), key=key, redact=redact or policy.redact)


def _with_short_form(told: ContentMode | None, capture: bool | None) -> ContentMode | None:
    if capture is None:
        return told
    if not capture:
        return "off"
    return told if told in {"redacted", "hashed"} else "on"


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
    exporters: tuple[str, ...]
    """Of ``OTEL_TRACES_EXPORTER``: ``otlp``, ``console`` or nothing."""
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
    capture_content: bool | None = None,
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
        exporters=("otlp",) if endpoint is not None else _exporters(env),
        policy=resolved_policy(env, capture_content, content, redact),
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


def _exporters(env: Mapping[str, str]) -> tuple[str, ...]:
    named = [name.strip().lower() for name in env.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    for name in named:
        if name not in {"otlp", "console", "none", ""}:
            log.error("ragtrace: OTEL_TRACES_EXPORTER %r is not supported: use otlp, console or none", name)
    return tuple(name for name in named if name in {"otlp", "console"})


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
