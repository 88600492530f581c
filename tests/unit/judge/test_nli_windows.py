"""Windows of a chunk: all of it is read, in parts that fit, and time grows with its length alone."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

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


def test_a_text_ten_times_as_long_has_ten_times_the_windows() -> None:
    sentence = "Eight words stand in this sentence of mine. "
    short, long = (len(windows(sentence * number, 100)) for number in (300, 3_000))
    assert 9 * short <= long <= 11 * short
