"""``azure:DEPLOYMENT``: classic and newer addresses, keys and tokens of Entra ID."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import openai
import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import open_embedder, open_judge
from tests.integration.judge.interceptor import Intercepted
from tests.integration.judge.test_endpoints import Asked, Strict, ask, serving

VERSION = "2024-10-21"
ENTRA = "login.microsoftonline.com"


@pytest.fixture
async def azure(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Strict]:
    """Stand in for a resource of Azure."""
    for name in ("AZURE_OPENAI_AD_TOKEN", "AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION", "IDENTITY_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    async with serving(Strict()) as served:
        yield served


def classic(azure: Strict, **further: str) -> dict[str, str]:
    return {"AZURE_OPENAI_ENDPOINT": azure.url, "OPENAI_API_VERSION": VERSION, **further}


def v1(azure: Strict, **further: str) -> dict[str, str]:
    return {"AZURE_OPENAI_ENDPOINT": f"{azure.url}/openai/v1/", **further}


def seen(asked: Asked) -> tuple[str, dict[str, list[str]], str | None, str | None]:
    """Tell what an endpoint knows of a request: path, query and credentials."""
    url = urlsplit(asked.target)
    return url.path, parse_qs(url.query), asked.headers.get("api-key"), asked.headers.get("authorization")


@pytest.mark.parametrize(
    ("variable", "option"),
    [("AZURE_OPENAI_API_KEY", "api_key"), ("AZURE_OPENAI_AD_TOKEN", "azure_ad_token")],
    ids=["key", "token"],
)
async def test_a_classic_address_is_asked_as_the_sdk_asks_it(
    variable: str, option: str, azure: Strict
) -> None:
    assert await ask(open_judge("azure:my gpt", environ=classic(azure, **{variable: "s3cret"}))) == "hm"
    credential: dict[str, Any] = {option: "s3cret"}
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=azure.url, azure_deployment="my gpt", api_version=VERSION, **credential
    ) as sdk:
        await sdk.chat.completions.create(model="my gpt", messages=[{"role": "user", "content": "?"}])
    ours, theirs = azure.asked
    assert seen(ours) == seen(theirs)
    assert ours.body["model"] == theirs.body["model"] == "my gpt"
    assert seen(ours)[0] == "/openai/deployments/my%20gpt/chat/completions"


async def test_a_v1_address_is_asked_as_the_sdk_asks_it(azure: Strict) -> None:
    variable = "AZURE_OPENAI_API_KEY"
    assert await ask(open_judge("azure:gpt", environ=v1(azure, **{variable: "s3cret"}))) == "hm"
    async with openai.AsyncOpenAI(base_url=f"{azure.url}/openai/v1/", api_key="s3cret") as sdk:
        await sdk.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "?"}])
    ours, theirs = azure.asked
    assert seen(ours) == seen(theirs) == ("/openai/v1/chat/completions", {}, None, "Bearer s3cret")
    assert ours.body["model"] == "gpt"


async def test_an_embedder_is_a_deployment_too(azure: Strict) -> None:
    address = classic
    azure.answer = {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}
    embedder = open_embedder("azure:emb", environ=address(azure, AZURE_OPENAI_API_KEY="k"))
    await embedder.embed(["word"])
    await embedder.aclose()
    path = seen(azure.last)[0]
    assert path in ("/openai/deployments/emb/embeddings", "/openai/v1/embeddings")
    assert azure.last.body["model"] == "emb"


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "AZURE_OPENAI_ENDPOINT"),
        ({"AZURE_OPENAI_ENDPOINT": "http://h", "AZURE_OPENAI_API_KEY": "k"}, "OPENAI_API_VERSION"),
        ({"AZURE_OPENAI_ENDPOINT": "http://h/openai/v1", "OPENAI_API_VERSION": "1"}, "takes no version"),
        ({"AZURE_OPENAI_ENDPOINT": "http://h/openai/deployments/d/", "OPENAI_API_VERSION": "1"}, "alone"),
        (
            {
                "AZURE_OPENAI_ENDPOINT": "http://h/openai/v1",
                "AZURE_OPENAI_API_KEY": "SECRET",
                "AZURE_OPENAI_AD_TOKEN": "SECRET",
            },
            "both AZURE_OPENAI_API_KEY and AZURE_OPENAI_AD_TOKEN",
        ),
        (
            {"AZURE_OPENAI_ENDPOINT": "http://h/openai/v1", "AZURE_OPENAI_API_KEY": "SECRET\u20ac"},
            "cannot be sent",
        ),
    ],
)
def test_settings_that_contradict_are_named(environ: dict[str, str], named: str) -> None:
    open_it = open_judge
    with pytest.raises(ConfigError, match=named) as caught:
        open_it("azure:gpt", environ=environ)
    assert "SECRET" not in str(caught.value)


async def test_without_a_key_a_managed_identity_gives_the_token(
    azure: Strict, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = {"access_token": "of-entra", "expires_on": str(int(time.time()) + 3600), "token_type": "Bearer"}
    async with serving(Strict(answer=token)) as identity:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "proof")
        judge = open_judge("azure:gpt", environ=classic(azure))
        assert await ask(judge) == "hm"
    assert azure.last.headers["authorization"] == "Bearer of-entra"
    assert "api-key" not in azure.last.headers
    assert identity.last.headers["x-identity-header"] == "proof"
    assert "cognitiveservices.azure.com" in identity.last.target


def entra(asked: Intercepted) -> Any:
    """Answer as Entra ID does to a workload identity."""
    if asked.target.startswith("/common/discovery/instance"):
        alias = {"preferred_network": ENTRA, "preferred_cache": ENTRA, "aliases": [ENTRA]}
        return {"tenant_discovery_endpoint": f"https://{ENTRA}/tenant", "metadata": [alias]}
    if "openid-configuration" in asked.target:
        here = f"https://{ENTRA}/tenant"
        return {
            "authorization_endpoint": f"{here}/a",
            "token_endpoint": f"{here}/token",
            "issuer": f"{here}/v2.0",
        }
    assert asked.target == "/tenant/oauth2/v2.0/token"
    return {"access_token": "of-entra", "expires_in": 3600, "token_type": "Bearer"}
