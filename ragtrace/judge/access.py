"""Where an endpoint is and who asks it: addresses, keys, tokens and identities, by the variables of the SDKs.

``azure:`` is an address with variables of its own, which speaks OpenAI's protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import getproxies

from ragtrace import __version__
from ragtrace.errors import ConfigError, JudgeRefused, JudgeUnavailable
from ragtrace.extras import install_command
from ragtrace.http import ClientTls, client_options
from ragtrace.judge.spec import OPENAI_KEY, BaseUrl, JudgeSettings, key_variable
from ragtrace.model import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI


Credential: TypeAlias = str | Callable[[], Awaitable[str]] | Mapping[str, Any]
"""A key (empty: none is sent), what returns a token before each request, or OpenAI's workload identity."""

OPENAI_URL: Final = "https://api.openai.com/v1"
_EXAMPLES: Final = {"judge": "gpt-4o-mini", "embedder": "text-embedding-3-small"}
_PROVIDER: Final = "OPENAI_IDENTITY_PROVIDER_ID"
_ACCOUNT: Final = "OPENAI_SERVICE_ACCOUNT_ID"
_TOKEN_FILE: Final = "OPENAI_IDENTITY_TOKEN_FILE"
_KUBERNETES: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_AZURE: Final = "AZURE_OPENAI_ENDPOINT"
_AZURE_VERSION: Final = "OPENAI_API_VERSION"
_AZURE_TOKEN: Final = "AZURE_OPENAI_AD_TOKEN"
_AZURE_V1: Final = "/openai/v1"
_AZURE_SCOPE: Final = "https://cognitiveservices.azure.com/.default"
_CREDENTIALS: Final = frozenset({"authorization", "api-key", "x-api-key"})
SDK_WRITES: Final = {
    name.lower(): name
    for name in (
        *("Accept", "Authorization", "Content-Type", "User-Agent", "X-Api-Key"),
        *("OpenAI-Organization", "OpenAI-Project"),
    )
}
"""Spelled as in the SDKs, which would send both spellings of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an endpoint is, and who asks."""

    place: BaseUrl
    credential: Credential = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """They override ragtrace's own headers and the credential."""
    tls: ClientTls | None = None
    """Replaces the system's certificates."""

    @property
    def host(self) -> str | None:
        """The name of the host, for messages."""
        return urlsplit(self.place.url).hostname

    def open(self, *, timeout_s: float, most_bytes: int) -> tuple[AsyncOpenAI, Any]:
        """Open the SDK's client and the HTTP client beneath it, bound to the loop that first asks them.

        They neither retry nor redirect. A reply has at most ``most_bytes``.

        Raises:
            ConfigError: the environment's proxy, or the SDK's version, cannot be used.
        """
        import openai  # takes a second

        kind = openai.DefaultAioHttpClient if _may_use_aiohttp() else openai.DefaultAsyncHttpxClient
        key = self.credential if isinstance(self.credential, str) else ""
        headers: dict[str, Any] = {
            # what our settings lack, the SDK would take from the environment
            **dict.fromkeys(("openai-organization", "openai-project"), openai.Omit()),
            **self.place.authorization(key),
            "user-agent": f"ragtrace/{__version__}",
            **{name.lower(): value for name, value in self.headers.items()},
        }
        options = client_options(most_bytes)
        credential: dict[str, Any] = {"api_key": "none"}  # never sent: a header replaces it
        if not isinstance(self.credential, str):
            is_token = callable(self.credential)
            credential = {"api_key" if is_token else "workload_identity": self.credential}
        elif "authorization" not in headers:
            options["event_hooks"]["request"].append(_unsign)
        try:
            # the caller bounds the whole of a request; the SDK's own limit would end it after ten minutes
            http = kind(
                **options,
                verify=(self.tls or ClientTls()).context(),
                timeout=openai.Timeout(None, connect=5.0),
            )
            sdk = openai.AsyncOpenAI(
                base_url=self.place.url,
                default_headers={SDK_WRITES.get(name, name): value for name, value in headers.items()},
                default_query=dict(parse_qsl(self.place.query, keep_blank_values=True)),
                http_client=http,
                max_retries=0,
                timeout=timeout_s,
                **credential,
            )
        except (ImportError, ValueError):  # not chained: it quotes the proxy's URL, which may hold a password
            raise ConfigError(unusable_proxy()) from None
        except TypeError:
            raise ConfigError(
                "OpenAI's workload identity needs a newer SDK: pip install --upgrade openai"
            ) from None
        return sdk, http


