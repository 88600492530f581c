"""Fences around text under judgment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragtrace.compat.tool import fenced


@given(st.text(st.characters(codec=None)))
def test_no_text_contains_the_line_that_ends_its_fence(text: str) -> None:
    ending = fenced("chunk 0", text).rpartition("\n")[2]
    assert ending not in text


def test_the_same_text_gets_the_same_fence() -> None:
    assert fenced("answer", "Ulm") == fenced("answer", "Ulm") != fenced("answer", "Bonn")
