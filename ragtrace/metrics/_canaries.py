"""Planted claims with known verdicts, among the claims that a judge that can be talked round is asked about.

Two stand in a request, at places that differ from record to record: an invented claim that the chunks cannot
mention, and a sentence copied from a chunk. A judge that supports the first or does not support the second
did not do as it was told: it obeyed somebody else, or did not look. Then none of its verdicts counts.

What they cannot see: an order about one claim alone, obeyed to the letter.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from ragtrace.errors import JudgeCompromised
from ragtrace.metrics._invented_claims import invented_claim
from ragtrace.metrics.forms import NumberedText
from ragtrace.metrics.sentences import split_sentences
from ragtrace.model import Usage

_SEARCHED_CHARS = 3000
"""Of a chunk: a sentence to copy is looked for in its beginning."""
_LEAST_LETTERS, _MOST_LETTERS = 24, 200
_END = re.compile(r"[.!。！।؟][\"'”’)\]»」』]*\Z")  # noqa: RUF001
_DIGIT = re.compile(r"\d")
_ABOUT_JUDGING = re.compile(
    r"support|contradict|mention|verdict|claim|json|instruct|ignore|system|assistant|prompt|label|[<>{}`\[\]#]",
    re.IGNORECASE,
)
"""What an order to the judge would speak of: such a sentence is not planted, it would be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryClaim:
    """A planted claim."""

    number: int
    text: str
    supported: bool
    """What the judge must say of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryClaims:
    """Plants claims in the requests about one record; the same record gets the same ones."""

    seed: str
    """A code that no author of a text can foresee."""
    first_number: int
    """Planted claims are numbered from here: the record's own claims keep their numbers."""
    rate: float = 1.0
    """Share of the records that get any."""

    def among(self, chunks: Sequence[NumberedText]) -> tuple[CanaryClaim, ...]:
        """Choose the claims to plant in requests that show these chunks, in the order of their numbers."""
        if not chunks or not self._chosen:
            return ()
        chance = self._chance(f"texts {chunks[0].number}")
        invented = invented_claim("\n".join(chunk.text for chunk in chunks), chance)
        texts = [(invented, False), (_sentence_of(chunks, chance), True)]
        chance.shuffle(texts)
        found = [(text, supported) for text, supported in texts if text]
        return tuple(
            CanaryClaim(number=number, text=text, supported=supported)
            for number, (text, supported) in enumerate(found, start=self.first_number)
        )

    def weave(
        self, claims: Sequence[NumberedText], canaries: Iterable[CanaryClaim]
    ) -> tuple[NumberedText, ...]:
        """Put the planted claims at chance places among the others, whose order stays."""
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
        # a string would seed it as well, but by an algorithm that may change
        digest = hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()
        return Random(int.from_bytes(digest[:8]))


def check_canaries(canaries: Iterable[CanaryClaim], said: Iterable[tuple[int, bool]]) -> int:
    """Count the planted claims that the judge got right; it may have said nothing about some.

    ``said`` holds numbers, and whether the judge called the claim supported.

    Raises:
        JudgeCompromised: it got one wrong.
    """
    canary_claims = {canary.number: canary for canary in canaries}
    heard = [(canary_claims[number], supported) for number, supported in said if number in canary_claims]
    for canary, supported in heard:
        if supported != canary.supported:
            kind = "a sentence of the chunks" if canary.supported else "an invented claim"
            raise JudgeCompromised(
                f"the judge called {kind} {'' if supported else 'not '}supported:"
                " what it says of this record is not to be believed",
                usage=Usage(),  # the reply was paid for as a reply
            )
    return len({canary.number for canary, _ in heard})


def _sentence_of(chunks: Sequence[NumberedText], chance: Random) -> str | None:
    """Choose a whole sentence, of the plainest there are."""
    order = list(chunks)
    chance.shuffle(order)
    found: list[tuple[int, str]] = []
    for chunk in order:
        found += _plantable(chunk.text[:_SEARCHED_CHARS])
        if any(oddness == 0 for oddness, _ in found):
            break
    least = min((oddness for oddness, _ in found), default=0)
    alike = [sentence for oddness, sentence in found if oddness == least]
    return " ".join(chance.choice(alike).split()) if alike else None


def _oddness(sentence: str) -> int:
    # a line break may part two items of a list; numbers are what another chunk contradicts soonest
    return 2 * ("\n" in sentence) + bool(_DIGIT.search(sentence))


@lru_cache(maxsize=256)  # retrievers find the same chunks again and again
def _plantable(text: str) -> tuple[tuple[int, str], ...]:
    sentences = (sentence.text for sentence in split_sentences(text))
    return tuple((_oddness(sentence), sentence) for sentence in sentences if _may_be_canary(sentence))


def _may_be_canary(sentence: str) -> bool:
    # scripts without spaces say as much in fewer letters
    least = _LEAST_LETTERS if sentence.isascii() else _LEAST_LETTERS // 3
    fits = least <= sum(map(str.isalpha, sentence)) <= _MOST_LETTERS
    return fits and bool(_END.search(sentence)) and not _ABOUT_JUDGING.search(sentence)
