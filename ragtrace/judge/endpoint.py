"""An OpenAI-compatible endpoint: where it is, who asks it, and how it is asked through OpenAI's SDK.

Addresses, keys, tokens and identities come by the variables of the SDKs. ``azure:`` is an address with
variables of its own, which speaks OpenAI's protocol.

The SDK's typed methods would validate replies by models that other servers don't follow (ADR 0015). So a
request is posted as the bytes that the budget has counted, and its reply is read here. No error message
contains a prompt, a reply or a key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import getproxies

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_HTTP_INSTRUMENTATION_KEY, _SUPPRESS_INSTRUMENTATION_KEY

from ragtrace import __version__
from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeOversized,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.extras import install_command
from ragtrace.http import (
    BodyTooLarge,
    ClientTls,
    UnreadableBody,
    client_options,
    redirected_to,
    retry_after_s_in,
)
from ragtrace.judge.layers import JudgeCall, was_turned_down
from ragtrace.judge.spec import OPENAI_KEY, JudgeSettings, key_variable, login_of
from ragtrace.model import Usage

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
Token: TypeAlias = Callable[[], Awaitable[str]] | Mapping[str, Any]
"""What returns a token before each request, or OpenAI's workload identity."""

OPENAI_URL: Final = "https://api.openai.com/v1"
_EXAMPLES: Final = {"judge": "gpt-4o-mini", "embedder": "text-embedding-3-small"}
_ACCOUNT: Final = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
_IDENTITY: Final = ("OPENAI_IDENTITY_PROVIDER_ID", "OPENAI_SERVICE_ACCOUNT_ID")
_TOKEN_FILE: Final = "OPENAI_IDENTITY_TOKEN_FILE"
_KUBERNETES: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_AZURE: Final = "AZURE_OPENAI_ENDPOINT"
_AZURE_VERSION: Final = "OPENAI_API_VERSION"
_AZURE_TOKEN: Final = "AZURE_OPENAI_AD_TOKEN"
_AZURE_V1: Final = "/openai/v1"
_AZURE_SCOPE: Final = "https://cognitiveservices.azure.com/.default"
_CREDENTIALS: Final = frozenset({"authorization", "api-key", "x-api-key"})
_SDK_WRITES: Final = {
    name.lower(): name
    for name in (
        *("Accept", "Authorization", "Content-Type", "User-Agent", "X-Api-Key"),
        *("OpenAI-Organization", "OpenAI-Project"),
    )
}
"""Spelled as in the SDKs, which would send both spellings of a name."""
_OF_SDK: Final = ("authorization", "x-api-key", "openai-organization", "openai-project")
"""What our settings lack, an SDK would take from the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an endpoint is, and who asks."""

    url: str
    """Without user, password, query and slash at the end."""
    query: str = field(default="", repr=False)
    """Added to each request, for example Azure's ``api-version``."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """With the credential; names are in lower case."""
    token: Token | None = field(default=None, repr=False)
    """In place of a credential in the headers."""
    tls: ClientTls | None = None
    """Replaces the system's certificates."""
    sdk: Literal["openai", "anthropic"] = "openai"

    @classmethod
    def to(cls, base_url: str, headers: Mapping[str, str], **further: Any) -> Access:
        """Return the access to a base URL; its login and the headers are who asks.

        The path of a request at its end, as people paste it, is left out.
        """
        url = urlsplit(base_url)
        path = re.sub("(/chat/completions|/embeddings)?/*$", "", url.path)
        place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}"
        login = {"authorization": told} if (told := login_of(url)) else {}
        named = {name.lower(): value for name, value in headers.items()}
        return cls(url=place, query=url.query, headers={**login, **named}, **further)

    @property
    def host(self) -> str | None:
        """The name of the host, for messages."""
        return urlsplit(self.url).hostname

    def open(self, *, timeout_s: float, most_bytes: int) -> tuple[Any, Any]:
        """Open the SDK's client and the HTTP client beneath it, bound to the loop that first asks them.

        They neither retry nor redirect. A reply has at most ``most_bytes``.

        Raises:
            ConfigError: the environment's proxy cannot be used.
        """
        sdk = import_module(self.sdk)  # takes a second
        is_openai = self.sdk == "openai"
        kind = sdk.DefaultAioHttpClient if is_openai and _may_use_aiohttp() else sdk.DefaultAsyncHttpxClient
        headers: dict[str, Any] = {
            **dict.fromkeys(_OF_SDK, sdk.Omit()),
            "user-agent": f"ragtrace/{__version__}",
            **self.headers,
        }
        if self.token is not None:
            del headers["authorization"]
        key = "workload_identity" if isinstance(self.token, Mapping) else "api_key"
        try:
            # the caller bounds the whole of a request; the SDK's own limit would end it after ten minutes
            http = kind(
                **client_options(most_bytes),
                verify=(self.tls or ClientTls()).context(),
                timeout=sdk.Timeout(None, connect=5.0),
            )
        except (ImportError, ValueError):  # not chained: it quotes the proxy's URL, which may hold a password
            raise ConfigError(
                "the environment's proxy cannot be used: set HTTP_PROXY or HTTPS_PROXY to an http:// proxy"
                " (for socks5:// install `socksio`)"
            ) from None
        options: dict[str, Any] = {
            "base_url": self.url,
            "default_headers": {_SDK_WRITES.get(name, name): value for name, value in headers.items()},
            "default_query": dict(parse_qsl(self.query, keep_blank_values=True)),
            "http_client": http,
            "max_retries": 0,
            "timeout": timeout_s,
            key: self.token or "none",  # never sent: a header replaces it, or its omission
        }
        client = sdk.AsyncOpenAI(**options) if is_openai else sdk.AsyncAnthropic(**options)
        return client, http


