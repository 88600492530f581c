"""Who asks: a key, or a source of short-lived tokens, from the variables that OpenAI's SDK documents."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragtrace.errors import ConfigError, JudgeError, JudgeRefused, JudgeUnavailable
from ragtrace.extras import install_command
from ragtrace.judge._http import key_in, openai_key
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.openai._client import Credential
from ragtrace.model import Usage

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken


_PROVIDER: Final = "OPENAI_IDENTITY_PROVIDER_ID"
_ACCOUNT: Final = "OPENAI_SERVICE_ACCOUNT_ID"
_TOKEN_FILE: Final = "OPENAI_IDENTITY_TOKEN_FILE"
_KUBERNETES: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_SCOPE: Final = "https://cognitiveservices.azure.com/.default"
_EARLY_S: Final = 300.0
"""A token is renewed so long before it ends."""


def openai_credential(settings: JudgeSettings, base_url: str) -> Credential:
    """Return the key of an OpenAI-compatible endpoint, or OpenAI's workload identity.

    Raises:
        ConfigError: there is neither, or both, or half of an identity.
    """
    provider, account = (settings.environ.get(name, "").strip() for name in (_PROVIDER, _ACCOUNT))
    if not provider and not account:
        return openai_key(settings, base_url)
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
        "provider": {"token_type": "jwt", "get_token": lambda: _read(file)},
    }


def _read(file: Path) -> str:
    """Read the platform's token.

    Raises:
        JudgeRefused: the file cannot be read, or is empty.
    """
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, ValueError):
        token = ""
    if not token:
        raise JudgeRefused(f"{_TOKEN_FILE}: {str(file)!r} has no token that can be read", usage=Usage())
    return token


class StaticToken:
    """A token that is given once, such as ``AZURE_OPENAI_AD_TOKEN``."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def __call__(self) -> str:
        """Return the token."""
        return self._token


class EntraTokens:
    """Tokens of Entra ID, from the first source that azure-identity finds.

    It looks at the environment's service principal, a workload identity, a managed identity and the logins of
    Azure's command lines. Bound to the event loop that first asks it.
    """

    def __init__(self, *, who: str) -> None:
        """Raises ConfigError if azure-identity is not installed."""
        try:
            from azure.identity import DefaultAzureCredential
        except ImportError as exc:
            raise ConfigError(
                f"{who} needs a key: set AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN. For tokens of"
                f" Entra ID, such as those of a workload identity: {install_command('azure')}"
            ) from exc
        self._who = who
        self._credential = DefaultAzureCredential()
        self._token: AccessToken | None = None
        self._asking = asyncio.Lock()

    async def __call__(self) -> str:
        """Return a token that is valid for some minutes.

        Raises:
            JudgeRefused: no source has one.
            JudgeUnavailable: the source cannot be reached.
        """
        async with self._asking:
            if self._token is None or self._token.expires_on - time.time() < _EARLY_S:
                self._token = await asyncio.to_thread(self._new_token)
            return self._token.token

    async def aclose(self) -> None:
        """Close the connections to the sources."""
        await asyncio.to_thread(self._credential.close)

    def _new_token(self) -> AccessToken:
        from azure.core.exceptions import AzureError

        try:
            return self._credential.get_token(_SCOPE)
        except AzureError as exc:  # not chained: it may quote the tenant's answer
            raise self._failure(exc) from None

    def _failure(self, exc: Exception) -> JudgeError:
        from azure.core.exceptions import ClientAuthenticationError

        if isinstance(exc, ClientAuthenticationError):
            message = "Entra ID gives no token: check the identity and its role at the resource"
            return JudgeRefused(f"{self._who}: {message}", usage=Usage())
        return JudgeUnavailable(f"{self._who}: Entra ID cannot be reached for a token", usage=Usage())
