# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragtrace.judge_forms import NumberedText
from ragtrace.metrics._evidence import FoldedText, pack_chunks

CHUNK = "Refunds are “always” granted\n within 14–16 days… of purchase; the ﬁrst claim wins. STRAßE."


def test_a_quote_gives_the_chunks_own_text() -> None:
    for quote, found in [
        ("granted within 14", "granted\n within 14"),
        ("REFUNDS ARE 'ALWAYS' GRANTED", "Refunds are “always” granted"),
        ('"14-16 days"', "14–16 days"),
        ("…the first claim wins...", "the ﬁrst claim wins"),
        ("strasse", "STRAßE"),
        ("days... of purchase", "days… of purchase"),
        ("within 14 - 16 days", "within 14–16 days"),
        ("**within** 14–16 days", "within 14–16 days"),
        ("Refunds are “always” … the first claim wins", CHUNK[: CHUNK.index(". STR")]),
        (
            "granted within 14 [...] the first claim",
            "granted\n within 14–16 days… of purchase; the ﬁrst claim",
        ),
    ]:
        assert FoldedText(CHUNK).find(quote) == found, quote


def test_what_is_not_in_the_chunk_is_no_quote() -> None:
    for quote in [
        "",
        "…",
        "a",
        "granted within 15",
        "Refunds … wins",
        "granted purchase",
        "the first claim wins … Refunds are always",
    ]:
        assert FoldedText(CHUNK).find(quote) is None, quote


def test_a_quote_begins_with_a_word_and_never_cuts_a_number() -> None:
    for quote, text in [
        ("4 days", "It takes 14 days."),
        ("within 14", "It is sent within 145 hours."),
        ("400 guests", "It holds 1,400 guests."),
        ("about 1", "It weighs about 1.5 tons."),
        ("able to pay", "He was unable to pay."),
        ("ABLE to pay", "He was unable to pay."),
    ]:
        assert FoldedText(text).find(quote) is None, quote
        assert FoldedText(f"{text} {quote}!").find(quote) == quote, quote


@given(st.text(min_size=1, max_size=80), st.integers(0, 79), st.integers(1, 80))
def test_evidence_is_always_verbatim(text: str, start: int, length: int) -> None:
    found = FoldedText(text).find(text[start : start + length])
    assert found is None or found in text


@given(st.text(alphabet="ab \u0301é", min_size=4, max_size=40))
def test_a_text_with_letters_is_found_in_itself(text: str) -> None:
    letters = sum(char.isalnum() for char in text)
    assert letters < 2 or FoldedText(text).find(text) is not None


@given(st.lists(st.text(alphabet="ab ", max_size=60), max_size=8), st.integers(8, 50))
def test_packs_keep_order_and_budget(texts: list[str], budget: int) -> None:
    chunks = [NumberedText(number=n, text=text) for n, text in enumerate(texts, start=1)]
    packs = pack_chunks(chunks, budget)
    assert all(sum(len(piece.text) for piece in pack) <= budget for pack in packs)
    numbers = [piece.number for pack in packs for piece in pack]
    assert numbers == sorted(numbers)
    assert set(numbers) == {chunk.number for chunk in chunks}