def openai_access(settings: JudgeSettings, role: str) -> Access:
    """Return the access to ``openai:MODEL``; endpoints on this machine may need no key.

    Raises:
        ConfigError: the model, a usable URL or the key is missing, or two settings contradict.
    """
    if not settings.argument:
        raise ConfigError(
            f"the {role} `openai` needs a model: write `openai:MODEL`, such as `openai:{_EXAMPLES[role]}`"
        )
    url = checked_url(settings, "OPENAI_BASE_URL", OPENAI_URL)
    environ = settings.environ
    account = {name: told for name, key in _ACCOUNT.items() if (told := environ.get(key, "").strip())}
    headers = {**account, **settings.headers}
    token = _workload_identity(settings)
    key = key_in(settings, settings.api_key_env)
    if says_who_asks(settings, url):
        return Access.to(url, headers, tls=settings.tls)
    if not key and not token and (settings.api_key_env != OPENAI_KEY or url.startswith(OPENAI_URL)):
        raise ConfigError(f"the judge needs a key: set the environment variable {settings.api_key_env}")
    credential = {} if token else {"authorization": f"Bearer {key or 'none'}"}
    return Access.to(url, {**credential, **headers}, token=token, tls=settings.tls)


def azure_access(settings: JudgeSettings, role: str) -> Access:
    """Return the access to ``azure:DEPLOYMENT``.

    The classic address takes a version of the API (``OPENAI_API_VERSION``) and the deployment in its path.
    The newer one ends in ``/openai/v1``, and the deployment is the model.

    Raises:
        ConfigError: the deployment, the address or the credential is missing, or two settings contradict.
    """
    if not settings.argument:
        raise ConfigError(f"the {role} `azure` needs a deployment: write `azure:DEPLOYMENT`")
    if not settings.base_url and not settings.environ.get(_AZURE):
        raise ConfigError(
            f"the {role} `azure` needs an address: set {_AZURE} or `base_url` to https://NAME.openai.azure.com"
        )
    address = url = checked_url(settings, _AZURE, "").rstrip("/")
    path, version = urlsplit(url).path, settings.environ.get(_AZURE_VERSION, "").strip()
    is_v1 = path.endswith(_AZURE_V1)
    if "/deployments" in path or urlsplit(url).query or is_v1 == bool(version):
        raise ConfigError(
            "the address of `azure:DEPLOYMENT` is the resource's address alone, with its version in"
            f" {_AZURE_VERSION} (such as 2024-10-21), or it ends in {_AZURE_V1} and has no version"
        )
    if not is_v1:
        url += f"/openai/deployments/{quote(settings.argument, safe='')}?api-version={quote(version)}"
    if says_who_asks(settings, address):
        return Access.to(url, settings.headers, tls=settings.tls)
    variable = key_variable("azure", settings.api_key_env)
    key, token = key_in(settings, variable), key_in(settings, _AZURE_TOKEN)
    if key and token:
        raise ConfigError(f"both {variable} and {_AZURE_TOKEN} are set: unset one of them")
    if not key and not token:
        tokens = EntraTokens(who=f"the {role} `azure`")
        return Access.to(url, settings.headers, token=tokens, tls=settings.tls)
    credential = {"api-key": key} if key and not is_v1 else {"authorization": f"Bearer {token or key}"}
    return Access.to(url, {**credential, **settings.headers}, tls=settings.tls)


