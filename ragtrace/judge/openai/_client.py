"""The SDK's client of an endpoint: its address, credentials, headers, certificates and size limit.

Our layers retry, so the SDK doesn't. It follows no redirect: the texts must only reach the configured host.
"""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl
from urllib.request import getproxies

from ragtrace import __version__
from ragtrace.errors import ConfigError
from ragtrace.http import client_options
from ragtrace.http.tls import ClientTls
from ragtrace.judge.base_url import BaseUrl

if TYPE_CHECKING:
    from openai import AsyncOpenAI


TokenSource: TypeAlias = Callable[[], Awaitable[str]]
"""Returns a bearer token that is valid now; asked before each request."""
WorkloadIdentity: TypeAlias = Mapping[str, Any]
"""OpenAI's: the SDK exchanges a token of the platform for a short-lived one of OpenAI."""
Credential: TypeAlias = str | TokenSource | WorkloadIdentity
"""A key (empty: none is sent), or where the token of a request comes from."""

_SDK_WRITES: Final = {
    name.lower(): name
    for name in (
        *("Accept", "Authorization", "Content-Type", "User-Agent"),
        *("OpenAI-Organization", "OpenAI-Project"),
    )
}
"""Spelled as in the SDK: with another case, older versions send both headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an endpoint is, and who asks."""

    place: BaseUrl
    credential: Credential = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """They override ragtrace's own headers and the credential."""
    tls: ClientTls | None = None
    """Replaces the system's certificates."""

    def http_client(self, *, most_bytes: int) -> Any:
        """Open the SDK's HTTP client, bound to the loop that first asks it.

        A reply has at most ``most_bytes``.

        Raises:
            ConfigError: the environment's proxy cannot be used.
        """
        import openai  # takes a second

        trust = self.tls.context() if self.tls else _trusted_by_default(*_certificates_of(os.environ))
        kind = openai.DefaultAioHttpClient if _may_use_aiohttp() else openai.DefaultAsyncHttpxClient
        try:
            # the caller bounds the whole of a request; the SDK's own limit would end it after ten minutes
            return kind(**client_options(most_bytes), verify=trust, timeout=openai.Timeout(None, connect=5.0))
        except (ImportError, ValueError):  # not chained: it quotes the proxy's URL, which may hold a password
            raise ConfigError(_unusable_proxy()) from None

    def client(self, http_client: Any, *, timeout_s: float) -> AsyncOpenAI:
        """Return a client of this endpoint over an HTTP client.

        Raises:
            ConfigError: the SDK's version cannot be used.
        """
        import openai

        return openai.AsyncOpenAI(
            base_url=self.place.url,
            default_headers=self._sent_headers(absent=openai.Omit()),
            default_query=dict(parse_qsl(self.place.query, keep_blank_values=True)),
            http_client=http_client,
            max_retries=0,
            timeout=timeout_s,
            **self._credential(),
        )

    @property
    def asks_for_tokens(self) -> bool:
        """Whether the SDK asks for a token before each request, so that no two need have the same headers."""
        return not isinstance(self.credential, str) and "authorization" not in self._own_headers()

    @property
    def has_authorization(self) -> bool:
        """Whether requests carry the header ``authorization``."""
        return not isinstance(self.credential, str) or "authorization" in self._own_headers()

    def _own_headers(self) -> Mapping[str, str]:
        key = self.credential if isinstance(self.credential, str) else ""
        return {
            **self.place.authorization(key),
            "user-agent": f"ragtrace/{__version__}",
            **{name.lower(): value for name, value in self.headers.items()},
        }

    def _sent_headers(self, *, absent: Any) -> Mapping[str, Any]:
        # what our settings lack, the SDK would take from the environment
        account = dict.fromkeys(("openai-organization", "openai-project"), absent)
        complete = {**account, **self._own_headers()}
        return {_SDK_WRITES.get(name, name): value for name, value in complete.items()}

    def _credential(self) -> Mapping[str, Any]:
        if not self.asks_for_tokens:
            return {"api_key": "none"}  # never sent: a header replaces it
        if callable(self.credential):
            return {"api_key": self.credential}
        assert not isinstance(self.credential, str), "no token is asked for then"
        import openai

        if "workload_identity" not in inspect.signature(openai.AsyncOpenAI.__init__).parameters:
            raise ConfigError("OpenAI's workload identity needs a newer SDK: pip install --upgrade openai")
        return {"workload_identity": dict(self.credential)}


def _certificates_of(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    return environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")


@lru_cache(2)
def _trusted_by_default(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """Return the context of the environment's certificates; loading them takes as long as many calls."""
    return ClientTls().context()


def _may_use_aiohttp() -> bool:
    """Whether it is there, which it is but in the demo's environment, and no proxy is one that it lacks."""
    return find_spec("aiohttp") is not None and not any(
        proxy.startswith("socks") for proxy in getproxies().values()
    )


def _unusable_proxy() -> str:
    proxies = (proxy for name, proxy in getproxies().items() if name != "no" and "://" in proxy)
    strange = sorted({proxy.partition("://")[0] for proxy in proxies} - {"http", "https"})
    kind = " or ".join(map(repr, strange)) or "broken"
    return (
        f"the environment names a {kind} proxy, which cannot be used: set HTTP_PROXY or HTTPS_PROXY to an"
        " http:// proxy (for socks5:// install `socksio`)"
    )