async def _unsign(request: Any) -> None:
    request.headers.pop("authorization", None)  # the SDK refuses to send none


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
    account = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
    headers = {
        **{name: told for name, key in account.items() if (told := settings.environ.get(key, "").strip())},
        **{name.lower(): value for name, value in settings.headers.items()},
    }
    credential: Credential = _workload_identity(settings) or key_in(settings, settings.api_key_env)
    if not credential and not says_who_asks(settings, url):
        if settings.api_key_env != OPENAI_KEY or url.startswith(OPENAI_URL):
            raise ConfigError(f"the judge needs a key: set the environment variable {settings.api_key_env}")
        credential = "none"
    return Access(place=BaseUrl.of(url), credential=credential, headers=headers, tls=settings.tls)


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
    url = checked_url(settings, _AZURE, "").rstrip("/")
    path, version = urlsplit(url).path, settings.environ.get(_AZURE_VERSION, "").strip()
    if "/deployments" in path or urlsplit(url).query:
        raise ConfigError(
            "the address of `azure:DEPLOYMENT` names a deployment or a version already: write the resource's"
            f" address alone, and the version in {_AZURE_VERSION}"
        )
    if path.endswith(_AZURE_V1) and version:
        raise ConfigError(
            f"an address that ends in {_AZURE_V1} takes no version: unset {_AZURE_VERSION}, or shorten it"
        )
    if not path.endswith(_AZURE_V1):
        if not version:
            raise ConfigError(
                f"the classic address of Azure needs a version: set {_AZURE_VERSION}, such as 2024-10-21, or"
                f" end the address in {_AZURE_V1}"
            )
        url += f"/openai/deployments/{quote(settings.argument, safe='')}?api-version={quote(version)}"
    return _azure_credential(settings, Access(place=BaseUrl.of(url), tls=settings.tls), role)


def _azure_credential(settings: JudgeSettings, access: Access, role: str) -> Access:
    given = partial(Access, place=access.place, tls=access.tls)
    if says_who_asks(settings, settings.base_url or settings.environ.get(_AZURE) or ""):
        return given(headers=settings.headers)
    variable = key_variable("azure", settings.api_key_env)
    key, token = key_in(settings, variable), key_in(settings, _AZURE_TOKEN)
    if key and token:
        raise ConfigError(f"both {variable} and {_AZURE_TOKEN} are set: unset one of them")
    if token:
        return given(headers={"authorization": f"Bearer {token}", **settings.headers})
    return given(credential=key or EntraTokens(who=f"the {role} `azure`"), headers=settings.headers)


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


def _workload_identity(settings: JudgeSettings) -> Mapping[str, Any] | None:
    provider, account = (settings.environ.get(name, "").strip() for name in (_PROVIDER, _ACCOUNT))
    if not provider and not account:
        return None
    if not provider or not account:
        raise ConfigError(
            f"a workload identity is two variables, {_PROVIDER} and {_ACCOUNT}: set both or none"
        )
    if key_in(settings, settings.api_key_env):
        raise ConfigError(
            f"both {settings.api_key_env} and a workload identity ({_PROVIDER}) are set: unset one of them"
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
    return BaseUrl.of(base_url).login is not None or not _CREDENTIALS.isdisjoint(named)


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


def unusable_proxy() -> str:
    """Return what to tell if an HTTP client cannot be made."""
    proxies = (proxy for name, proxy in getproxies().items() if name != "no" and "://" in proxy)
    strange = sorted({proxy.partition("://")[0] for proxy in proxies} - {"http", "https"})
    kind = " or ".join(map(repr, strange)) or "broken"
    return (
        f"the environment names a {kind} proxy, which cannot be used: set HTTP_PROXY or HTTPS_PROXY to an"
        " http:// proxy (for socks5:// install `socksio`)"
    )
