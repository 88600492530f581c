"""The one client: what it sends, follows, reads and logs."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping

import httpx
import pytest

from ragtrace.http import BodyTooLarge, UnreadableBody, client_options, open_client, redirected_to
from tests.attack.hostile_server import MIB, Sent, bomb_of, hostile_server, packed
from tests.patience import PATIENCE_S

MOST = 1_000


def client(headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    return open_client(timeout_s=PATIENCE_S, most_bytes=MOST, headers=headers)


async def body_of(sent: Sent) -> bytes:
    with hostile_server(sent) as server:
        async with client() as opened:
            return (await opened.get(server.url)).content


@pytest.mark.parametrize("pack", [lambda body: body, packed], ids=["plain", "gzip"])
async def test_a_reply_within_the_limit_is_read_whole(pack: Callable[[bytes], bytes]) -> None:
    text = b"x" * MOST
    coding = {"content-encoding": "gzip"} if pack is packed else {}
    assert await body_of(Sent(headers=coding, body=pack(text))) == text


@pytest.mark.parametrize(
    "sent",
    [
        Sent(body=b"x" * (MOST + 1)),
        Sent(headers={"content-encoding": "gzip"}, body=packed(b"x" * (MOST + 1))),
        Sent(headers={"content-encoding": "gzip"}, body=bomb_of(64)),
        Sent(status=500, body=b"x" * MIB),
    ],
    ids=["plain", "gzip", "bomb", "error"],
)
async def test_a_reply_over_the_limit_ends_there_however_it_is_read(sent: Sent) -> None:
    with pytest.raises(BodyTooLarge, match="longer than 1,000 bytes"):
        await body_of(sent)
    with hostile_server(sent) as server:
        async with client() as opened, opened.stream("POST", server.url, content=b"x") as response:
            assert response.status_code == sent.status
            with pytest.raises(BodyTooLarge):
                async for _ in response.aiter_bytes():
                    pass


async def test_an_encoding_that_was_not_requested_is_refused() -> None:
    with pytest.raises(UnreadableBody, match="'br'"):
        await body_of(Sent(headers={"content-encoding": "br"}, body=b"{}"))


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("http://user:pass@other.test/path?key=k", "other.test"),
        ("//other.test", "other.test"),
        ("/elsewhere", "127.0.0.1"),
        ("http://other.test:secret/", "other.test"),
        ("http://[secret/", "no address"),
    ],
)
async def test_a_redirect_is_a_reply_that_names_its_host(location: str, host: str) -> None:
    with hostile_server(Sent(status=307, headers={"location": location}, body=b"{}")) as server:
        async with client() as opened:
            response = await opened.get(server.url)
    assert (response.status_code, redirected_to(response)) == (307, host)
    assert len(server.requests) == 1


async def test_what_is_no_redirect_points_nowhere() -> None:
    for sent in (Sent(status=304), Sent(status=201, headers={"location": "http://other.test"})):
        with hostile_server(sent) as server:
            async with client() as opened:
                assert redirected_to(await opened.get(server.url)) is None


async def test_a_login_in_the_url_is_sent_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("", "httpx"):  # a collector in another test may have made it quiet
        caplog.set_level(logging.DEBUG, logger=name)
    with hostile_server(Sent(body=b"{}")) as server:
        url = server.url.replace("//", "//me:pass%2Fword@")
        async with client({"authorization": "Bearer other"}) as opened:
            response = await opened.get(f"{url}/path")
    (_, headers, _) = server.requests[0]
    assert headers["authorization"] == f"Basic {base64.b64encode(b'me:pass/word').decode()}"
    assert str(response.url) == f"{server.url}/path"
    assert "HTTP Request: GET http://127.0.0.1" in caplog.text
    assert "pass" not in caplog.text


async def test_the_proxy_of_the_environment_is_asked_within_the_same_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hostile_server(Sent(body=b"x" * (MOST + 1))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with client() as opened:
            with pytest.raises(BodyTooLarge):
                await opened.get("http://judge.test/v1")
    (line, _, _) = proxy.requests[0]
    assert line.startswith("GET http://judge.test/v1 ")


async def test_many_requests_at_once_have_a_connection_each() -> None:
    with hostile_server(Sent(body=b"{}")) as server:
        many = open_client(timeout_s=PATIENCE_S, most_bytes=MOST, most_connections=200)
        async with many as opened, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(opened.get(server.url)) for _ in range(120)]
    assert [task.result().content for task in asked] == [b"{}"] * 120


async def test_an_sdks_own_client_is_made_of_the_same_options() -> None:
    httpx2 = pytest.importorskip("httpx2")
    with hostile_server(Sent(headers={"content-encoding": "gzip"}, body=bomb_of(64))) as server:
        async with httpx2.AsyncClient(**client_options(MOST)) as opened:
            with pytest.raises(BodyTooLarge):
                await opened.get(server.url)
