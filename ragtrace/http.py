"""Outgoing HTTP: the one way to a client, what is tried again, TLS, and the SDK's exporters.

| what | how |
| --- | --- |
| TLS | ``verify``, from `ClientTls.context`; by default certifi's or ``SSL_CERT_FILE`` |
| proxies | from ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, as httpx reads them |
| redirects | never followed: the target would get content and token; `redirected_to` names its host only |
| replies | at most ``most_bytes``, compressed or not, counted while they are read: a zip bomb ends there |
| a login in the URL | sent as ``authorization: Basic``, and gone from the URL before httpx logs it |
| time-outs | ``timeout_s`` for each piece; the caller bounds the whole with ``asyncio.timeout`` |

An SDK takes such a client as its ``http_client``: ``AsyncOpenAI(http_client=open_client(…), max_retries=0)``.
Or it makes its own of `client_options`. Then reading a reply raises `BodyTooLarge` or `UnreadableBody`; an
SDK may make it the cause of its own error. `tests/architecture/test_names.py` checks that no other module
creates a client.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urljoin, urlsplit

from ragtrace.errors import ConfigError
from ragtrace.text import bounded_wait_s

if TYPE_CHECKING:
    import ssl

    import grpc
    import httpx
    import requests
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter


_PLAIN: Final = ("", "identity")
_PACKED: Final = ("gzip", "x-gzip", "deflate")
_OF_EITHER_KIND: Final = zlib.MAX_WBITS | 32
_MIB: Final = 1 << 20
_REDIRECTS_TO: Final = "ragtrace.redirects_to"
ASKED_CODING: Final = {"accept-encoding": "gzip"}
"""The encodings that `Body` supports, even if installed packages support more."""


def open_client(
    *,
    timeout_s: float,
    most_bytes: int,
    verify: ssl.SSLContext | bool = True,
    headers: Mapping[str, str] | None = None,
) -> httpx.AsyncClient:
    """Open a client. Its responses are read as any of httpx: ``await response.aread()``, streamed or not.

    Args:
        timeout_s: For each piece of an exchange, not for the whole.
        most_bytes: The size limit of one reply, compressed and decompressed.
        verify: How servers are trusted, with the client's certificate.
        headers: Sent with every request.

    Reading a reply raises `BodyTooLarge` beyond ``most_bytes``, and `UnreadableBody` if it cannot be
    decompressed, is cut off, or has an encoding that was not requested.
    """
    import httpx

    return httpx.AsyncClient(
        **client_options(most_bytes, headers),
        verify=verify,
        timeout=timeout_s,
    )


def client_options(most_bytes: int, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what keeps redirects, replies and logins in bounds, for an SDK's own httpx-like client."""
    return {
        "follow_redirects": False,
        "headers": {**ASKED_CODING, **(headers or {})},
        "event_hooks": {"request": [_hide_login], "response": [_bounding(most_bytes)]},
    }


def without_secrets(url: str) -> str:
    """Return a URL, or what should be one, without user, password and query."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{mark}{rest.partition('?')[0].rpartition('@')[2]}"


def redirected_to(response: httpx.Response) -> str | None:
    """Return the host of a redirect, which the client did not follow; ``None`` if it is not a redirect."""
    host: str | None = response.extensions[_REDIRECTS_TO]
    return host


def host_of_redirect(status: int, location: str | None, *, asked: str) -> str | None:
    """Return the host of a redirect, or ``None`` if the response is not a redirect.

    Only the host, because user, path and query may hold secrets.
    """
    if not 300 <= status < 400 or not location:
        return None
    try:
        host = urlsplit(urljoin(asked, location)).hostname
    except ValueError:
        host = None
    return host if host and host.isprintable() else "no address"


async def _hide_login(request: Any) -> None:
    # httpx has made the header by now; its log line and its errors show the URL
    if request.url.userinfo:
        request.url = request.url.copy_with(username=None, password=None)


def _bounding(most_bytes: int) -> Any:
    async def bound(response: Any) -> None:
        location = response.headers.pop("location", None)  # or httpx would read it, and quote what is none
        response.extensions[_REDIRECTS_TO] = host_of_redirect(
            response.status_code, location, asked=str(response.request.url)
        )
        coding = response.headers.pop("content-encoding", None)  # or httpx would decompress, without a limit
        kind = _bounded_stream(_package_of(response))
        response.stream = kind(response.stream, coding, most_bytes)

    return bound


def _package_of(response: Any) -> str:
    """Return ``httpx``, or the name of an SDK's copy of it."""
    return type(response).__module__.partition(".")[0]


