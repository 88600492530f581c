"""Open a reader by its address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from ragtrace.backends._jaeger_grpc import JaegerGrpcReader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.langfuse import LangfuseReader
from ragtrace.backends.otlp_reader import OtlpFileReader
from ragtrace.backends.phoenix import PhoenixReader
from ragtrace.backends.tempo import TempoReader
from ragtrace.errors import ConfigError, InputError
from ragtrace.http import Sleep, without_secrets
from ragtrace.ports import TraceReader

_ACCEPTED = (
    "give jaeger:http://host:16686, jaeger:grpc://host:16685, tempo:http://host:3200, "
    "phoenix:http://host:6006, langfuse:https://host, or otlp-file:PATH for a file or folder of OTLP"
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

    A Jaeger URL may begin with ``http``, ``https``, ``grpc`` or ``grpcs``. ``on_fault`` is called for
    unreadable parts of files, which are skipped; without it, they raise. ``sleep`` waits between retries.

    Raises:
        ConfigError: the address has another form.
    """
    scheme, _, rest = source.partition(":")
    if scheme == "otlp-file" and rest:
        return OtlpFileReader(rest, on_fault=on_fault)
    address = rest if scheme == "jaeger" or scheme in _OVER_HTTP else source
    url = _split(address)
    if scheme not in _OVER_HTTP and url is not None and url.scheme in ("grpc", "grpcs"):
        endpoint, insecure = url.netloc.rpartition("@")[2], url.scheme == "grpc"
        return JaegerGrpcReader(endpoint, insecure=insecure, access=_with_login(access, url), sleep=sleep)
    if url is None or url.scheme not in ("http", "https"):
        raise ConfigError(f"{without_secrets(source)!r} is not an address to read traces from: {_ACCEPTED}")
    return _OVER_HTTP.get(scheme, JaegerReader)(address, access=access, sleep=sleep)


_OVER_HTTP: Final[Mapping[str, Callable[..., TraceReader]]] = {
    "tempo": TempoReader,
    "phoenix": PhoenixReader,
    "langfuse": LangfuseReader,
}


def _with_login(access: ConnectionSettings | None, url: SplitResult) -> ConnectionSettings | None:
    """Let the login of an address precede others, as over HTTP."""
    if url.username is None:
        return access
    login = (unquote(url.username), unquote(url.password or ""))
    return replace(access or ConnectionSettings(), basic=login, token=None)


def _split(text: str) -> SplitResult | None:
    try:
        url = urlsplit(text)
        is_address = url.hostname and url.port != 0
    except ValueError:
        return None
    return url if is_address else None
