"""Languages are told apart by script and function words."""

# ruff: noqa: RUF001  the languages have their own marks

from __future__ import annotations

import unicodedata

import pytest

from ragtrace.languages import Language, language_of, one_spelling
from tests.language_pairs import pairs


@pytest.mark.parametrize("language", list(Language))
def test_the_language_of_a_paragraph_is_found(language: Language) -> None:
    contexts = {pair.context for pair in pairs() if pair.language == language}
    assert {language_of(context) for context in contexts} == {language}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("café – 1,250 ½ ™", "café – 1,250 ½ ™"),
        (unicodedata.normalize("NFD", "Zürich"), "Zürich"),
        ("١٬٢٥٠٫٥ ３０ ۳۰", "1,250.5 30 30"),
        ("\u200fab\u2060c", "abc"),
        ("إعـادة", "اعاده"),
        ("\ud800", "\ud800"),
    ],
)
def test_what_looks_the_same_is_spelled_the_same(text: str, plain: str) -> None:
    assert one_spelling(text) == plain
    assert one_spelling(plain) == plain