@cache
def _bounded_stream(package: str) -> Any:
    """Return a stream class for the responses of a package, which accepts only its own."""
    kind: Any = import_module(package).AsyncByteStream

    class BoundedStream(kind):  # type: ignore[misc]  # one of two packages' classes
        """Another stream, decompressed, up to a limit."""

        def __init__(self, inner: Any, coding: str | None, most_bytes: int) -> None:
            self._inner = inner
            self._coding = coding
            self._most_bytes = most_bytes

        async def __aiter__(self) -> AsyncIterator[bytes]:
            body = Body(self._coding, most_bytes=self._most_bytes)
            async for piece in self._inner:
                body.take(piece)
            yield body.whole()

        async def aclose(self) -> None:
            await self._inner.aclose()

    return BoundedStream


class UnreadableBody(Exception):
    """A response body cannot be read. The message gives the reason and quotes nothing of the body."""


class BodyTooLarge(UnreadableBody):
    """A response body exceeds the limit, compressed or decompressed."""


class Body:
    """Collects the pieces of one body. It holds at most ``most_bytes``, also after decompression.

    Nested encodings (``gzip, gzip``) and unrequested ones (``br``, ``zstd``) are refused.

    Raises:
        UnreadableBody: it has such an encoding.
    """

    def __init__(self, coding: str | None, *, most_bytes: int) -> None:
        self._unpacking = _unpacking(coding or "")
        self._most_bytes = most_bytes
        self._came_bytes = 0
        self._held = BytesIO()

    def take(self, piece: bytes) -> None:
        """Add the next received piece.

        Raises:
            BodyTooLarge: the body now exceeds the limit.
            UnreadableBody: it cannot be decompressed.
        """
        self._came_bytes += len(piece)
        left = self._most_bytes - self._held.tell()
        plain = piece if self._unpacking is None else self._unpacked(piece, left + 1)
        if self._came_bytes > self._most_bytes or len(plain) > left:
            self._held = BytesIO()  # the error's traceback would keep the data in memory
            raise BodyTooLarge(f"it is longer than {_amount(self._most_bytes)}, the most that ragtrace reads")
        self._held.write(plain)

    def whole(self) -> bytes:
        """Return the complete body, after the last piece.

        Raises:
            UnreadableBody: it is cut off.
        """
        if self._unpacking is not None and self._came_bytes and not self._unpacking.eof:
            raise UnreadableBody("it is compressed and cut off")
        return self._held.getvalue()

    def _unpacked(self, piece: bytes, most: int) -> bytes:
        assert self._unpacking is not None
        try:
            plain = self._unpacking.decompress(piece, most)
        except zlib.error:
            raise UnreadableBody("it cannot be decompressed") from None
        if self._unpacking.unused_data:
            raise UnreadableBody("it continues after its end")
        return plain


def _unpacking(coding: str) -> zlib._Decompress | None:
    name = coding.strip().lower()
    if name in _PLAIN:
        return None
    if name not in _PACKED:
        raise UnreadableBody(f"it is compressed as {name[:40]!r}, which was not requested")
    return zlib.decompressobj(wbits=_OF_EITHER_KIND)


def _amount(number: int) -> str:
    return f"{number // _MIB} MiB" if number >= _MIB else f"{number:,} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A certificate authority in place of the system's, and a client certificate. Files in PEM form."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    """The certificate's key, without a password."""

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for HTTP clients.

        Raises:
            ConfigError: a file cannot be used.
        """
        try:
            context = _trusting(self.ca)
            if self.cert is not None:
                context.load_cert_chain(
                    self.cert, self.key, password=""
                )  # otherwise OpenSSL prompts on the terminal
        except OSError as exc:
            raise ConfigError(
                f"`tls`: {self._names()} cannot be used ({_why(exc)}): name files in PEM form, "
                "and with `cert` its own `key`, which has no password"
            ) from exc
        return context

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Return the contents of authority, key and certificate, in gRPC's order.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.context()
        ca, key, cert = (path.read_bytes() if path else None for path in (self.ca, self.key, self.cert))
        return ca, key, cert

    def _names(self) -> str:
        return " or ".join(repr(str(path)) for path in (self.ca, self.cert, self.key) if path)


def _trusting(ca: Path | None) -> ssl.SSLContext:
    import ssl  # deferred: most processes have no TLS settings

    if ca is not None:
        return ssl.create_default_context(cafile=ca)
    import httpx

    # certifi's certificates or those of SSL_CERT_FILE, because not every system has its own
    return httpx.create_ssl_context()


def _why(error: OSError) -> str:
    import ssl

    if isinstance(error, ssl.SSLError):
        return (error.reason or "not in PEM form").replace("_", " ").lower()
    return error.strerror or type(error).__name__


def open_channel(endpoint: str, pem: Sequence[bytes | None] | None, *, most_bytes: int) -> grpc.aio.Channel:
    """Open a gRPC channel, of the event loop that runs now, with `ClientTls.pem`, or ``None`` for no TLS."""
    import grpc

    options = [("grpc.max_receive_message_length", most_bytes)]
    if pem is None:
        return grpc.aio.insecure_channel(endpoint, options)
    return grpc.aio.secure_channel(endpoint, grpc.ssl_channel_credentials(*pem), options)


Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Sleeps for this many seconds."""

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retryable:
    """The answers after which another attempt may help, and is safe."""

    statuses: frozenset[int]
    """Of HTTP."""
    codes: frozenset[str]
    """Of gRPC, by name."""