class EntraTokens:
    """Tokens of Entra ID, from the first source that azure-identity finds, renewed before they end.

    It looks at the environment's service principal, a workload identity, a managed identity and the logins of
    Azure's command lines.
    """

    def __init__(self, *, who: str) -> None:
        """Raises ConfigError if azure-identity is not installed."""
        try:
            from azure.identity import DefaultAzureCredential, get_bearer_token_provider
        except ImportError as exc:
            raise ConfigError(
                f"{who} needs a key: set AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN. For tokens of"
                f" Entra ID, such as those of a workload identity: {install_command('azure')}"
            ) from exc
        self._who = who
        self._credential = DefaultAzureCredential()
        self._token = get_bearer_token_provider(self._credential, _AZURE_SCOPE)

    async def __call__(self) -> str:
        """Return a token that is valid for some minutes.

        Raises:
            JudgeRefused: no source has one.
            JudgeUnavailable: the source cannot be reached.
        """
        from azure.core.exceptions import AzureError, ClientAuthenticationError

        try:
            return await asyncio.to_thread(self._token)
        except ClientAuthenticationError:  # not chained: it may quote the tenant's answer
            message = "Entra ID gives no token: check the identity and its role at the resource"
            raise JudgeRefused(f"{self._who}: {message}", usage=Usage()) from None
        except AzureError:
            message = "Entra ID cannot be reached for a token"
            raise JudgeUnavailable(f"{self._who}: {message}", usage=Usage()) from None

    async def aclose(self) -> None:
        """Close the connections to the sources."""
        await asyncio.to_thread(self._credential.close)


def _workload_identity(settings: JudgeSettings) -> Token | None:
    provider, account = (settings.environ.get(name, "").strip() for name in _IDENTITY)
    if not provider and not account:
        return None
    if not provider or not account or key_in(settings, settings.api_key_env):
        raise ConfigError(
            f"a workload identity is {' and '.join(_IDENTITY)} in place of {settings.api_key_env}: set both"
            " without the key, or none of them"
        )
    file = Path(settings.environ.get(_TOKEN_FILE) or _KUBERNETES)
    return {
        "identity_provider_id": provider,
        "service_account_id": account,
        "provider": {"token_type": "jwt", "get_token": partial(_platform_token, file)},
    }


def _platform_token(file: Path) -> str:
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, ValueError):
        token = ""
    if not token:
        raise JudgeRefused(f"{_TOKEN_FILE}: {str(file)!r} has no token that can be read", usage=Usage())
    return token


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
    return bool(login_of(urlsplit(base_url))) or not _CREDENTIALS.isdisjoint(named)


def checked_url(settings: JudgeSettings, variable: str, default: str) -> str:
    """Return the base URL of the settings, else that of an environment variable or the default.

    Raises:
        ConfigError: it is no address. The message shows no secret of it.
    """
    url = settings.base_url or settings.environ.get(variable) or default
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or a bracket is missing
        is_address = False
    if not is_address:
        shown = url.partition("?")[0].rpartition("@")[2]  # the user and the query may hold keys
        raise ConfigError(f"the judge's base URL {shown!r} is not http(s): set `base_url` or {variable}")
    return url


def _may_use_aiohttp() -> bool:
    """Whether it is there, which it is but in the demo's environment, and no proxy is one that it lacks."""
    return find_spec("aiohttp") is not None and not any(
        proxy.startswith("socks") for proxy in getproxies().values()
    )


