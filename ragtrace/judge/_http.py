"""Shared by all HTTP judges: keys, URLs, unseen calls, and the mapping of HTTP failures to errors."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_HTTP_INSTRUMENTATION_KEY, _SUPPRESS_INSTRUMENTATION_KEY

from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeUnavailable,
)
from ragtrace.http.retry import retry_after_s_in
from ragtrace.judge.base_url import BaseUrl
from ragtrace.judge.calls import JudgeCall, was_turned_down
from ragtrace.judge.factory import OPENAI_KEY, JudgeSettings
from ragtrace.model import Usage

OPENAI_URL: Final = "https://api.openai.com/v1"
MOST_REPLY_BYTES: Final = 4 << 20
"""The size limit of one reply. A model writes some kilobytes, about a hundred with its reasoning."""
_JUDGING: Final = "ragtrace_judge_call"
_SUPPRESSED: Final = {
    _JUDGING: True,
    _SUPPRESS_INSTRUMENTATION_KEY: True,
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY: True,
    "suppress_language_model_instrumentation": True,
}
_TALKATIVE: Final = ("openai._base_client", "anthropic._base_client", "httpx", "httpx2")
"""Loggers of requests: SDKs log their bodies, clients their URLs with the query."""
_NEVER_LEFT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")
"""Errors of httpx, or of its replacement in an SDK."""
_NEVER_CONNECTED: Final = frozenset(
    {"ClientConnectorError", "ConnectionTimeoutError", "ClientHttpProxyError", "InvalidURL"}
)
"""Errors of aiohttp; theirs are those of TLS, of certificates and of names, too."""
_CODE: Final = re.compile(r"[\w.-]{1,60}")
_CREDENTIALS: Final = frozenset({"authorization", "api-key", "x-api-key"})
_ADAPTABLE: Final = (400, 422)
_SYSTEM_ROLE: Final = re.compile(
    r"\bsystem[\W_]{0,3}(?:role|message|prompt|instruction)|\brole\b[^\n]{0,60}\bsystem\b"
    r"|roles must alternate|developer[\W_]{0,3}instruction",
    re.IGNORECASE,
)
_STATUS_OF: Final = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "insufficient_quota": 429,
    "invalid_request_error": 400,
    "content_filter": 400,
}
_BUSY: Final = re.compile(r"rate.?limit|too.?many|overloaded|exhausted|throttl", re.IGNORECASE)
_OF_ANOTHER_HOST: Final = (62, 64)
_OUT_OF_TIME: Final = (9, 10)
_ADVICE: Final = {
    401: "it does not accept the key: check the key's environment variable",
    402: "it requires payment: check the account",
    403: "the key may not use this model",
    404: "no such model or path: check the model and the base URL",
    429: "the quota is used up: check the account",
}


class RequestRejected(Exception):
    """The endpoint rejected the request. Its complaint may tell which dialect to try next."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        error = body.get("error", body) if isinstance(body, Mapping) else body
        fields = error if isinstance(error, Mapping) else {}
        names = [str(name) for name in (fields.get("code"), fields.get("type")) if name]
        self.code = "insufficient_quota" if "insufficient_quota" in names else [*names, ""][0]
        self.complaint = f"{fields.get('param')} {error}"
        """May quote the prompt: search it, never show it."""
        self.what = described(status, self.code)
        """The status and the short code."""
        self._headers = headers or {}

    @property
    def is_adaptable(self) -> bool:
        """Whether another dialect may help: 400 or 422, or a template that fails without a word of it."""
        return self.status in _ADAPTABLE or (self.status == 500 and self.is_of_the_system_role)

    @property
    def is_of_the_system_role(self) -> bool:
        """Whether the server takes no instructions beside the user's message."""
        return _SYSTEM_ROLE.search(self.complaint) is not None

    def failure(self, *, who: str, usage: Usage) -> JudgeError:
        """Return the error to raise if nothing else is tried."""
        return status_failure(self.status, self.code, self._headers, who=who, usage=usage)


def openai_key(settings: JudgeSettings, base_url: str) -> str:
    """Return the key of an OpenAI-compatible endpoint; endpoints on this machine may need none.

    It is empty if the URL or a header authenticates.

    Raises:
        ConfigError: it needs one, and the environment has none.
    """
    if key := key_in(settings, settings.api_key_env):
        return key
    if says_who_asks(settings, base_url):
        return ""
    if settings.api_key_env == OPENAI_KEY and not base_url.startswith(OPENAI_URL):
        return "none"
    raise ConfigError(f"the judge needs a key: set the environment variable {settings.api_key_env}")


def key_in(settings: JudgeSettings, variable: str) -> str:
    """Return the key of an environment variable; empty if there is none.

    Raises:
        ConfigError: it cannot be sent. The message does not quote it.
    """
    key = settings.environ.get(variable, "").strip()
    if not (key.isascii() and (key.isprintable() or not key)):
        raise ConfigError(f"the key in {variable} cannot be sent: it has characters that no key has")
    return key


def says_who_asks(settings: JudgeSettings, base_url: str) -> bool:
    """Whether the base URL or a configured header replaces the key."""
    named = {name.lower() for name in settings.headers}
    return BaseUrl.of(base_url).login is not None or not _CREDENTIALS.isdisjoint(named)


