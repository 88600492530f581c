"""What the environment tells OpenAI's SDK, and what of a judge's calls it must not tell anybody."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from ragtrace.errors import ConfigError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.http import ClientTls
from ragtrace.judge import open_embedder, open_judge
from tests.integration.judge.interceptor import Intercepted, intercepting
from tests.integration.judge.test_endpoints import Strict, ask, self_signed, serving, strict
from tests.integration.judge.test_transports import completion, request

__all__ = ["strict"]

IDENTITY = {"OPENAI_IDENTITY_PROVIDER_ID": "idp-1", "OPENAI_SERVICE_ACCOUNT_ID": "sa-1"}


def answers(asked: Intercepted) -> Any:
    """Answer for OpenAI, and for the host that exchanges its tokens."""
    if asked.target == "/oauth/token":
        return {"access_token": "short-lived", "expires_in": 3600, "token_type": "Bearer"}
    return completion("hm")


async def test_a_proxy_of_the_environment_tunnels_to_a_host_of_the_own_authority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, context = self_signed(tmp_path, "api.openai.com")
    async with intercepting(answers, context) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert await ask(open_judge("openai:m", environ={"OPENAI_API_KEY": "k"})) == "hm"
    assert proxy.connected == ["api.openai.com:443"]
    assert proxy.asked[0].headers["authorization"] == "Bearer k"


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
    async with serving(Strict(), context) as served:
        for tls in (ClientTls(ca=authority.ca, cert=ours.cert, key=ours.key), ClientTls(ca=authority.ca)):
            judge = open_judge("openai:m", base_url=served.url, environ={}, tls=tls, max_retries=0)
            if tls.cert:
                assert await ask(judge) == "hm"
            else:
                with pytest.raises(JudgeUnavailable):
                    await ask(judge)


@pytest.mark.parametrize("name", ["OpenAI-Organization", "authorization"])
async def test_a_header_of_the_settings_replaces_that_of_the_sdk(name: str, strict: Strict) -> None:
    environ = {"OPENAI_API_KEY": "k", "OPENAI_ORG_ID": "org-1"}
    judge = open_judge("openai:m", base_url=strict.url, environ=environ, headers={name: "ours"})
    assert await ask(judge) == "hm"
    assert strict.last.headers[name.lower()] == "ours"
    assert strict.last.head.lower().count(f"{name.lower()}:") == 1


@pytest.mark.slow
async def test_a_workload_identity_is_exchanged_for_a_token(
    strict: Strict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    role = "judge"
    authority, context = self_signed(tmp_path, "auth.openai.com")
    (tmp_path / "token").write_text("of-the-cluster\n")
    environ = {**IDENTITY, "OPENAI_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    async with intercepting(answers, context) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        if role == "judge":
            assert await ask(open_judge("openai:m", base_url=strict.url, environ=environ)) == "hm"
        else:
            strict.answer = {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}
            embedder = open_embedder("openai:m", base_url=strict.url, environ=environ)
            await embedder.embed(["word"])
            await embedder.embed(["another"])
            await embedder.aclose()
    assert strict.last.headers["authorization"] == "Bearer short-lived"
    [exchange] = proxy.asked
    wanted = json.loads(exchange.body)
    assert (wanted["subject_token"], wanted["identity_provider_id"]) == ("of-the-cluster", "idp-1")
    assert wanted["service_account_id"] == "sa-1"


async def test_without_the_platforms_token_nothing_is_asked(strict: Strict, tmp_path: Path) -> None:
    environ = {**IDENTITY, "OPENAI_IDENTITY_TOKEN_FILE": str(tmp_path / "absent")}
    with pytest.raises(JudgeRefused, match="OPENAI_IDENTITY_TOKEN_FILE") as caught:
        await ask(open_judge("openai:m", base_url=strict.url, environ=environ))
    assert caught.value.usage.calls == 0
    assert strict.asked == []


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OPENAI_IDENTITY_PROVIDER_ID": "idp-1"}, "set both"),
        ({"OPENAI_SERVICE_ACCOUNT_ID": "sa-1"}, "set both"),
        ({**IDENTITY, "OPENAI_API_KEY": "k"}, "both OPENAI_API_KEY and a workload identity"),
        ({"OPENAI_API_KEY": "k\u20ac"}, "cannot be sent"),
    ],
)
def test_half_an_identity_or_two_are_an_error(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        open_judge("openai:m", environ=environ)


async def test_no_log_shows_what_a_judge_is_asked_or_where(
    strict: Strict, caplog: pytest.LogCaptureFixture
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


async def test_slow_bytes_do_not_stretch_the_time_out() -> None:
    """Each read is in time; the whole is not."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(JudgeTimeout):
        await ask(open_judge("openai:m", base_url=url, environ={}, timeout_s=0.3))
    server.close()