_MOST_REPLY_BYTES: Final = 4 << 20
"""The size limit of one reply. A model writes some kilobytes, about a hundred with its reasoning."""
_JUDGING: Final = "ragtrace_judge_call"
_SUPPRESSED: Final = {
    _JUDGING: True,
    _SUPPRESS_INSTRUMENTATION_KEY: True,
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY: True,
    "suppress_language_model_instrumentation": True,
}
_TALKATIVE: Final = ("openai._base_client", "httpx", "httpx2")
"""Loggers of requests: the SDK logs their bodies, clients their URLs with the query."""
_NEVER_SENT: Final = frozenset(
    {
        *("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"),
        *("ClientConnectorError", "ConnectionTimeoutError", "ClientHttpProxyError", "InvalidURL"),
    }
)
"""Errors of httpx and of aiohttp (with those of TLS, certificates and names): there was no connection."""
_SHORT: Final = re.compile(r"[\w.-]{1,60}")
_STATUS: Final = re.compile(r"[45][0-9]{2}(?:\D.*)?", re.DOTALL)
_ADAPTABLE: Final = (400, 422)
_SYSTEM_ROLE: Final = re.compile(
    r"\bsystem[\W_]{0,3}(?:role|message|prompt|instruction)|\brole\b[^\n]{0,60}\bsystem\b"
    r"|roles must alternate|developer[\W_]{0,3}instruction",
    re.IGNORECASE,
)
_BUSY: Final = re.compile(r"rate.?limit|too.?many|overloaded|exhausted|throttl", re.IGNORECASE)
_WRONG: Final = re.compile(r"invalid_request|content_filter", re.IGNORECASE)
_ADVICE: Final = {
    401: "it does not accept the key: check the key's environment variable",
    402: "it requires payment: check the account",
    403: "the key may not use this model",
    404: "no such model or path: check the model and the base URL",
    429: "the quota is used up: check the account",
}