REPEATABLE: Final = Retryable(
    statuses=frozenset({429, 500, 502, 503, 504, 524}),
    codes=frozenset({"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}),
)
"""For requests that may be repeated: reads, and writes that overwrite what has the same id. 524 is a proxy's
time-out, as before Langfuse's cloud."""

OTLP: Final = Retryable(
    statuses=frozenset({429, 502, 503, 504}),
    codes=frozenset(
        {
            "CANCELLED",
            "DEADLINE_EXCEEDED",
            "RESOURCE_EXHAUSTED",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNAVAILABLE",
            "DATA_LOSS",
        }
    ),
)
"""For export requests: https://opentelemetry.io/docs/specs/otlp/#failures. No other status or code may be
retried. The specification requires RetryInfo with RESOURCE_EXHAUSTED, but busy receivers often omit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often to retry, and how long to wait."""

    max_retries: int = 2
    first_wait_s: float = 0.5
    """Doubles with every retry."""
    longest_wait_s: float = 8.0
    max_retry_after_s: float = 120.0
    """If an endpoint asks for a longer pause, the retries end at once: the caller can try again later."""

    def wait_s(self, retry: int, told_s: float | None, draw: float) -> float | None:
        """Return the seconds to wait before a retry, or ``None`` to give up.

        Args:
            retry: Number of earlier retries.
            told_s: The endpoint's ``Retry-After``, a lower bound of the wait.
            draw: A random number in [0, 1), so that clients that failed together do not retry together.
        """
        if retry >= self.max_retries or (told_s or 0.0) > self.max_retry_after_s:
            return None
        return self.own_wait_s(retry, draw) if told_s is None else told_s * (1 + draw / 4)

    def own_wait_s(self, retry: int, draw: float = 1.0) -> float:
        """Return the wait if the endpoint asks for none: between half and all of it, as ``draw`` says.

        Who sends one request at a time has nothing to spread, and draws nothing.
        """
        return min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(retry, 30)) * (1 + draw) / 2


_OF_READERS: Final = Backoff(longest_wait_s=5.0)
_LONGEST_ASKED_FOR_S: Final = 30.0
_MOST_ATTEMPTS: Final = 100
"""A server that asks for no pause at all would get requests without one for two minutes."""


@dataclass(slots=True, kw_only=True)
class ReadRetries:
    """The remaining time budget of one request with all its attempts.

    The limit is a time, not a number of attempts. If a server fails four of five requests, two minutes (27
    attempts) succeed in all but one of 400 cases.
    """

    seconds: float = 120.0
    attempts: int = 0
    """Failed attempts so far."""
    waited_s: float = 0.0

    def pause_s(self, asked_for_s: float | None = None, *, took_s: float = 0.0) -> float | None:
        """Return the pause after a failed attempt; ``None`` if the time is up.

        Args:
            asked_for_s: The server's ``Retry-After``.
            took_s: The duration of the attempt.
        """
        own = _OF_READERS.own_wait_s(self.attempts)
        pause = own if asked_for_s is None else min(asked_for_s, _LONGEST_ASKED_FOR_S)
        self.attempts += 1
        self.waited_s += took_s + pause
        return pause if self.waited_s <= self.seconds and self.attempts < _MOST_ATTEMPTS else None

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"tried {times}"


def retry_after_s_in(headers: Mapping[str, str]) -> float | None:
    """Return the wait that response headers ask for, in seconds, at most a day; ``None`` without one.

    OpenAI's ``retry-after-ms`` precedes ``Retry-After``. Names in lower case must find their headers.
    """
    told_ms = _number_in(headers.get("retry-after-ms", ""))
    if told_ms is not None:
        return bounded_wait_s(told_ms / 1000)
    return retry_after_s_of(headers.get("retry-after", ""), now=datetime.now(UTC))


def retry_after_s_of(header: str, *, now: datetime) -> float | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3): a number of seconds or a date; ``None`` if it is neither.

    Never raises. The wait is at most a day, whatever the server sends; callers apply their own, shorter
    bounds on top. A date without a zone is read as GMT.
    """
    number = _number_in(header)
    if number is not None:
        return bounded_wait_s(number)
    from email.utils import parsedate_to_datetime  # deferred: applications never parse dates

    try:
        moment = parsedate_to_datetime(header.strip())
    except (ValueError, TypeError, OverflowError, IndexError):  # eleven-digit years, week-long zones
        return None
    return bounded_wait_s((moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())


def _number_in(header: str) -> float | None:
    """Return the number in a header, in any unit; ``None`` if there is none."""
    header = header.strip()
    return float(header) if _NUMBER.fullmatch(header) else None


Protocol = Literal["grpc", "http/protobuf"]
_MOST_BYTES: Final = 1 << 20
_PIECE: Final = 65_536
_TIMEOUT_S: Final = 10.0
_OWN_SESSION: Final = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"
"""Variables by which an application's package provides its own session, which stays unchanged."""


