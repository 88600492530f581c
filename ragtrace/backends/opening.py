"""Open a reader or a sink by its address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.langfuse import LangfuseReader
from ragtrace.backends.otlp_files import OtlpFileReader
from ragtrace.backends.otlp_sinks import (
    LOGS,
    TRACES,
    EvaluationLogSink,
    OtlpFileSink,
    OtlpGrpcSink,
    OtlpHttpSink,
    Signal,
)
from ragtrace.backends.phoenix import PhoenixReader
from ragtrace.backends.scores import LangfuseScoreSink, PhoenixAnnotationSink
from ragtrace.backends.tempo import TempoReader
from ragtrace.errors import ConfigError, InputError, SendError
from ragtrace.http import Sleep, without_secrets
from ragtrace.ports import SpanSink, TraceReader
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span

_SOURCES = (
    "give jaeger:http://host:16686, tempo:http://host:3200, phoenix:http://host:6006, langfuse:https://host, "
    "or otlp-file:PATH for a file or folder of OTLP"
)


def open_reader(
    source: str,
    *,
    access: ConnectionSettings | None = None,
    on_fault: Callable[[InputError], None] | None = None,
    sleep: Sleep = asyncio.sleep,
) -> TraceReader:
    """Open the reader for ``otlp-file:PATH``, or for a URL after ``jaeger:``, ``tempo:``, ``phoenix:`` or
    ``langfuse:``; a plain URL is Jaeger's.

    ``on_fault`` is called for unreadable parts of files, which are skipped; without it, they raise. ``sleep``
    waits between retries.

    Raises:
        ConfigError: the address has another form.
    """
    scheme, _, rest = source.partition(":")
    if scheme == "otlp-file" and rest:
        return OtlpFileReader(rest, on_fault=on_fault)
    address = rest if scheme in _OVER_HTTP else source
    try:
        url = urlsplit(address)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigError(f"{without_secrets(source)!r} is not an address to read traces from: {_SOURCES}")
    return _OVER_HTTP.get(scheme, JaegerReader)(address, access=access, sleep=sleep)


_OVER_HTTP: Final[Mapping[str, Callable[..., TraceReader]]] = {
    "jaeger": JaegerReader,
    "tempo": TempoReader,
    "phoenix": PhoenixReader,
    "langfuse": LangfuseReader,
}


_GRPC_PORT = 4317
_HTTP_PORT = 4318
_PHOENIX_PORT = 6006
_LOGS: Final = "logs"
_ACCEPTED = (
    "give http(s)://host:4318[/v1/traces] for OTLP/HTTP, grpc(s)://host:4317 or host:4317 for OTLP/gRPC, "
    "or otlp-file:PATH for a file of OTLP JSON lines"
)


def open_sink(endpoint: str, *, access: ConnectionSettings | None = None) -> SpanSink:
    """Open the sink for an address; it connects on the first ``send``.

    ``http(s)://host[:4318][/path]`` is OTLP/HTTP; without a path ``/v1/traces`` is added. ``grpc://``,
    ``grpcs://`` and a bare ``host:port`` (without TLS) are OTLP/gRPC. ``http(s)://host:4317`` without a path
    is OTLP/gRPC as well, because ``OTEL_EXPORTER_OTLP_ENDPOINT`` writes gRPC addresses in this form; so is
    every port that ends in these digits, such as 14317. ``otlp-file:PATH`` is a file.

    Raises:
        ConfigError: the address has another form, or files of ``access.tls`` cannot be used.
    """
    scheme, _, rest = endpoint.partition(":")
    if scheme == "otlp-file" and rest:
        return OtlpFileSink(rest)
    return _open_otlp(endpoint, TRACES, access)


def open_carrier_sink(address: str, *, access: ConnectionSettings | None = None) -> SpanSink:
    """Open a sink for carriers: also ``phoenix:URL`` and ``langfuse:URL``, which store their scores, and
    ``logs:ENDPOINT``, which gets a log record for each result and each wrong claim.

    These accept nothing but evaluations, so spans cannot be forwarded to them. ``ENDPOINT`` has the forms of
    OTLP endpoints; of a URL, ``/v1/logs`` is added unless it ends so.

    Raises:
        ConfigError: the address has another form.
    """
    scheme, _, url = address.partition(":")
    if accepts_spans(address):
        return open_sink(address, access=access)
    if accepts_logs(address):
        return EvaluationLogSink(open_logs_sink(address, access=access))
    if _split(url).scheme not in ("http", "https"):
        raise ConfigError(
            f"{without_secrets(address)!r} is not an address to send scores to: give {scheme}:http(s)://host"
        )
    return _SCORE_SINKS[scheme](url.rstrip("/"), access=access)


def open_logs_sink(address: str, *, access: ConnectionSettings | None = None) -> SpanSink:
    """Open the sink for ``logs:ENDPOINT`` itself: it sends any ``ExportLogsServiceRequest``.

    Raises:
        ConfigError: the address has another form.
    """
    return _open_otlp(address.removeprefix(f"{_LOGS}:"), LOGS, access)


def accepts_logs(address: str) -> bool:
    """Say whether what is at an address accepts any log records, not only evaluations."""
    return address.startswith(f"{_LOGS}:") and not accepts_spans(address)


def accepts_spans(address: str) -> bool:
    """Say whether what is at an address accepts any spans, not only evaluations.

    ``phoenix:4317`` is a host of this name, with its port.
    """
    scheme, _, rest = address.partition(":")
    return rest.isdigit() or scheme not in (_LOGS, *_SCORE_SINKS)


def reads_openinference(address: str) -> bool:
    """Say whether what is at an OTLP address is known to read OpenInference's ``evaluations.<i>.*`` of spans.

    Phoenix over HTTP (by its port, 6006, or its host name) and Arize. Phoenix over gRPC has the port of every
    other back end: name it in the configuration.
    """
    scheme, _, _ = address.partition(":")
    if scheme == "otlp-file" or not accepts_spans(address):
        return False
    url = _split(address)
    host = (url.hostname or "").lower()
    return (
        url.port == _PHOENIX_PORT or host == "arize.com" or host.endswith(".arize.com") or "phoenix" in host
    )


_SCORE_SINKS: Final[Mapping[str, Callable[..., SpanSink]]] = {
    "phoenix": PhoenixAnnotationSink,
    "langfuse": LangfuseScoreSink,
}


def _open_otlp(endpoint: str, signal: Signal, access: ConnectionSettings | None) -> SpanSink:
    url = _split(endpoint)
    if url.scheme in ("http", "https") and not _is_grpc(url):
        return OtlpHttpSink(_signal_url(url, signal), access=access, signal=signal)
    address = f"{_bracketed(url.hostname or '')}:{url.port or _GRPC_PORT}"
    return OtlpGrpcSink(address, insecure=url.scheme in ("http", "grpc"), access=access, signal=signal)


def _split(endpoint: str) -> SplitResult:
    if "@" in endpoint.partition("?")[0]:
        raise ConfigError("an OTLP endpoint holds a user or password: give them as a header instead")
    is_bare = "://" not in endpoint
    try:
        url = urlsplit(f"grpc://{endpoint}" if is_bare else endpoint)
        is_address = url.scheme in ("http", "https", "grpc", "grpcs") and bool(url.hostname)
        if url.scheme in ("grpc", "grpcs"):
            is_address = is_address and url.path in ("", "/") and not (is_bare and url.port is None)
        is_address = is_address and url.port != 0 and not any(map(str.isspace, endpoint))
    except ValueError:  # such as a port that is no number
        is_address = False
    if not is_address:
        raise ConfigError(f"{without_secrets(endpoint)!r} is not an address to send spans to: {_ACCEPTED}")
    return url


def _is_grpc(url: SplitResult) -> bool:
    return url.path in ("", "/") and str(url.port).endswith(str(_GRPC_PORT))


def _signal_url(url: SplitResult, signal: Signal) -> str:
    host = _bracketed(url.hostname or "")
    netloc = f"{host}:{url.port or _HTTP_PORT}" if url.scheme == "http" else url.netloc
    path = signal.path if url.path in ("", "/") else url.path
    if signal is LOGS and not path.endswith(
        signal.path
    ):  # log stores give the path before it: Loki's is /otlp
        path = path.rstrip("/") + signal.path
    return url._replace(netloc=netloc, path=path).geturl()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class MemorySink:
    """Keeps every request. It first raises ``failures``, one per request, then accepts everything."""

    def __init__(self, *, failures: Iterable[SendError] = ()) -> None:
        self.requests: list[bytes] = []
        """Accepted requests, in order."""
        self._failures = list(failures)

    @property
    def name(self) -> str:
        """``memory``."""
        return "memory"

    @property
    def spans(self) -> tuple[Span, ...]:
        """All accepted spans, in order."""
        return tuple(span for request in self.requests for span in decode(request))

    async def send(self, request: bytes) -> None:
        """Keep the request, or raise the next planned failure."""
        if self._failures:
            raise self._failures.pop(0)
        self.requests.append(request)

    async def aclose(self) -> None:
        """Do nothing: tests read the requests after the sink is closed."""
