"""Canary claims: claims with known verdicts that detect prompt injection.

A request contains two canary claims, at positions that differ from record to record: a sentence of a chunk
with another number or name, which the chunks cannot support, and a sentence copied from a chunk. If the
judge supports the first or does not support the second, it followed an injected instruction or did not read
the chunks. Then none of its verdicts counts. Canary claims cannot detect an injection that targets a single
claim.

Both are the record's own words, so that nobody tells them from claims by their style. If the chunks have no
number and no name to change, there is only the copied sentence; without a plain sentence, there is none.
"""

# ruff: noqa: RUF001  this module handles other scripts

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from ragtrace.errors import JudgeCompromised
from ragtrace.judge_forms import NumberedText
from ragtrace.model import Usage
from ragtrace.sentences import split_sentences

_SEARCHED_CHARS = 3000
"""Characters at the beginning of a chunk in which a sentence to copy is searched."""
_LEAST_LETTERS, _LEAST_CHANGED_LETTERS, _MOST_LETTERS = 24, 12, 200
_END = re.compile(r"[.!。！।؟][\"'”’)\]»」』]*\Z")
_DIGIT = re.compile(r"\d")
_ABOUT_JUDGING = re.compile(
    r"support|contradict|mention|verdict|claim|json|instruct|ignore|system|assistant|prompt|label|[<>{}`\[\]#]",
    re.IGNORECASE,
)
"""Words of an instruction to the judge: a sentence with one is not copied, since that would repeat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryClaim:
    """A canary claim."""

    number: int
    text: str
    supported: bool
    """The verdict that the judge must give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryClaims:
    """Adds canary claims to the requests about one record; the same record always gets the same ones."""

    seed: str
    """A code that no author of a text can predict."""
    first_number: int
    """The first number of canary claims; the record's own claims keep their numbers."""
    rate: float = 1.0
    """Share of the records that get canary claims."""

    def among(self, chunks: Sequence[NumberedText]) -> tuple[CanaryClaim, ...]:
        """Choose the canary claims of requests with these chunks, in the order of their numbers."""
        if not chunks or not self._chosen:
            return ()
        chance = self._chance(f"texts {chunks[0].number}")
        texts = [(_changed_sentence(chunks, chance), False), (_sentence_of(chunks, chance), True)]
        chance.shuffle(texts)
        found = [(text, supported) for text, supported in texts if text]
        return tuple(
            CanaryClaim(number=number, text=text, supported=supported)
            for number, (text, supported) in enumerate(found, start=self.first_number)
        )

    def weave(
        self, claims: Sequence[NumberedText], canaries: Iterable[CanaryClaim]
    ) -> tuple[NumberedText, ...]:
        """Insert the canary claims at random positions; the other claims keep their order."""
        woven = list(claims)
        chance = self._chance(f"places {[claim.number for claim in claims]}")
        for canary in canaries:
            canary_claims = NumberedText(number=canary.number, text=canary.text)
            woven.insert(chance.randrange(len(woven) + 1), canary_claims)
        return tuple(woven)

    @property
    def _chosen(self) -> bool:
        return self._chance("rate").random() < self.rate

    def _chance(self, purpose: str) -> Random:
        # a string seed would depend on an algorithm that may change
        digest = hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()
        return Random(int.from_bytes(digest[:8]))


def check_canaries(canaries: Iterable[CanaryClaim], said: Iterable[tuple[int, bool]]) -> int:
    """Count the canary claims; the judge got all of them right.

    ``said`` holds numbers and whether the judge called the claim supported.

    Raises:
        JudgeCompromised: it got one wrong, or gave no verdict on it.
    """
    heard, planted = dict(said), tuple(canaries)
    for canary in planted:
        if (supported := heard.get(canary.number)) != canary.supported:
            kind = f"a sentence of the chunks{'' if canary.supported else ' with another number or name'}"
            what = "gave no verdict on" if supported is None else "called"
            called = "" if supported is None else f" {'' if supported else 'not '}supported"
            raise JudgeCompromised(
                f"the judge {what} {kind}{called}: what it says of this record is not to be believed",
                usage=Usage(),  # the reply's usage is already counted
            )
    return len(planted)


def _sentence_of(chunks: Sequence[NumberedText], chance: Random) -> str | None:
    """Choose one of the plainest complete sentences."""
    order = list(chunks)
    chance.shuffle(order)
    found: list[tuple[int, str]] = []
    for chunk in order:
        found += _plantable(chunk.text[:_SEARCHED_CHARS], _LEAST_LETTERS)
        if any(oddness == 0 for oddness, _ in found):
            break
    least = min((oddness for oddness, _ in found), default=0)
    alike = [sentence for oddness, sentence in found if oddness == least]
    return " ".join(chance.choice(alike).split()) if alike else None


