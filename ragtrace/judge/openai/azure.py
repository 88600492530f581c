"""``azure:DEPLOYMENT``: a judge or an embedder that Azure hosts, by the variables of OpenAI's SDK.

The classic address takes a version of the API (``OPENAI_API_VERSION``) and the deployment in its path. The
newer one ends in ``/openai/v1``, and the deployment is the model.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from ragtrace.errors import ConfigError
from ragtrace.judge._http import checked_url, key_in, openai_headers, says_who_asks
from ragtrace.judge.factory import JudgeSettings, key_variable
from ragtrace.judge.openai._client import Credential
from ragtrace.judge.openai._credentials import EntraTokens, StaticToken
from ragtrace.judge.openai.embedder import OpenAICompatibleEmbedder
from ragtrace.judge.openai.judge import OpenAICompatibleJudge
from ragtrace.ports import Embedder, Judge

_ENDPOINT: Final = "AZURE_OPENAI_ENDPOINT"
_VERSION: Final = "OPENAI_API_VERSION"
_TOKEN: Final = "AZURE_OPENAI_AD_TOKEN"
_V1: Final = "/openai/v1"


def open_azure(settings: JudgeSettings) -> Judge:
    """Open the judge ``azure:DEPLOYMENT``.

    Raises:
        ConfigError: the deployment, the address or the credential is missing, or two settings contradict.
    """
    base_url = _address(settings, "judge")
    return OpenAICompatibleJudge(
        model=settings.argument,
        api_key=_credential(settings, base_url, "judge"),
        base_url=base_url,
        timeout_s=settings.timeout_s,
        headers=openai_headers(settings),
        tls=settings.tls,
        extra_body=settings.extra_body,
        reply_rules=settings.reply_rules,
        parameters=settings.parameters,
    )


def open_azure_embedder(settings: JudgeSettings) -> Embedder:
    """Open the embedder ``azure:DEPLOYMENT``.

    Raises:
        ConfigError: the deployment, the address or the credential is missing, or two settings contradict.
    """
    base_url = _address(settings, "embedder")
    return OpenAICompatibleEmbedder(
        model=settings.argument,
        api_key=_credential(settings, base_url, "embedder"),
        base_url=base_url,
        timeout_s=settings.timeout_s,
        headers=openai_headers(settings),
        tls=settings.tls,
    )


def _address(settings: JudgeSettings, role: str) -> str:
    """Return the base URL of the deployment."""
    if not settings.argument:
        raise ConfigError(f"the {role} `azure` needs a deployment: write `azure:DEPLOYMENT`")
    if not settings.base_url and not settings.environ.get(_ENDPOINT):
        raise ConfigError(
            f"the {role} `azure` needs an address: set {_ENDPOINT} or `base_url` to https://NAME.openai.azure.com"
        )
    root = checked_url(settings, _ENDPOINT, "").rstrip("/")
    path = urlsplit(root).path
    if "/deployments" in path or urlsplit(root).query:
        raise ConfigError(
            "the address of `azure:DEPLOYMENT` names a deployment or a version already: write the resource's"
            f" address alone, and the version in {_VERSION}"
        )
    version = settings.environ.get(_VERSION, "").strip()
    if path.endswith(_V1):
        return _v1(root, version)
    if not version:
        raise ConfigError(
            f"the classic address of Azure needs a version: set {_VERSION}, such as 2024-10-21, or end the"
            f" address in {_V1}"
        )
    return f"{root}/openai/deployments/{quote(settings.argument, safe='')}?api-version={quote(version)}"


def _v1(root: str, version: str) -> str:
    if version:
        raise ConfigError(f"an address that ends in {_V1} takes no version: unset {_VERSION}, or shorten it")
    return root


def _credential(settings: JudgeSettings, base_url: str, role: str) -> Credential:
    if says_who_asks(settings, base_url):
        return ""
    variable = key_variable("azure", settings.api_key_env)
    key, token = key_in(settings, variable), key_in(settings, _TOKEN)
    if key and token:
        raise ConfigError(f"both {variable} and {_TOKEN} are set: unset one of them")
    if key:
        return key
    return StaticToken(token) if token else EntraTokens(who=f"the {role} `azure`")
