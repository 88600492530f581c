# ruff: noqa: RUF001  the languages have their own marks
from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.sentences import is_heading, split_sentences


def test_sentences_end_where_a_reader_ends_them() -> None:
    for marked in (
        "One.| Two!| Three?| Four",
        "Dr. Smith met Mrs. Jones.| They talked.",
        "J. K. Rowling wrote it.",
        "It costs $3.50, e.g. in May.| Fine.",
        "Open until 10 a.m.| Then it closes.",
        "The U.S. Congress met.",
        'He said "Go."| Then he left.',
        "A line\nthat goes on here.| End",
        "他很高。|你呢？|好！",
        "これは「例。」です。|次。|「はい。」|「いいえ。」",
        "Indiana Gov. Pence met Sen. McCain.",
        "Do one more rep.| Then rest.",
        "It opened on Aug. 11.| It closed in Oct.| Then",
        "Kansas City-St. Joseph is a diocese.",
        "Well... yes.| Well… no.",
        "他很高……她很矮。|真的！！|你呢?|好!|是的.|对",
        "π是３．１４。|他说：“好。”然后走了。|《书。》完",
        "كيف حالك؟| أنا بخير؛ شكرا.| قال د. أحمد نعم.| انتهى",
        "قال المدير.\u200f| ثم خرج.\u200f| انتهى۔| نعم",
        "Am 3. Mai war z. B. das Fest im 20. Jahrhundert.| Es kostete ca. 1.000,50 Mark.| Das war 1990.",
        "Il est né en 44 av. J.-C. à Rome.| Mme. Durand est à la p. 12.| Est-ce vrai ?| « Oui. »| Il part.",
        "¡Hola!| ¿Qué tal?| El Sr. García vive en EE. UU.| Mide 2.412,5 m.",
        "¿Sí?| Véase la pág. 12 del libro.",
        "He scored 3.| Then he left.| See p. 12 of it.| Take vitamin a.| Then rest.",
    ):
        expected = [each.strip(" ") for each in marked.split("|")]
        assert [sentence.text for sentence in split_sentences(marked.replace("|", ""))] == expected
    for text, sentences in [
        ("## Steps\n\n1. Open it.\n2. Close it\n- now", ["Steps", "Open it.", "Close it", "now"]),
        ("Parts:\n+ Bran\n+ Germ", ["Parts:", "Bran", "Germ"]),
        (" \n- \n***\n...", []),
    ]:
        assert [sentence.text for sentence in split_sentences(text)] == sentences, text


@given(st.text(alphabet="aB1. \n-*!?…。\"'()\u00e9顾、\u0301\u200f»", max_size=200))
def test_offsets_point_at_the_text_and_no_word_is_lost(text: str) -> None:
    sentences = split_sentences(text, max_chars=20)
    assert [text[s.start : s.end] for s in sentences] == [s.text for s in sentences]
    assert [s.number for s in sentences] == list(range(1, len(sentences) + 1))
    assert all(a.end <= b.start for a, b in pairwise(sentences))
    assert all(len(s.text) <= 20 for s in sentences)
    letters = [char for char in text if char in "aB\u00e9"]
    kept = [char for s in sentences for char in s.text if char in "aB\u00e9"]
    assert len(letters) - len(kept) <= text.count("a.") + text.count("a)") + text.count("B)")  # list markers


def test_text_without_spaces_is_cut_behind_a_comma_and_never_before_an_accent() -> None:
    assert all(s.text.endswith("、") for s in split_sentences("顾客可以退回、" * 400)[:-1])
    cut = split_sentences("e\u0301" * 1000, max_chars=7)
    assert not any(s.text.startswith("\u0301") for s in cut)
    assert "".join(s.text for s in cut) == "e\u0301" * 1000


@pytest.mark.slow
def test_a_long_answer_of_anything_is_split() -> None:
    for unit in (".", "- ", "1. ", '."', "x", "。」", "\u0301", "\ud800", "z. B. ", ".\u200f", "、"):
        assert all(len(s.text) <= 800 for s in split_sentences(unit * 20_000)), unit


def test_a_heading_is_told_by_its_place() -> None:
    for text, headings in [
        ("Paris", []),
        ("**Paris**", []),
        ("# Paris", ["Paris"]),
        ("## Refunds\n\nThey take 14 days.", ["Refunds"]),
        ("**Refunds**\nThey take 14 days", ["**Refunds**"]),
        ("Refunds\n- 14 days\n- by card", ["Refunds"]),
        ("All is free.\n\nRefunds\n\nThey take 14 days.", ["Refunds"]),
        ("14 days\n\nThis is the time for refunds.", []),
        ("Name: Ada\nAge: 36", []),
        ("- **Refund time:** 30 days\n- Paris", []),
        ("1. Prepare\n   - Wash it.\n   - Cut it.\n2. Serve", ["Prepare"]),
        ("| what | time |\n|---|:-:|\n| Refunds | 14 days |", ["| what | time |"]),
        ("Refunds take 14 days.\n- by card", []),
        ("The shop is old. Refunds\n- 14 days", []),
    ]:
        assert [each.text for each in split_sentences(text) if is_heading(text, each)] == headings, text