def open_span_exporter(
    *,
    protocol: Protocol,
    endpoint: str | None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    on_redirect: Callable[[int, str], None] | None = None,
) -> SpanExporter:
    """Open an exporter of spans; ``None`` values come from the standard variables.

    If the endpoint redirects, ``on_redirect`` is called with the status and the host, and the export fails.
    """
    options = _options(headers, timeout_s)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(endpoint=endpoint, **options)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

    return OverHttp(endpoint=endpoint, session=_session("TRACES_", on_redirect), **options)


def open_metric_exporter(
    *, protocol: Protocol, endpoint: str, timeout_s: float | None = None
) -> MetricExporter:
    """Open an exporter of metrics; headers and certificates come from the standard variables."""
    options = _options(None, timeout_s)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as OverGrpc

        return OverGrpc(endpoint=endpoint, **options)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp

    return OverHttp(endpoint=endpoint, session=_session("METRICS_", None), **options)


def _options(headers: Mapping[str, str] | None, timeout_s: float | None) -> dict[str, Any]:
    return {"headers": dict(headers) if headers else None, "timeout": timeout_s}


def _session(signal: str, on_redirect: Callable[[int, str], None] | None) -> requests.Session | None:
    if any(_OWN_SESSION.format(part) in os.environ for part in ("", signal)):
        return None
    import requests
    from requests.adapters import HTTPAdapter

    class Careful(HTTPAdapter):
        """Refuses redirects, and responses that exceed the size or time limit."""

        def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
            timeout_s = kwargs.get("timeout")
            until = monotonic() + (timeout_s if isinstance(timeout_s, int | float) else _TIMEOUT_S)
            response = super().send(request, *args, **{**kwargs, "stream": True})
            try:
                self._check(response, str(request.url))
                response.raw = BytesIO(_whole(response, until))
            except UnreadableBody as exc:
                response.raw.close()
                raise requests.exceptions.ContentDecodingError(str(exc)) from None
            response.headers.pop("content-encoding", None)
            return response

        def _check(self, response: requests.Response, asked: str) -> None:
            status = response.status_code
            host = host_of_redirect(status, response.headers.get("location"), asked=asked)
            if 300 <= status < 400:
                if on_redirect is not None and host is not None:
                    on_redirect(status, host)
                raise UnreadableBody("it redirects, which is not followed")

    session = requests.Session()
    session.headers["accept-encoding"] = "gzip"
    session.mount("https://", Careful())
    session.mount("http://", Careful())
    return session


def _whole(response: requests.Response, until: float) -> bytes:
    body = Body(response.headers.get("content-encoding"), most_bytes=_MOST_BYTES)
    read = getattr(
        response.raw, "read1", response.raw.read
    )  # the first read returns the available data, which may arrive too slowly
    while piece := read(_PIECE, decode_content=False):
        body.take(piece)
        if monotonic() > until:
            raise UnreadableBody("it does not end in time")
    response.raw.release_conn()
    return body.whole()