def _oddness(sentence: str) -> int:
    # a line break may separate list items; numbers are what another chunk contradicts most likely
    return 2 * ("\n" in sentence) + bool(_DIGIT.search(sentence))


@lru_cache(maxsize=256)  # retrievers often return the same chunks
def _plantable(text: str, least: int) -> tuple[tuple[int, str], ...]:
    sentences = (sentence.text for sentence in split_sentences(text))
    return tuple((_oddness(sentence), sentence) for sentence in sentences if _may_be_canary(sentence, least))


def _may_be_canary(sentence: str, least: int) -> bool:
    # scripts without spaces need fewer letters
    least = least if sentence.isascii() else least // 3
    fits = least <= sum(map(str.isalpha, sentence)) <= _MOST_LETTERS
    return fits and bool(_END.search(sentence)) and not _ABOUT_JUDGING.search(sentence)


_NUMBER = re.compile(r"(?<![\w.,:/+$€£-])[0-9]{1,6}(?![\w:/+-]|[.,][0-9])")
"""A whole number that is no part of a date, range, decimal or identifier."""
_BOUNDS = re.compile(
    r"\b(?:least|most|to|than|over|under|above|below|within|since|until|till|before|after|by|from|between|or"
    r"|about|around|approximately|nearly|almost|roughly|maximum|minimum"
    r"|mindestens|höchstens|bis|über|unter|seit|vor|nach|ab|von|zwischen|oder|etwa|rund|ca|fast|maximal|binnen"
    r"|moins|plus|jusqu|dès|depuis|avant|après|entre|environ|près|sous|ou"
    r"|menos|más|hasta|desde|antes|después|un[oa]s|casi|alrededor|máximo|mínimo|o"
    r"|meno|più|fino|oltre|da|entro|prima|dopo|tra|fra|circa|quasi|almeno|massimo|minimo"
    r"|mais|até|após|depois|cerca|quase|pelo|em"
    r"|менее|более|до|с|от|после|около|между|почти|или"
    r"|أكثر|أقل|حتى|منذ|قبل|بعد|حوالي|نحو|أو|से|तक|लगभग|कम|अधिक|या)\b"
    r"|超过|以上|以下|以内|至少|最多|约|約|未満|まで|より|이상|이하|이내|최대|최소|약|넘",
    re.IGNORECASE,
)
"""Words near a number that another number may satisfy, too: "at least 3" follows from "at least 5"."""
_NAME = re.compile(r"(?<=[a-zß-ÿ,] )[A-ZÀ-Þ][a-zß-ÿ]{3,}(?!\w)")
_OTHER_NAMES = ("Hartley", "Lindqvist", "Marlow", "Alderton", "Winslow", "Castell", "Ferrand", "Osterby")


def _changed_sentence(chunks: Sequence[NumberedText], chance: Random) -> str | None:
    """Copy a sentence with another number, or else another name; ``None`` if none has one to change."""
    known = "\n".join(chunk.text for chunk in chunks)
    found = [
        each
        for chunk in chunks
        for _, each in _plantable(chunk.text[:_SEARCHED_CHARS], _LEAST_CHANGED_LETTERS)
    ]
    sentences = [" ".join(sentence.split()) for sentence in found]
    chance.shuffle(sentences)
    for change in (_with_other_number, _with_other_name):
        for sentence in sentences:
            if changed := change(sentence, known, chance):
                return changed
    return None


def _with_other_number(sentence: str, known: str, chance: Random) -> str | None:
    """Exchange the last two digits, so that a year stays a year; no chunk has the new number."""
    for number in _NUMBER.finditer(sentence):
        before, after = sentence[: number.start()], sentence[number.end() :]
        if _BOUNDS.search(" ".join([*before[-40:].split()[-3:], *after[:40].split()[:2]])):
            continue
        kept, digits = number[0][:-2], number[0][-2:]
        others = range(2, 10) if len(digits) == 1 else range(10, 100)
        # the first digit differs, so that no rounding makes them equal
        new = [f"{kept}{other}" for other in others if str(other)[0] != digits[0]]
        if new := [one for one in new if one not in known]:
            return before + chance.choice(new) + after
    return None


def _with_other_name(sentence: str, known: str, chance: Random) -> str | None:
    names = list(_NAME.finditer(sentence))
    others = [name for name in _OTHER_NAMES if name not in known]
    if not names or not others:
        return None
    name = chance.choice(names)
    return sentence[: name.start()] + chance.choice(others) + sentence[name.end() :]
