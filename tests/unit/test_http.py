"""The one client: what it sends, follows, reads and logs; what is tried again, and after which wait."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.http import (
    Backoff,
    BodyTooLarge,
    UnreadableBody,
    open_client,
    redirected_to,
    retry_after_s_in,
)
from tests.attack.hostile_server import MIB, Sent, bomb_of, hostile_server, packed
from tests.patience import PATIENCE_S

MOST = 1_000


def client(headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    return open_client(timeout_s=PATIENCE_S, most_bytes=MOST, headers=headers)


async def body_of(sent: Sent) -> bytes:
    with hostile_server(sent) as server:
        async with client() as opened:
            return (await opened.get(server.url)).content


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


@given(retry=st.integers(0, 2000), draw=st.floats(0, 1), longest_wait_s=st.floats(0.5, 1e6))
def test_an_own_wait_is_drawn_between_half_and_all_of_twice_the_one_before(
    retry: int, draw: float, longest_wait_s: float
) -> None:
    backoff = Backoff(longest_wait_s=longest_wait_s)
    whole = min(0.5 * 2.0 ** min(retry, 30), longest_wait_s)
    assert backoff.own_wait_s(retry) == whole
    assert whole / 2 <= backoff.own_wait_s(retry, draw) <= whole


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7),
        ({"retry-after-ms": "99999999999999"}, 86_400),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_headers_ask_for_a_wait_in_milliseconds_seconds_or_by_a_date(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_after_s_in(headers) == wait_s
