"""Choose a reader by its address."""

from __future__ import annotations

from urllib.parse import urlsplit

from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.otlp_file import OtlpFileReader
from ragtrace.errors import ConfigError
from ragtrace.ports import TraceReader

__all__ = ["open_reader"]

_ACCEPTED = "give otlp-file:PATH for a file of OTLP JSON lines, or jaeger:http://host:16686 for Jaeger"


def open_reader(source: str) -> TraceReader:
    """Choose the reader for ``otlp-file:PATH``, ``jaeger:http://host:16686`` or a plain URL (Jaeger's).

    Raises:
        ConfigError: the address is none of these.
    """
    scheme, _, rest = source.partition(":")
    if scheme == "otlp-file" and rest:
        return OtlpFileReader(rest)
    address = rest if scheme == "jaeger" else source
    if not _is_http_url(address):
        raise ConfigError(f"{source!r} is no address to read traces from: {_ACCEPTED}")
    return JaegerReader(address)


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
