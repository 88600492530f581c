"""Canary claims: claims with known verdicts that detect prompt injection.

A request contains two canary claims, at positions that differ from record to record: an invented claim that
the chunks cannot mention, and a sentence copied from a chunk. If the judge supports the first or does not
support the second, it followed an injected instruction or did not read the chunks. Then none of its verdicts
counts.

Canary claims cannot detect an injection that targets a single claim.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from ragtrace.errors import JudgeCompromised
from ragtrace.judge_forms import NumberedText
from ragtrace.metrics._invented_claims import invented_claim
from ragtrace.model import Usage
from ragtrace.sentences import split_sentences

_SEARCHED_CHARS = 3000
"""Characters at the beginning of a chunk in which a sentence to copy is searched."""
_LEAST_LETTERS, _MOST_LETTERS = 24, 200
_END = re.compile(r"[.!。！।؟][\"'”’)\]»」』]*\Z")  # noqa: RUF001
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
            kind = "a sentence of the chunks" if canary.supported else "an invented claim"
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
        found += _plantable(chunk.text[:_SEARCHED_CHARS])
        if any(oddness == 0 for oddness, _ in found):
            break
    least = min((oddness for oddness, _ in found), default=0)
    alike = [sentence for oddness, sentence in found if oddness == least]
    return " ".join(chance.choice(alike).split()) if alike else None


def _oddness(sentence: str) -> int:
    # a line break may separate list items; numbers are what another chunk contradicts most likely
    return 2 * ("\n" in sentence) + bool(_DIGIT.search(sentence))


@lru_cache(maxsize=256)  # retrievers often return the same chunks
def _plantable(text: str) -> tuple[tuple[int, str], ...]:
    sentences = (sentence.text for sentence in split_sentences(text))
    return tuple((_oddness(sentence), sentence) for sentence in sentences if _may_be_canary(sentence))


def _may_be_canary(sentence: str) -> bool:
    # scripts without spaces need fewer letters
    least = _LEAST_LETTERS if sentence.isascii() else _LEAST_LETTERS // 3
    fits = least <= sum(map(str.isalpha, sentence)) <= _MOST_LETTERS
    return fits and bool(_END.search(sentence)) and not _ABOUT_JUDGING.search(sentence)
