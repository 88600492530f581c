"""Choose a reader by its address."""

from __future__ import annotations

from urllib.parse import urlsplit

from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.otlp_file_reader import OtlpFileReader
from ragtrace.backends.tempo import TempoReader
from ragtrace.backends.web import Access
from ragtrace.errors import ConfigError
from ragtrace.ports import TraceReader

__all__ = ["open_reader"]

_ACCEPTED = (
    "give jaeger:http://host:16686, tempo:http://host:3200, or otlp-file:PATH for a file of OTLP JSON lines"
)


def open_reader(source: str, *, access: Access | None = None) -> TraceReader:
    """Choose the reader for ``jaeger:URL``, ``tempo:URL``, a plain URL (Jaeger's), or ``otlp-file:PATH``.

    Raises:
        ConfigError: the address is none of these.
    """
    scheme, _, rest = source.partition(":")
    if scheme == "otlp-file" and rest:
        return OtlpFileReader(rest)
    address = rest if scheme in ("jaeger", "tempo") else source
    if not _is_http_url(address):
        raise ConfigError(f"{source!r} is no address to read traces from: {_ACCEPTED}")
    if scheme == "tempo":
        return TempoReader(address, access=access)
    return JaegerReader(address, access=access)


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
