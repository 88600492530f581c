"""What the layers and the HTTP client do over real sockets."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from ragtrace.errors import JudgeUnavailable
from ragtrace.judge import open_judge
from ragtrace.model import Usage
from ragtrace.ports import FreeText, Judge, JudgeRequest, SamplingParameters


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }


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


async def test_a_proxy_of_the_environment_is_used_unless_the_host_is_exempt(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = lambda body: (200, completion("hm"))
    monkeypatch.setenv("http_proxy", endpoint.url.removesuffix("/v1"))
    judge = open_judge("openai:m", base_url="http://nowhere.invalid/v1", environ={}, max_retries=0)
    assert (await judge.ask(request())).value.text == "hm"
    await judge.aclose()
    assert endpoint.headers[0]["host"] == "nowhere.invalid"
    monkeypatch.setenv("no_proxy", "nowhere.invalid")
    judge = open_judge("openai:m", base_url="http://nowhere.invalid/v1", environ={}, max_retries=0)
    with pytest.raises(JudgeUnavailable, match="no connection"):
        await judge.ask(request())
    await judge.aclose()


@pytest.mark.parametrize("status", [408, 429, 502, 529])
async def test_an_endpoint_that_recovers_gives_an_answer(status: int, endpoint: Any, judge: Judge) -> None:
    endpoint.answers = lambda body: (status, {}) if len(endpoint.requests) < 3 else (200, completion("hm"))
    reply = await judge.ask(request())
    assert reply.usage.calls == len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("told", "least", "most"),
    [(lambda: "3600", 3600, 3600), (lambda: formatdate(time() + 7200, usegmt=True), 7000, 7200)],
    ids=["seconds", "date"],
)
async def test_a_pause_too_long_to_wait_for_goes_along_with_the_error(
    told: Callable[[], str], least: float, most: float, endpoint: Any, judge: Judge
) -> None:
    endpoint.extra = {"retry-after": told()}
    endpoint.answers = lambda body: (429, {})
    with pytest.raises(JudgeUnavailable) as caught:
        await judge.ask(request())
    assert least <= (caught.value.retry_after_s or 0) <= most
    assert len(endpoint.requests) == 1


async def test_a_connection_that_is_dropped_is_tried_again(endpoint: Any) -> None:
    dropped = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not dropped.is_set():
            dropped.set()
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
        else:
            await endpoint.serve(reader, writer)

    endpoint.answers = lambda body: (200, completion("hm"))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    judge = open_judge("openai:m", base_url=url, environ={})
    assert (await judge.ask(request())).value.text == "hm"
    await judge.aclose()
    server.close()


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
