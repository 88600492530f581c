from __future__ import annotations

import math

import pytest

from ragtrace.judge import open_embedder

pytestmark = pytest.mark.slow


def cosine(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


async def test_texts_about_the_same_are_nearer_without_key_or_download(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    embedder = open_embedder("wordllama")
    found = await embedder.embed(
        ["How long does a refund take?", "When do I get my money back?", "Cats purr. \ud800", ""]
    )
    await embedder.aclose()
    refund, money, cats, nothing = found.vectors
    assert cosine(refund, money) > cosine(refund, cats)
    assert set(nothing) == {0.0}
    assert embedder.identity.computes
