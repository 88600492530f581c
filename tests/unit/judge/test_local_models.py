"""Models that run here: windows of a verifier, and the embedder that needs no download."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.judge import open_embedder
from ragtrace.judge.nli import windows_of
from ragtrace.judge.nli_model import Window

SEPARATORS = st.lists(st.sampled_from([" ", ". ", "! ", "\n\n", "。", ", "]), max_size=200)


def tokens_of(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(r"\w+|[^\w\s]", text)]


def windows(text: str, size: int) -> list[Window]:
    return list(windows_of(1, text, tokens_of(text), size))


@given(separators=SEPARATORS, size=st.integers(1, 40))
def test_every_word_is_in_a_window_that_fits_and_is_verbatim(separators: list[str], size: int) -> None:
    text = "".join(f"w{at}{separator}" for at, separator in enumerate(separators))
    found = windows(text, size)
    assert all(window.text in text and len(tokens_of(window.text)) <= size for window in found)
    read = [re.findall(r"\w+", window.text) for window in found]
    assert {word for words in read for word in words} == set(re.findall(r"\w+", text))


def test_windows_end_with_sentences_and_overlap_by_one() -> None:
    text = " ".join(f"Sentence number {at} has words." for at in range(10))
    found = [window.text for window in windows(text, 26)]
    assert all(window.startswith("Sentence") and window.endswith("words.") for window in found)
    assert [re.findall(r"\d", window) for window in found] == [list("0123"), list("3456"), list("6789")]


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
