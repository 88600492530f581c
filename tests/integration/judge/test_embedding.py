from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ragtrace.errors import JudgeError, JudgeNonsense, JudgeRefused, JudgeUnavailable
from ragtrace.judge import open_embedder
from ragtrace.ports import Embedder

SECRET = "sk-very-secret"


def embeddings(*vectors: Any, indices: list[int] | None = None) -> dict[str, Any]:
    numbers = indices or list(range(len(vectors)))
    data = [
        {"object": "embedding", "index": n, "embedding": v} for n, v in zip(numbers, vectors, strict=True)
    ]
    return {"object": "list", "model": "e", "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}


@pytest.fixture
async def embedder(endpoint: Any) -> AsyncIterator[Embedder]:
    opened = open_embedder(
        "openai:e", base_url=endpoint.url, environ={"OPENAI_API_KEY": SECRET}, max_retries=1, timeout_s=20
    )
    yield opened
    await opened.aclose()


async def test_vectors_come_in_the_order_of_the_texts(endpoint: Any, embedder: Embedder) -> None:
    endpoint.answers = lambda body: (200, embeddings([0, 1], [1, 0.5], indices=[1, 0]))
    found = await embedder.embed(["one", "two \ud800"])
    assert found.vectors == ((1.0, 0.5), (0.0, 1.0))
    assert (found.usage.calls, found.usage.input_tokens) == (1, 7)
    assert (embedder.identity.provider, embedder.identity.model) == ("openai", "e")
    assert endpoint.headers[0]["authorization"] == f"Bearer {SECRET}"


async def test_many_texts_go_in_batches(endpoint: Any, embedder: Embedder) -> None:
    endpoint.answers = lambda body: (200, embeddings(*([float(text)] for text in body["input"])))
    found = await embedder.embed([str(number) for number in range(300)])
    assert [vector[0] for vector in found.vectors] == list(map(float, range(300)))
    assert [len(body["input"]) for body in endpoint.requests] == [128, 128, 44]
    assert (found.usage.calls, found.usage.input_tokens) == (3, 21)


@pytest.mark.parametrize(
    "answer",
    [
        embeddings([1.0]),
        embeddings([1.0], [1.0, 2.0]),
        embeddings([1.0], [math.nan]),
        embeddings([1.0], [2.0], indices=[0, 0]),
        {},
        b"<html>",
    ],
    ids=lambda value: str(value)[-70:],
)
async def test_what_are_no_vectors_of_the_texts_is_nonsense(
    answer: Any, endpoint: Any, embedder: Embedder
) -> None:
    endpoint.answers = lambda body: (200, answer)
    with pytest.raises(JudgeNonsense):
        await embedder.embed(["one", "two"])


@pytest.mark.parametrize(
    ("status", "expected", "tries"),
    [(400, JudgeNonsense, 1), (401, JudgeRefused, 1), (429, JudgeUnavailable, 2)],
)
async def test_each_way_to_fail_has_its_error(
    status: int, expected: type[JudgeError], tries: int, endpoint: Any, embedder: Embedder
) -> None:
    endpoint.answers = lambda body: (status, {"error": {"message": f"{SECRET} one"}})
    with pytest.raises(expected) as caught:
        await embedder.embed(["one"])
    assert SECRET not in str(caught.value)
    assert len(endpoint.requests) == tries