class JsonObject(dict[str, Any]):
    """A JSON object with its keys as attributes; a missing key is ``None``."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class RequestRejected(Exception):
    """The endpoint rejected the request. Its complaint may tell which dialect to try next."""

    def __init__(self, status: int, body: Any, response: Any = None) -> None:
        super().__init__(status)
        self.status = status
        error = body.get("error", body) if isinstance(body, Mapping) else body
        fields = error if isinstance(error, Mapping) else {}
        names = [str(name) for name in (fields.get("code"), fields.get("type")) if name]
        self.code = "insufficient_quota" if "insufficient_quota" in names else [*names, ""][0]
        self.complaint = f"{fields.get('param')} {error}"
        """May quote the prompt: search it, never show it."""
        self.what = f"HTTP {status}, {self.code}" if _SHORT.fullmatch(self.code) else f"HTTP {status}"
        """The status and the short code; a free message might quote the prompt or the key."""
        self._response = response

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
        status = self.status
        if status < 400:
            host = redirected_to(self._response) if self._response is not None else None
            where = f"{who}: it redirects to {host or 'no address'} ({self.what})"
            return JudgeRefused(f"{where}, which is not followed: name the right base URL", usage=usage)
        if status >= 500 or (status in (408, 409, 429) and self.code != "insufficient_quota"):
            told = "it fails" if status >= 500 else "it takes no requests now"
            pause_s = retry_after_s_in(self._response.headers) if self._response is not None else None
            return JudgeUnavailable(f"{who}: {told} ({self.what})", usage=usage, retry_after_s=pause_s)
        if status == 413:
            return JudgeNonsense(f"{who}: the chunks are too long for it ({self.what})", usage=usage)
        advice = _ADVICE.get(status, "it turns requests down")
        return JudgeRefused(f"{who}: {advice} ({self.what})", usage=usage)


class Endpoint:
    """Asks one endpoint over a connection pool. Bound to the event loop that uses it first.

    Raises:
        ConfigError: the environment's proxy cannot be used.
    """

    def __init__(
        self, access: Access, *, timeout_s: float, who: str, most_bytes: int = _MOST_REPLY_BYTES
    ) -> None:
        self._timeout_s = timeout_s
        self._who = who
        self._token = access.token
        self._client, self._http = access.open(timeout_s=timeout_s, most_bytes=most_bytes)
        self._first: dict[str, Any] = {}
        """By path a request without a body, whose address and headers all others have."""

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Post a JSON document; return the JSON of the reply. Its objects are `JsonObject`.

        Args:
            path: Appended to the base URL; begins with a slash.
            call: The request to post; it records the outcome.

        Raises:
            RequestRejected: the status is 400 or 422.
            JudgeError: there is no reply, or it is not JSON.
        """
        try:
            reply = await self.fetch(lambda _: self._send(path, call.asked.document), call)
        except RequestRejected as rejected:
            if rejected.is_adaptable:
                raise
            raise rejected.failure(who=self._who, usage=call.usage) from None
        try:
            answer = _read(reply)
        except (ValueError, RecursionError):
            what = "the reply is not a JSON document"
            raise JudgeNonsense(f"{self._who}: {what}", usage=call.usage) from None
        check_error_within(answer, who=self._who, call=call)
        return answer

    async def fetch(self, send: Callable[[Any], Awaitable[T]], call: JudgeCall) -> T:
        """Send a request by the SDK; return what ``send`` returns. ``call`` records the outcome.

        Raises:
            RequestRejected: the status is 300 or more.
            JudgeOversized: the reply, compressed or decompressed, is too long.
            JudgeNonsense: it cannot be decompressed.
            JudgeRefused: its certificate is not trusted, or there is no token.
            JudgeTimeout, JudgeUnavailable: there is no reply.
        """
        import openai

        try:
            async with asyncio.timeout(self._timeout_s):  # the SDK's time-out is for each read
                with _untraced():
                    return await send(self._client)
        except JudgeError:  # of a token source
            call.stayed()
            raise
        except openai.OAuthError as exc:  # no cause is chained: it may quote the key or the prompt
            raise self._failure(exc, call) from None
        except openai.APIStatusError as exc:
            if was_turned_down(exc.status_code):
                call.turned_down()
            raise RequestRejected(exc.status_code, _said(exc), exc.response) from None
        except (TimeoutError, openai.OpenAIError, UnreadableBody) as exc:
            raise self._failure(exc, call) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
        if close := getattr(self._token, "aclose", None):
            await close()

    async def _send(self, path: str, document: bytes) -> bytes:
        import httpx
        import openai

        if self._token is not None:  # the SDK asks for a token before each request
            return bytes((await self._client.post(path, cast_to=httpx.Response, content=document)).content)
        # it would also make address and headers anew each time, which takes as long as the rest of a call
        if (first := self._first.get(path)) is None:
            url, query = f"{str(self._client.base_url).rstrip('/')}{path}", self._client.default_query
            named = self._client.default_headers.items()
            headers = {name: told for name, told in named if isinstance(told, str)}
            first = self._http.build_request("POST", url, params=query or None, headers=headers)
            del first.headers["content-length"]
            self._first[path] = first
        request = type(first)("POST", first.url, headers=first.headers, content=document)
        try:
            response = await self._http.send(request)
        except UnreadableBody:
            raise
        except Exception as exc:
            raise openai.APIConnectionError(request=request) from exc
        if not response.is_success:
            raise openai.APIStatusError("", response=response, body=None)
        return bytes(response.content)

    def _failure(self, exc: Exception, call: JudgeCall) -> JudgeError:
        import openai

        def error(kind: type[JudgeError], what: str) -> JudgeError:
            return kind(f"{self._who}: {what}", usage=call.usage)

        causes = [*_causes(exc)]
        for cause in causes:
            if isinstance(cause, UnreadableBody):
                kind = JudgeOversized if isinstance(cause, BodyTooLarge) else JudgeNonsense
                return error(kind, f"the reply cannot be read: {cause}")
        is_timeout = isinstance(exc, TimeoutError | openai.APITimeoutError)
        if not is_timeout and not isinstance(exc, openai.APIConnectionError):
            call.stayed()
            told = "there is no token to ask with: check the workload identity and its token file"
            return error(JudgeRefused, told)
        # the SDK's transport turns aiohttp's errors into time-outs of connecting, also of a lost connection
        beneath = next((cause for cause in causes if type(cause).__module__.startswith("aiohttp.")), None)
        lowest = beneath or exc.__cause__
        if not _NEVER_SENT.isdisjoint(kind.__name__ for kind in type(lowest).__mro__):
            call.stayed()
        if is_timeout and (beneath is None or isinstance(beneath, TimeoutError)):
            told = f"no answer within {self._timeout_s:g} s: is the model busy, or too slow?"
            return error(JudgeTimeout, told)
        tls = [cause for cause in causes if isinstance(cause, ssl.SSLError)]
        for cause in tls:
            if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code"):
                told = (
                    f"its certificate is not trusted ({cause.verify_message}): name the authority that"
                    " signed it, a file in PEM form, as `judge.tls.ca` (--set judge.tls.ca=FILE), and the"
                    " host as the certificate does"
                )
                return error(JudgeRefused, told)
        if tls:
            return error(JudgeUnavailable, "no connection by TLS: does its address begin with http://?")
        return error(JudgeUnavailable, "no connection: is the endpoint up, and the base URL right?")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those beneath it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def check_error_within(answer: Any, *, who: str, call: JudgeCall) -> None:
    """Treat an error that came with the status 200, in an answer or its choice, as one with its own status.

    Raises:
        RequestRejected: that is 400 or 422.
        JudgeError: it is another.
    """
    choices = answer.choices if isinstance(answer, JsonObject) else None
    holders = [answer, *(choices if isinstance(choices, list) else ())]
    error = next((each.error for each in holders if isinstance(each, JsonObject) and each.error), None)
    if error is not None:
        raise_rejection(RequestRejected(_status_within(error), {"error": error}), who=who, call=call)


