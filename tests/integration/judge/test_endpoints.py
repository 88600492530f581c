"""Where a judge is and how one gets in: logins in URLs, certificates, headers, Azure, redirects."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import openai
import pytest

from ragtrace.errors import ConfigError, JudgeRefused, JudgeUnavailable
from ragtrace.http import ClientTls
from ragtrace.judge import open_embedder, open_judge
from ragtrace.model import Usage
from ragtrace.ports import FreeText, Judge, JudgeRequest, SamplingParameters
from tests.integration.collector.certificates import Authority
from tests.integration.judge.conftest import Asked, Endpoint, chat, serving
from tests.integration.judge.interceptor import Intercepted, intercepting


@pytest.fixture
async def strict() -> AsyncIterator[Endpoint]:
    async with serving(Endpoint()) as served:
        yield served


async def ask(judge: Judge) -> str:
    try:
        return (await judge.ask(request())).value.text
    finally:
        await judge.aclose()


def basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


async def test_user_and_password_of_the_base_url_are_sent_as_basic_authorization(
    strict: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = strict.url.replace("//", "//us%40er:p%3Ass%2Fw%C3%B6rd@") + "/v1"
    assert await ask(open_judge("openai:m", base_url=url, environ={"OPENAI_API_KEY": "sk-key"})) == "hm"
    assert strict.last.headers["authorization"] == basic("us@er:p:ss/wörd")
    assert strict.last.target == "/v1/chat/completions"
    assert "sk-key" not in strict.last.head
    assert "p%3Ass" not in caplog.text
    assert "p:ss" not in caplog.text


async def test_the_address_of_a_request_is_taken_for_its_base_url(strict: Endpoint) -> None:
    pasted = f"{strict.url}/v1/chat/completions/"
    assert await ask(open_judge("openai:m", base_url=pasted, environ={})) == "hm"
    assert strict.last.target == "/v1/chat/completions"


async def test_further_parameters_are_another_question_to_the_cache(strict: Endpoint, tmp_path: Path) -> None:
    cache = tmp_path / "judge.db"
    for extra in ({}, {"effort": "low"}, {"effort": "low"}, {"effort": "high"}, {}):
        await ask(open_judge("openai:m", base_url=strict.url, environ={}, cache=cache, extra_body=extra))
    assert [asked.body.get("effort") for asked in strict.asked] == [None, "low", "high"]


def self_signed(tmp_path: Path, *hosts: str) -> tuple[Authority, ssl.SSLContext]:
    authority = Authority(tmp_path)
    files = authority.issue("server", *hosts)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    return authority, context


async def test_a_certificate_that_nobody_knows_is_named_with_the_setting(tmp_path: Path) -> None:
    _, context = self_signed(tmp_path)
    async with serving(Endpoint(), context) as served:
        with pytest.raises(JudgeRefused) as caught:
            await ask(open_judge("openai:m", base_url=served.url, environ={}))
    said = str(caught.value)
    assert "certificate" in said
    assert "`judge.tls.ca`" in said
    assert "--set judge.tls.ca" in said
    assert "no connection" not in said


async def test_http_where_https_was_named_is_said_to_be_that(strict: Endpoint) -> None:
    url = strict.url.replace("http:", "https:")
    with pytest.raises(JudgeUnavailable, match="TLS"):
        await ask(open_judge("openai:m", base_url=url, environ={}, max_retries=0))


async def test_a_redirect_is_not_followed_and_it_is_said_where_it_pointed() -> None:
    async with serving(Endpoint()) as other, serving(Endpoint(status=307)) as served:
        served.extra = {"location": other.url.replace("//", "//me:pw@") + "/v1/chat/completions?key=abc"}
        with pytest.raises(JudgeRefused) as caught:
            await ask(open_judge("openai:m", base_url=served.url, environ={}))
        assert other.asked == []
        assert len(served.asked) == 1
    said = str(caught.value)
    assert "redirects to 127.0.0.1" in said
    assert "pw" not in said
    assert "abc" not in said


def request(user: str = "?") -> JudgeRequest[FreeText]:
    return JudgeRequest(
        step="text",
        system="Talk.",
        user=user,
        reply_type=FreeText,
        inputs=FreeText(text=user),
        max_output_tokens=100,
        sampling=SamplingParameters(temperature=0.0),
    )


@pytest.fixture
async def judge(endpoint: Any) -> AsyncIterator[Judge]:
    opened = open_judge("openai:m", base_url=endpoint.url, environ={}, max_retries=2)
    yield opened
    await opened.aclose()
    del opened
    gc.collect()  # what was not closed would warn now


@pytest.mark.parametrize("status", [408, 429, 502, 529])
async def test_an_endpoint_that_recovers_gives_an_answer(status: int, endpoint: Any, judge: Judge) -> None:
    endpoint.answers = lambda body: (status, {}) if len(endpoint.requests) < 3 else (200, chat("hm"))
    reply = await judge.ask(request())
    assert reply.usage.calls == len(endpoint.requests) == 3


async def test_a_connection_that_is_lost_is_no_timeout_and_its_call_counts() -> None:
    async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(lose, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        judge = open_judge("openai:m", base_url=url, environ={}, max_retries=0)
        with pytest.raises(JudgeUnavailable, match="no connection") as lost:
            await judge.ask(request())
        await judge.aclose()
    assert lost.value.usage == Usage(calls=1, unmetered_calls=1)  # a model may have worked on it


IDENTITY = {"OPENAI_IDENTITY_PROVIDER_ID": "idp-1", "OPENAI_SERVICE_ACCOUNT_ID": "sa-1"}


def answers(asked: Intercepted) -> Any:
    """Answer for OpenAI, and for the host that exchanges its tokens."""
    if asked.target == "/oauth/token":
        return {"access_token": "short-lived", "expires_in": 3600, "token_type": "Bearer"}
    return chat("hm")


async def test_a_proxy_of_the_environment_tunnels_to_a_host_of_the_own_authority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, context = self_signed(tmp_path, "api.openai.com")
    async with intercepting(answers, context) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert await ask(open_judge("openai:m", environ={"OPENAI_API_KEY": "k"})) == "hm"
    assert "api.openai.com:443" in proxy.connected
    assert [asked.headers["authorization"] for asked in proxy.asked] == ["Bearer k"]


def test_a_proxy_that_cannot_be_used_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = "socks5://me:SECRET@127.0.0.1:1"
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigError, match=proxy.partition(":")[0]) as caught:
        open_judge("openai:m", environ={"OPENAI_API_KEY": "k"})
    assert "SECRET" not in str(caught.value)


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    authority, context = self_signed(tmp_path)
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    ours = authority.issue("judge")
    async with serving(Endpoint(), context) as served:
        for tls in (ClientTls(ca=authority.ca, cert=ours.cert, key=ours.key), ClientTls(ca=authority.ca)):
            judge = open_judge("openai:m", base_url=served.url, environ={}, tls=tls, max_retries=0)
            if tls.cert:
                assert await ask(judge) == "hm"
            else:
                with pytest.raises(JudgeUnavailable):
                    await ask(judge)


@pytest.mark.slow
async def test_a_workload_identity_is_exchanged_for_a_token(
    strict: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, context = self_signed(tmp_path, "auth.openai.com")
    (tmp_path / "token").write_text("of-the-cluster\n")
    environ = {**IDENTITY, "OPENAI_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    async with intercepting(answers, context) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert await ask(open_judge("openai:m", base_url=strict.url, environ=environ)) == "hm"
    assert strict.last.headers["authorization"] == "Bearer short-lived"
    [exchange] = proxy.asked
    wanted = json.loads(exchange.body)
    assert (wanted["subject_token"], wanted["identity_provider_id"]) == ("of-the-cluster", "idp-1")
    assert wanted["service_account_id"] == "sa-1"


async def test_without_the_platforms_token_nothing_is_asked(strict: Endpoint, tmp_path: Path) -> None:
    environ = {**IDENTITY, "OPENAI_IDENTITY_TOKEN_FILE": str(tmp_path / "absent")}
    with pytest.raises(JudgeRefused, match="OPENAI_IDENTITY_TOKEN_FILE") as caught:
        await ask(open_judge("openai:m", base_url=strict.url, environ=environ))
    assert caught.value.usage.calls == 0
    assert strict.asked == []


@pytest.mark.parametrize(
    "environ", [{"OPENAI_IDENTITY_PROVIDER_ID": "idp-1"}, {**IDENTITY, "OPENAI_API_KEY": "k"}]
)
def test_half_an_identity_or_two_are_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="set both without the key, or none of them"):
        open_judge("openai:m", environ=environ)


async def test_no_log_shows_what_a_judge_is_asked_or_where(
    strict: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    environ = {"OPENAI_API_KEY": "KEY-SECRET"}
    strict.status = 403
    judge = open_judge("openai:m", base_url=f"{strict.url}/?q=QUERY-SECRET", environ=environ)
    with pytest.raises(JudgeRefused):
        await judge.ask(request("PROMPT-SECRET"))
    await judge.aclose()
    assert "PROMPT-SECRET" in json.dumps(strict.last.body)
    assert "SECRET" not in caplog.text


VERSION = "2024-10-21"


@pytest.fixture
async def azure(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    """Stand in for a resource of Azure."""
    for name in ("AZURE_OPENAI_AD_TOKEN", "AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION", "IDENTITY_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    async with serving(Endpoint()) as served:
        yield served


def classic(azure: Endpoint, **further: str) -> dict[str, str]:
    return {"AZURE_OPENAI_ENDPOINT": azure.url, "OPENAI_API_VERSION": VERSION, **further}


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
    variable: str, option: str, azure: Endpoint
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


async def test_a_v1_address_is_asked_as_the_sdk_asks_it(azure: Endpoint) -> None:
    url = f"{azure.url}/openai/v1/"
    environ = {"AZURE_OPENAI_ENDPOINT": url, "AZURE_OPENAI_API_KEY": "s3cret"}
    assert await ask(open_judge("azure:gpt", environ=environ)) == "hm"
    async with openai.AsyncOpenAI(base_url=url, api_key="s3cret") as sdk:
        await sdk.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "?"}])
    ours, theirs = azure.asked
    assert seen(ours) == seen(theirs) == ("/openai/v1/chat/completions", {}, None, "Bearer s3cret")
    assert ours.body["model"] == "gpt"


async def test_an_embedder_is_a_deployment_too(azure: Endpoint) -> None:
    azure.answer = {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}
    embedder = open_embedder("azure:emb", environ=classic(azure, AZURE_OPENAI_API_KEY="k"))
    await embedder.embed(["word"])
    await embedder.aclose()
    assert seen(azure.last)[0] == "/openai/deployments/emb/embeddings"
    assert azure.last.body["model"] == "emb"


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "AZURE_OPENAI_ENDPOINT"),
        ({"AZURE_OPENAI_ENDPOINT": "http://h", "AZURE_OPENAI_API_KEY": "k"}, "OPENAI_API_VERSION"),
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
    with pytest.raises(ConfigError, match=named) as caught:
        open_judge("azure:gpt", environ=environ)
    assert "SECRET" not in str(caught.value)


async def test_without_a_key_a_managed_identity_gives_the_token(
    azure: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = {"access_token": "of-entra", "expires_on": str(int(time()) + 3600), "token_type": "Bearer"}
    async with serving(Endpoint(answer=token)) as identity:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "proof")
        judge = open_judge("azure:gpt", environ=classic(azure))
        assert await ask(judge) == "hm"
    assert azure.last.headers["authorization"] == "Bearer of-entra"
    assert "api-key" not in azure.last.headers
    assert identity.last.headers["x-identity-header"] == "proof"
    assert "cognitiveservices.azure.com" in identity.last.target
