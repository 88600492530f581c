"""What personal data and secrets are found in a text, and what is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.capture.privacy._redaction import DetectorKind, find

SECRET, EMAIL, IBAN, CARD, SSN, IP, PHONE = DetectorKind
REGIONS = ("US", "GB", "DE")
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE-abc\n-----END RSA PRIVATE KEY-----"


def found(text: str) -> list[tuple[DetectorKind, str]]:
    return [(finding.kind, finding.value) for finding in find(text, REGIONS)]


VALUES = (
    ("Write to Jane.Doe+a@Example.co.uk.", EMAIL, "jane.doe+a@example.co.uk"),
    ("**_jane@example.com_**", EMAIL, "jane@example.com"),
    ("用户@例子.公司", EMAIL, "用户@例子.公司"),
    ("call +49 (30) 901820 now", PHONE, "+4930901820"),
    ("call 030/901820 now", PHONE, "+4930901820"),
    ("(212) 555-0123", PHONE, "+12125550123"),
    ("tel:+12125550123,+4930901821", PHONE, "+12125550123"),
    ("WhatsApp 447911123456", PHONE, "+447911123456"),
    ("(212) 555-0123 030 901820", PHONE, "+4930901820"),
    ("+49 (0)30 901820", PHONE, "+4930901820"),
    ("order 4711 020 7946 0958", PHONE, "+442079460958"),
    ("card 4111 1111 1111 1111.", CARD, "4111111111111111"),
    ("3782 822463 10005", CARD, "378282246310005"),
    ("IBAN DE89 3704 0044 0532 0130 00 is mine", IBAN, "DE89370400440532013000"),
    ("SSN 536-90-4399", SSN, "536-90-4399"),
    ("from 192.168.1.20.", IP, "192.168.1.20"),
    ("from 2001:DB8::1, again", IP, "2001:db8::1"),
    ("key sk-proj-abcdefghijklmnopqrst", SECRET, "sk-proj-abcdefghijklmnopqrst"),
    ("AKIAIOSFODNN7EXAMPLE", SECRET, "AKIAIOSFODNN7EXAMPLE"),
    (
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        SECRET,
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ),
    ("Authorization: Bearer abcdefghijklmnopqr", SECRET, "abcdefghijklmnopqr"),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        SECRET,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    ),
    ("Password: hunter22x", SECRET, "hunter22x"),
    ("postgres://admin:s3cret@db/prod", SECRET, "admin:s3cret"),
    (KEY, SECRET, KEY),
    ("a cut key " + KEY[:36], SECRET, KEY[:36]),
)


def test_a_value_is_found_in_one_form() -> None:
    for text, kind, value in VALUES:
        assert (kind, value) in found(text), text


LOOK_ALIKE = (
    "The warranty covers 2 years, 1,234,567.89 USD and 10 000 000 units.",
    "On 2023-11-04 12:30, or 14.11.2023, see pages 100-120.",
    "Order 12345678 of 1763788123456 ms, id 550e8400-e29b-41d4-a716-446655440000.",
    "card 4111 1111 1111 1112, IBAN DE88370400440532013000",
    "std::vector at 12:30:45, ratio 3:4, version 1.2.3",
    "@decorator a@b, price @ 5.00",
    "The password: must be changed. A token is a word. Tokens: 1200",
)


def test_what_only_looks_alike_is_left_alone() -> None:
    for text in LOOK_ALIKE:
        assert found(text) == [], text


pieces = st.sampled_from(
    [
        *("@", ".", "+", "1", "49", " ", "-", ":", "(", "a", "é", "\u0661", "\ud800", "\0", "\n", "DE89"),
        "eyJ",
        *("sk-", "://", "x.com", "4111 1111 1111 1111", "::", "password=", "-----BEGIN PRIVATE KEY-----"),
    ]
)


@given(st.one_of(st.text(st.characters(exclude_categories=())), st.lists(pieces, max_size=60).map("".join)))
def test_any_text_is_searched_in_order_and_without_overlaps(text: str) -> None:
    end = 0
    for finding in find(text, REGIONS):
        assert end <= finding.start < finding.end <= len(text)
        end = finding.end


@pytest.mark.slow
def test_a_text_made_to_be_slow_is_not() -> None:
    """A quadratic search would run into the time limit of every test."""
    pieces = ("a@b.", "1 ", "+1", "4111 ", "AA00 ", "::", "1.", "eyJa.", "://a:", "password=", "é@é.")
    for piece in (*pieces, "-----BEGIN PRIVATE KEY-----", "030 901820 "):
        find(piece * (40_000 // len(piece)), REGIONS)