def raise_rejection(rejected: RequestRejected, *, who: str, call: JudgeCall) -> NoReturn:
    """Raise a rejection that another dialect may avoid, else its error; ``call`` records it."""
    if was_turned_down(rejected.status):
        call.turned_down()
    raise rejected if rejected.is_adaptable else rejected.failure(who=who, usage=call.usage)


def _status_within(error: Any) -> int:
    """Return the status that an error means which came with the status 200; 502 if it does not say."""
    fields = error if isinstance(error, Mapping) else {}
    named = [fields.get(name) for name in ("code", "status", "status_code", "http_status", "type")]
    for name in named:
        if _STATUS.fullmatch(str(name)):
            return int(str(name)[:3])
    told = f"{named} {fields.get('message')}"[:2_000]
    return 429 if _BUSY.search(told) else 400 if _WRONG.search(told) else 502


def _read(reply: bytes) -> Any:
    """Read a JSON document, or the stream of one that nobody asked for.

    Raises:
        ValueError: it is neither.
    """
    if not reply.lstrip()[:8].startswith((b"data:", b"event:", b": ", b":\n", b"id:", b"retry:")):
        return json.loads(reply, object_hook=JsonObject)
    whole, choice = JsonObject(), JsonObject()
    said: dict[str, str] = {}
    for line in reply.decode("utf-8", "replace").splitlines():
        name, _, data = line.partition(":")
        if name != "data" or data.strip() in ("", "[DONE]"):
            continue
        event = json.loads(data, object_hook=JsonObject)
        if not isinstance(event, JsonObject):
            raise ValueError("an event is no JSON object")  # noqa: TRY004  it is of JSON
        if event.error:
            return event
        whole |= {name: event[name] for name in ("model", "system_fingerprint", "usage") if event.get(name)}
        part = event.choices[0] if isinstance(event.choices, list) and event.choices else None
        if isinstance(part, JsonObject):
            choice |= {name: part[name] for name in ("finish_reason", "logprobs") if part.get(name)}
            delta = part.delta or part.message
            for name, text in _texts_of(delta) if isinstance(delta, JsonObject) else ():
                said[name] = said.get(name, "") + text
    message = JsonObject(content=said.get("content"), reasoning_content=said.get("reasoning_content"))
    if "arguments" in said:
        function = JsonObject(arguments=said["arguments"])
        message["tool_calls"] = [JsonObject(type="function", function=function)]
    choice["message"] = message
    whole["choices"] = [choice]
    return whole


def _texts_of(delta: JsonObject) -> Iterator[tuple[str, str]]:
    for name in ("content", "reasoning_content"):
        if isinstance(delta.get(name), str):
            yield name, delta[name]
    called = delta.tool_calls[0] if isinstance(delta.tool_calls, list) and delta.tool_calls else None
    function = called.function if isinstance(called, JsonObject) else None
    if isinstance(function, JsonObject) and isinstance(function.arguments, str):
        yield "arguments", function.arguments


def _said(exc: openai.APIStatusError) -> Any:
    said = exc.response.content
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said.decode(errors="replace")


@contextmanager
def _untraced() -> Iterator[None]:
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
        logging.getLogger(name).addFilter(lambda _record: otel_context.get_value(_JUDGING) is None)