def checked_url(settings: JudgeSettings, variable: str, default: str) -> str:
    """Return the base URL from the settings, the environment variable or the default.

    Raises:
        ConfigError: it is not an http(s) URL.
    """
    url = settings.base_url or settings.environ.get(variable) or default
    if not _is_address(url):
        shown = url.partition("?")[0].rpartition("@")[2]  # the user and the query may hold keys
        raise ConfigError(f"the judge's base URL {shown!r} is not http(s): set `base_url` or {variable}")
    return url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or a bracket is missing
        return False


def openai_headers(settings: JudgeSettings) -> Mapping[str, str]:
    """Return the headers of the settings, and OpenAI's organization and project headers from the variables
    that its SDK reads."""
    variables = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
    account = {
        name: value for name, key in variables.items() if (value := settings.environ.get(key, "").strip())
    }
    return {**account, **{name.lower(): value for name, value in settings.headers.items()}}


@contextmanager
def untraced() -> Iterator[None]:
    """Keep judge calls out of the application's traces, since ragtrace would judge them, and of its logs."""
    _quiet_loggers()
    token = otel_context.attach(otel_context.Context({**otel_context.get_current(), **_SUPPRESSED}))
    try:
        yield
    finally:
        otel_context.detach(token)


@cache
def _quiet_loggers() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_is_not_of_a_judge)


def _is_not_of_a_judge(_record: logging.LogRecord) -> bool:
    return otel_context.get_value(_JUDGING) is None


def never_left(error: BaseException) -> bool:
    """Whether an error of an SDK means that the request was not sent: there was no connection."""
    if (beneath := error_of_aiohttp(error)) is not None:
        return not _NEVER_CONNECTED.isdisjoint(kind.__name__ for kind in type(beneath).__mro__)
    return type(error.__cause__).__name__ in _NEVER_LEFT


def error_of_aiohttp(error: BaseException) -> BaseException | None:
    """Return the error of aiohttp beneath an SDK's, if there is one.

    The SDK's transport turns each of them that is not about its reading into a time-out of connecting, also
    a connection that is lost after the request was sent.
    """
    beneath = getattr(error.__cause__, "__cause__", None)
    return beneath if type(beneath).__module__.partition(".")[0] == "aiohttp" else None


def status_failure(
    status: int, code: str, headers: Mapping[str, str], *, who: str, usage: Usage
) -> JudgeError:
    """Return the error for an HTTP status of 300 or more."""
    if status < 400:
        where = f"{who}: it redirects{_pointed(headers)} ({described(status, code)})"
        return JudgeRefused(f"{where}, which is not followed: name the right base URL", usage=usage)
    kind, what = _classify(status, code)
    message = f"{who}: {what} ({described(status, code)})"
    if kind is JudgeUnavailable:
        return JudgeUnavailable(message, usage=usage, retry_after_s=retry_after_s_in(headers))
    return kind(message, usage=usage)


def raise_error_within(error: Any, *, who: str, call: JudgeCall) -> NoReturn:
    """Treat an error that came with the status 200 as one with the status that it means.

    Raises:
        RequestRejected: that is 400 or 422.
        JudgeError: it is another.
    """
    rejected = RequestRejected(_status_within(error), {"error": error})
    if was_turned_down(rejected.status):
        call.turned_down()
    raise rejected if rejected.is_adaptable else rejected.failure(who=who, usage=call.usage)


def _status_within(error: Any) -> int:
    """Return the status that an error means which came with the status 200; 502 if it does not say."""
    fields = error if isinstance(error, Mapping) else {}
    named = [fields.get(name) for name in ("code", "status", "status_code", "http_status", "type")]
    for name in named:
        if isinstance(name, int) and not isinstance(name, bool) and 400 <= name < 600:
            return name
        if isinstance(name, str) and name[:3].isascii() and name[:3].isdigit() and "400" <= name[:3] < "600":
            return int(name[:3])
    known = [_STATUS_OF[name] for name in named if isinstance(name, str) and name in _STATUS_OF]
    if known:
        return known[0]
    return 429 if _BUSY.search(f"{named} {fields.get('message')}"[:2_000]) else 502


def certificate_fault(error: BaseException) -> str | None:
    """Describe the certificate's fault if it prevented the connection."""
    cause: BaseException | None = error
    while not (isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code")):
        if cause is None:
            return None
        cause = cause.__cause__ or cause.__context__
    why = cause.verify_message
    if cause.verify_code in _OF_ANOTHER_HOST:
        return f"its certificate is of another host ({why}): name it in the base URL as the certificate does"
    if cause.verify_code in _OUT_OF_TIME:
        return f"its certificate is out of time ({why}): renew it, or set this machine's clock"
    return (
        f"its certificate is not trusted ({why}): name the authority that signed it, a file in PEM form, as"
        " `judge.tls.ca` (--set judge.tls.ca=FILE)"
    )


def _pointed(headers: Mapping[str, str]) -> str:
    """Return the target of a redirect without its secret parts."""
    url = urlsplit(headers.get("location", ""))
    shown = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}" if url.netloc else url.path
    return f" to {shown}" if shown and shown.isprintable() else ""


def described(status: int, code: str) -> str:
    """Return an error's status and short code; a free message might quote the prompt or the key."""
    return f"HTTP {status}, {code}" if _CODE.fullmatch(code) else f"HTTP {status}"


def _classify(status: int, code: str) -> tuple[type[JudgeError], str]:
    if status in (408, 409, 429) and code != "insufficient_quota":
        return JudgeUnavailable, "it takes no requests now"
    if status == 413:
        return JudgeNonsense, "the chunks are too long for it"
    if status < 500:
        return JudgeRefused, _ADVICE.get(status, "it turns requests down")
    return JudgeUnavailable, "it fails"
