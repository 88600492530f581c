"""The way to a model's endpoint: one HTTP client, untraced calls, and what each failure means.

The openai and the anthropic SDK are of one make: their errors have the same names and parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_HTTP_INSTRUMENTATION_KEY, _SUPPRESS_INSTRUMENTATION_KEY

from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.judge.opening import OPENAI_KEY, JudgeSettings
from ragtrace.model import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    import anthropic
    import openai

__all__ = [
    "OPENAI_URL",
    "JsonObject",
    "aiohttp_client",
    "checked_url",
    "failure_of",
    "openai_client",
    "openai_key",
    "post_json",
    "untraced",
    "what_of",
]

OPENAI_URL: Final = "https://api.openai.com/v1"
_SUPPRESSED: Final = (
    _SUPPRESS_INSTRUMENTATION_KEY,
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
    "suppress_language_model_instrumentation",
)
_CODE: Final = re.compile(r"[\w.-]{1,60}")
_ADVICE: Final = {
    401: "it does not accept the key: check the key's environment variable",
    402: "it wants to be paid: check the account",
    403: "the key may not use this model",
    404: "no such model or path: check the model and the base URL",
    429: "the quota is used up: check the account",
}


def openai_client(*, api_key: str, base_url: str, timeout_s: float) -> openai.AsyncOpenAI:
    """Return a client that does not retry: the retry layer does.

    It speaks through aiohttp where that is installed: a tenth of httpx's CPU when many calls are under way.
    """
    import openai  # costs seconds on a small machine: only who uses it pays

    return openai.AsyncOpenAI(
        api_key=api_key,
        base_url=base_url,
        timeout=timeout_s,
        max_retries=0,
        http_client=aiohttp_client(openai, timeout_s),
    )


class JsonObject(dict[str, Any]):
    """A JSON object whose keys are its attributes; what it does not have is ``None``."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


async def post_json(client: openai.AsyncOpenAI, path: str, body: Mapping[str, Any]) -> Any:
    """Post a JSON document and return the JSON of the reply, whatever it is; its objects are `JsonObject`.

    The SDK's own methods walk every parameter and every part of the reply through their types: with that, a
    call costs twice as much.

    Raises:
        APIError: as from the SDK's own methods.
        ValueError: the reply is no JSON.
    """
    return json.loads(await client.post(path, body=body, cast_to=str), object_hook=JsonObject)


def aiohttp_client(sdk: Any, timeout_s: float) -> Any:
    """Return an SDK's own client over aiohttp, or ``None`` where it has none or aiohttp is not installed."""
    try:
        return sdk.DefaultAioHttpClient(timeout=timeout_s)
    except (AttributeError, RuntimeError):
        return None


def openai_key(settings: JudgeSettings, base_url: str) -> str:
    """Return the key of an OpenAI-compatible endpoint; those on one's own machine may want none.

    Raises:
        ConfigError: it needs one, and the environment has none.
    """
    if key := settings.environ.get(settings.api_key_env, "").strip():
        return key
    if settings.api_key_env == OPENAI_KEY and not base_url.startswith(OPENAI_URL):
        return "none"
    raise ConfigError(f"the judge needs a key: set the environment variable {settings.api_key_env}")


def checked_url(settings: JudgeSettings, variable: str, default: str) -> str:
    """Return the base URL from the settings, the environment variable or the default.

    Raises:
        ConfigError: it is no http(s) URL.
    """
    url = settings.base_url or settings.environ.get(variable) or default
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"the judge's base URL {url!r} is no http(s) URL: set `base_url` or {variable}")
    return url


@contextmanager
def untraced() -> Iterator[None]:
    """Keep calls out of the application's own traces: ragtrace would judge them."""
    context = otel_context.get_current()
    for key in _SUPPRESSED:
        context = otel_context.set_value(key, True, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def failure_of(
    exc: openai.APIError | anthropic.APIError, *, where: str, timeout_s: float, usage: Usage
) -> JudgeError:
    """Return the error that an SDK's exception stands for.

    Raise it ``from None``: the cause may quote the prompt or the key.
    """
    prefix = f"judge {where}: "
    if _is(exc, "APIConnectionError"):
        if _is_timeout(exc):
            return JudgeTimeout(
                f"{prefix}no answer within {timeout_s:g} s: is the model busy, or too slow?", usage=usage
            )
        return JudgeUnavailable(
            f"{prefix}no connection: is the endpoint up, and the base URL right?", usage=usage
        )
    if not _is(exc, "APIStatusError"):
        return JudgeNonsense(f"{prefix}the reply is not of the API's form", usage=usage)
    kind, what = _classify(exc)
    message = f"{prefix}{what} ({what_of(exc)})"
    if kind is JudgeUnavailable:
        return JudgeUnavailable(message, usage=usage, retry_after_s=_retry_after_s(_headers(exc)))
    return kind(message, usage=usage)


def what_of(exc: openai.APIError | anthropic.APIError) -> str:
    """Return the status and the short code of an error; a free message might quote the prompt or the key."""
    code = str(getattr(exc, "code", None) or getattr(exc, "type", None) or "")
    status = getattr(exc, "status_code", "?")
    return f"HTTP {status}, {code}" if _CODE.fullmatch(code) else f"HTTP {status}"


def _classify(exc: openai.APIError | anthropic.APIError) -> tuple[type[JudgeError], str]:
    status: int = getattr(exc, "status_code", 0)
    quota = "insufficient_quota" in (getattr(exc, "code", None), getattr(exc, "type", None))
    if status in (408, 409, 429) and not quota:
        return JudgeUnavailable, "it takes no requests now"
    if status == 413:
        return JudgeNonsense, "the chunks are too long for it"
    if status < 500:
        return JudgeRefused, _ADVICE.get(status, "it turns requests down")
    return JudgeUnavailable, "it fails"


def _is(exc: BaseException, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(exc).__mro__)


def _is_timeout(exc: BaseException) -> bool:
    # the aiohttp transport calls a refused or dropped connection a time-out too: the cause tells them apart
    if not _is(exc, "APITimeoutError"):
        return False
    causes = list(_causes(exc))
    dropped = any(type(cause).__module__.partition(".")[0] == "aiohttp" for cause in causes)
    return not dropped or any(isinstance(cause, TimeoutError) for cause in causes)


def _causes(exc: BaseException) -> Iterator[BaseException]:
    while exc.__cause__ is not None:
        exc = exc.__cause__
        yield exc


def _headers(exc: BaseException) -> Mapping[str, str]:
    headers: Mapping[str, str] = getattr(getattr(exc, "response", None), "headers", {})
    return headers


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read ``Retry-After`` (RFC 9110: seconds or a date) and OpenAI's ``retry-after-ms``."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", told := headers.get(name, "").strip()):
            return float(told) * unit_s
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time())
    except (ValueError, OverflowError):
        return None
