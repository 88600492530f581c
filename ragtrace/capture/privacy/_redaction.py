"""Replace personal data and secrets with pseudonyms: equal values get the same pseudonym.

Needs the extra ``privacy``, as the detectors do.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

import phonenumbers
from stdnum import iban, luhn
from stdnum.us import ssn

from ragtrace.capture.privacy.policy import LONGEST_VALUE, digest

MAX_CHECKED = 200
"""The number of candidates per kind and text that are checked. All further ones count as found, so that a
crafted text is neither slow nor leaks a value."""


class DetectorKind(StrEnum):
    """The kind of a value; pseudonyms contain it."""

    SECRET = "SECRET"
    EMAIL = "EMAIL"
    IBAN = "IBAN"
    CARD = "CARD"
    SSN = "SSN"
    IP = "IP"
    PHONE = "PHONE"


class DetectedValue(NamedTuple):
    """A detected value in a text."""

    start: int
    end: int
    kind: DetectorKind
    value: str
    """Normalized: equal for all spellings."""


def find(text: str, phone_regions: tuple[str, ...]) -> list[DetectedValue]:
    """Return the detected values, in order; overlapping ones are merged under the more certain kind.

    Args:
        text: Any text. The run time is linear in its length.
        phone_regions: ISO 3166 codes of the countries whose phone numbers are found without a ``+``.
    """
    found: list[DetectedValue] = []
    if "@" in text:
        found += _emails(text)
    found += _secrets(text)
    if _DIGITS.search(text):
        found += (*_ibans(text), *_cards(text), *_ssns(text), *_phones(text, phone_regions))
    found += _addresses(text)
    return _joined(found) if found else found


_DIGITS = re.compile(r"\d(?:\D{0,3}\d){6}")  # the fewest digits of a phone number
_RANK = {kind: rank for rank, kind in enumerate(DetectorKind)}


def _joined(found: list[DetectedValue]) -> list[DetectedValue]:
    found.sort(key=lambda finding: (finding.start, _RANK[finding.kind], -finding.end))
    joined = found[:1]
    for finding in found[1:]:
        last = joined[-1]
        if finding.start >= last.end:
            joined.append(finding)
        else:
            surer = min(last, finding, key=lambda either: _RANK[either.kind])
            joined[-1] = surer._replace(start=last.start, end=max(last.end, finding.end))
    return joined


# -- e-mail -----------------------------------------------------------------------------------------------
# From the "@" outward: a pattern that begins with the local part is quadratic in texts without an address.
# Latin letters first, so that an adjacent word in another script is not part of the address.
_LATIN = "0-9A-Za-z\u00c0-\u024f\u0300-\u036f"
_DOMAIN = re.compile(
    rf"@((?:[{_LATIN}-]{{1,63}}(?:\.[{_LATIN}-]{{1,63}})+)|(?:[\w-]{{1,63}}(?:\.[\w-]{{1,63}})+))"
)
_LONGEST_LOCAL = 254
_LOCAL_FROM_END = re.compile(rf"[{_LATIN}.!#$%&'*+/=?^_`{{|}}~-]+")
_ANY_LOCAL_FROM_END = re.compile(r"[^\s<>()\[\]{}\",;:@]+")
_NOT_FIRST = "._!#$%&'*/=?^`{|}~-"


def _emails(text: str) -> Iterator[DetectedValue]:
    for match in _DOMAIN.finditer(text):
        at = match.start()
        before = text[max(0, at - _LONGEST_LOCAL) : at][::-1]
        local = _LOCAL_FROM_END.match(before) or _ANY_LOCAL_FROM_END.match(before)
        if local is not None:
            # Strip quotes and Markdown signs before an address, so that it has one pseudonym.
            name = local.group()[::-1].lstrip(_NOT_FIRST) or local.group()[::-1]
            address = f"{name}@{match[1]}".casefold()
            yield DetectedValue(at - len(name), match.end(), DetectorKind.EMAIL, address)


# -- keys and tokens --------------------------------------------------------------------------------------
# By their issuers' prefixes. Each pattern begins with a literal, which `re` finds fast. A prefix inside a
# longer word is skipped; otherwise each of many prefixes would scan all the following text.
_TOKENS = tuple(
    (prefix, re.compile(rf"{prefix}(?<![\w-]{prefix}){rest}"))
    for prefix, rest in (
        ("AKIA", r"[A-Z0-9]{16}\b"),  # AWS
        ("ASIA", r"[A-Z0-9]{16}\b"),
        ("AIza", r"[\w-]{35}"),  # Google
        ("gh", r"[pousr]_\w{36,}"),  # GitHub
        ("github_pat_", r"\w{22,}"),
        ("glpat-", r"[\w-]{20,}"),
        ("sk-", r"[\w-]{20,}"),  # OpenAI, Anthropic
        ("sk_", r"(?:live|test)_\w{16,}"),  # Stripe
        ("rk_", r"(?:live|test)_\w{16,}"),
        ("whsec_", r"\w{16,}"),
        ("xox", r"[a-z]-[\w-]{10,}"),  # Slack
        ("hf_", r"\w{30,}"),
        ("npm_", r"\w{36}"),
        ("pypi-", r"[\w-]{40,}"),
        ("eyJ", r"[\w-]{10,}\.[\w-]+(?:\.[\w-]*)?"),  # JSON Web Tokens
        (
            "-----BEGIN ",
            r"[^-\n]{0,40}PRIVATE KEY-{5}[^-]*(?:-(?!----END )[^-]*)*(?:-{5}END [^-\n]{0,60}-{5})?",
        ),
    )
)
# The text after such a word, if it has a digit and a letter as passwords do.
_NAMED = tuple(
    (name, re.compile(f"{name}{rest}", re.IGNORECASE))
    for name, rest in (
        ("bearer", r"\s{1,4}([\w.~+/=-]{16,})"),
        ("://", r"([^\s/:@]{1,64}:[^\s/:@]{1,128})@"),
        *(
            (word, r"[\"']?\s{0,2}[:=]\s{0,2}[\"']?((?=\S{0,64}\d)(?=\S{0,64}[a-z])[^\s\"',;<>]{8,})")
            for word in ("password", "passwd", "secret", "api_key", "api-key", "api key", "apikey", "token")
        ),
    )
)


def _secrets(text: str) -> Iterator[DetectedValue]:
    for prefix, token in _TOKENS:
        if prefix in text:
            for match in token.finditer(text):
                yield DetectedValue(*match.span(), DetectorKind.SECRET, match.group())
    lower = text.lower()
    for name, behind in _NAMED:
        if name in lower:
            for match in behind.finditer(text):
                yield DetectedValue(*match.span(1), DetectorKind.SECRET, match[1])


# -- numbers with check digits ----------------------------------------------------------------------------
# A look-ahead at every start, so that a number before a card does not hide the card. The negative look-behind
# comes last, because `re` quickly finds a start that is a letter or a digit.
_SEPARATOR = "[ \u00a0.\u2013-]"
_CARD = re.compile(
    r"[2-6](?<!\d.)(?=(\d{12,18}"
    rf"|\d{{3}}(?:{_SEPARATOR}\d{{4}}){{3}}(?:{_SEPARATOR}\d{{3}})?"
    rf"|\d{{3}}{_SEPARATOR}\d{{6}}{_SEPARATOR}\d{{4,5}})(?!\d))"
)
_IBAN = re.compile(r"[A-Za-z]{2}\d{2}(?<![^\W_][A-Za-z]{2}\d{2})(?=((?:[ \u00a0-]?[A-Za-z0-9]){11,30}))")
_IBAN_LENGTHS = range(34, 14, -1)
_SSN = re.compile(r"\d{3}-\d{2}-\d{4}(?<![\w-]\d{3}-\d{2}-\d{4})(?![\w-])")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def _cards(text: str) -> Iterator[DetectedValue]:
    for number, match in enumerate(_CARD.finditer(text)):
        digits = _NOT_ALPHANUMERIC.sub("", match[0] + match[1])
        if number >= MAX_CHECKED or luhn.is_valid(digits):
            yield DetectedValue(match.start(), match.end(1), DetectorKind.CARD, digits)


def _ibans(text: str) -> Iterator[DetectedValue]:
    for number, match in enumerate(_IBAN.finditer(text)):
        candidate = match[0] + match[1]
        length = len(candidate) if number >= MAX_CHECKED else _iban_length(candidate)
        if length:
            value = _NOT_ALPHANUMERIC.sub("", candidate[:length]).upper()
            yield DetectedValue(match.start(), match.start() + length, DetectorKind.IBAN, value)


def _iban_length(candidate: str) -> int:
    """Return the length of the IBAN in the candidate: following words look like a part of it."""
    ends = [index for index, character in enumerate(candidate, 1) if character.isalnum()]
    for length in _IBAN_LENGTHS:
        if length <= len(ends) and iban.is_valid(candidate[: ends[length - 1]]):
            return ends[length - 1]
    return 0


def _ssns(text: str) -> Iterator[DetectedValue]:
    for match in _SSN.finditer(text):
        if ssn.is_valid(match.group()):
            yield DetectedValue(*match.span(), DetectorKind.SSN, match.group())


# -- IP addresses -----------------------------------------------------------------------------------------
_IPV4 = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\w|\.\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,39}(?:(?:\.\d{1,3}){3})?(?![\w:])"
)


def _addresses(text: str) -> Iterator[DetectedValue]:
    matches = [*_IPV4.finditer(text)] if text.count(".") > 2 else []
    if text.count(":") > 1:
        matches += _IPV6.finditer(text)
    for match in matches:
        try:
            address = ip_address(match.group())
        except ValueError:
            continue
        if len(match.group()) > len("::"):
            yield DetectedValue(*match.span(), DetectorKind.IP, str(address))


# -- phone numbers ----------------------------------------------------------------------------------------
_PHONE = re.compile(
    r"(?:(?:\+\s?|(?<![\w.,-])00)\d{1,3}[ .-]?\(?|\+\s?\(?|(?<!\w)(?<!\w-)(?<!\d[.,])\(?)"  # not inside an id
    r"\d(?:[ \u00a0)./\u2010-\u2013-]{0,3}\d){6,16}(?!-?\w)"
)
_RUN = re.compile(r"\d(?:[ \u00a0()./\u2010-\u2013-]{0,3}\d){6,}")
"""Candidate places of phone numbers: it begins with a digit, which `re` finds fast."""
_LONGEST_PREFIX = 7  # "+ 123 ("
_LOOK_AHEAD = 2
_GROUP = re.compile(r"[+(]?\d+")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}")
_FEWEST_DIGITS = 7
_FEWEST_IN_ONE_PIECE = 10
"""Fewer digits without a leading 0 are an order number or a year."""


def _phones(text: str, regions: tuple[str, ...]) -> Iterator[DetectedValue]:
    start = checked = 0
    for run in _RUN.finditer(text):
        start = max(start, run.start() - _LONGEST_PREFIX)
        while match := _PHONE.search(text, start, run.end() + _LOOK_AHEAD):
            start, checked = match.end(), checked + 1
            if _DATE.match(match.group()):
                continue
            if checked > MAX_CHECKED:
                yield DetectedValue(*match.span(), DetectorKind.PHONE, match.group())
                continue
            start = match.start()
            groups = [(start + each.start(), start + each.end()) for each in _GROUP.finditer(match.group())]
            found = list(_phones_of(text, groups, regions))
            yield from found
            # A number may begin in the last group and end after the checked text.
            start = found[-1].end if found else max(groups[-1][0], match.start() + 1)


def _phones_of(text: str, groups: list[tuple[int, int]], regions: tuple[str, ...]) -> Iterator[DetectedValue]:
    """Find the numbers in a run of digit groups: the whole run, else its end, else its beginning."""
    count = len(groups)
    windows = [(first, count) for first in range(count)] + [(0, last) for last in range(count - 1, 0, -1)]
    for first, last in windows:
        start, end = groups[first][0], groups[last - 1][1]
        value = _number(text[start:end], regions)
        if value is not None:
            yield from _phones_of(text, groups[:first], regions)
            yield DetectedValue(start, end, DetectorKind.PHONE, value)
            yield from _phones_of(text, groups[last:], regions)
            return


@lru_cache(maxsize=256)
def _number(candidate: str, regions: tuple[str, ...]) -> str | None:
    """Return the number as E.164, or ``None`` if it is not valid in any of the regions."""
    if sum(map(str.isdecimal, candidate)) < _FEWEST_DIGITS:
        return None
    is_in_one_piece = candidate.isdecimal()
    if is_in_one_piece and len(candidate) < _FEWEST_IN_ONE_PIECE and candidate[0] != "0":
        return None
    for written, region in _readings(candidate, is_in_one_piece, regions):
        try:
            number = phonenumbers.parse(written, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_valid_number(number):
            return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    return None


def _readings(
    candidate: str, is_in_one_piece: bool, regions: tuple[str, ...]
) -> Iterator[tuple[str, str | None]]:
    """Yield the number with each region to parse it in, with the trunk prefix if the region uses one."""
    if candidate[0] == "+":
        yield candidate, None
        return
    for region in regions:
        if candidate.lstrip("(")[0] == "0" or phonenumbers.ndd_prefix_for_region(region, True) != "0":
            yield candidate, region
    if is_in_one_piece:
        yield f"+{candidate}", None


MAX_TRACES = 16_384
"""Maximum number of remembered traces with personal data; beyond it, the least recently used one restarts."""
_UNMISTAKABLE = frozenset({DetectorKind.EMAIL, DetectorKind.IBAN, DetectorKind.IP, DetectorKind.SECRET})


def redact(text: str, limit: int, names: Pseudonyms, phone_regions: tuple[str, ...]) -> str:
    """Return the first ``limit`` characters with each detected value as a pseudonym such as ``<EMAIL_1>``."""
    pieces: list[str] = []
    end = 0
    for finding in find(text[: limit + LONGEST_VALUE], phone_regions):
        if finding.start >= limit:
            break
        pieces += (text[end : finding.start], names.of(finding))
        end = finding.end
    if not pieces:
        return text[:limit]
    pieces.append(text[end:limit])
    return "".join(pieces)


def is_identifying(identifier: str, is_opaque: bool, phone_regions: tuple[str, ...]) -> bool:
    """Return whether an id contains personal data. Digits in an opaque one are not a phone number."""
    found = find(identifier, () if is_opaque else phone_regions)
    return any(not is_opaque or finding.kind in _UNMISTAKABLE for finding in found)


class Pseudonyms:
    """The pseudonyms of one trace: numbers in order of appearance, or digests under a key.

    Numbers reveal nothing about the value, but each process assigns its own. In a trace across several
    processes, only digests under a shared key are the same everywhere.
    """

    __slots__ = ("_key", "_trace_id")

    def __init__(self, trace_id: int, key: bytes | None) -> None:
        self._trace_id = trace_id
        self._key = key

    def of(self, finding: DetectedValue) -> str:
        """Return the pseudonym of a value."""
        # The digest includes the trace id: otherwise a person could be followed across traces.
        value = digest(f"{self._trace_id:x} {finding.kind} {finding.value}", self._key)
        if self._key is not None:
            return f"<{finding.kind}_{value[:8]}>"
        return f"<{finding.kind}_{_ordinal(self._trace_id, finding.kind, value)}>"


_numbers: OrderedDict[int, dict[tuple[DetectorKind, str], int]] = OrderedDict()
"""By trace: digests of the values, because redacted values are not kept."""
_lock = threading.Lock()  # the spans of a trace may end in several threads


def _ordinal(trace_id: int, kind: DetectorKind, value: str) -> int:
    with _lock:
        given = _numbers.setdefault(trace_id, {})
        _numbers.move_to_end(trace_id)
        if len(_numbers) > MAX_TRACES:
            _numbers.popitem(last=False)
        of_this_kind = sum(known is kind for known, _ in given) if (kind, value) not in given else 0
        return given.setdefault((kind, value), of_this_kind + 1)
