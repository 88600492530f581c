"""The chunks' sentences, indexed by the words, numbers and word pairs that they hold.

Built once for all claims about the same chunks, in linear time of their length.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

from ragtrace.judge._grammars import Grammar, grammar_of
from ragtrace.judge._numbers import UNSURE, Readings
from ragtrace.judge._words import content_stems, has_negation, numbers, ordered_stems
from ragtrace.judge_forms import NumberedText
from ragtrace.languages import Language, language_of, languages_of, one_spelling, script_of
from ragtrace.sentences import split_sentences

ItemT = TypeVar("ItemT")

PREFIX_CHARS = 4
LONGEST_WINDOW = 5
"""Sentences; a window is within a chunk."""
_SENTENCES_A_TURN = 50


class PassageSentence(NamedTuple):
    """A sentence of a chunk."""

    text: str
    stems: frozenset[str]
    """Of its content words."""
    numbers: frozenset[str]
    order: tuple[str, ...]
    """The stems of all its words, in order."""


@lru_cache(maxsize=8192)
def _prepared(text: str, grammar: Grammar) -> PassageSentence:
    spelled = one_spelling(text)
    words = ordered_stems(spelled, grammar)
    return PassageSentence(
        text=text,
        stems=content_stems(spelled, words, grammar),
        numbers=numbers(spelled, grammar),
        order=tuple([held for held, _ in words]),
    )


_GAP = [(0, PassageSentence("", frozenset(), frozenset(), ()))] * (LONGEST_WINDOW - 1)
"""Follows each chunk, so that no window reaches the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordIndex:
    """The sentences of the chunks."""

    grammar: Grammar
    """Of the language that most of the chunks are in."""
    languages: frozenset[Language | None]
    """Of all chunks; ``None`` is a chunk whose language is not known."""
    scripts: frozenset[str | None]
    """Of all chunks."""
    sentences: Sequence[tuple[int, PassageSentence]]
    """Sentences with the number of their chunk; some empty ones follow each chunk."""
    count: int
    """Of the sentences that are not empty."""
    places: Mapping[str, Sequence[int]]
    """Positions of the sentences with a stem."""
    numbers: frozenset[str]
    order: Sequence[str | None]
    """The stems of all words, in order, with ``None`` behind each sentence."""
    prefixes: frozenset[str]
    """The first letters of every stem."""

    @classmethod
    async def of(cls, chunks: Iterable[NumberedText]) -> WordIndex:
        """Prepare the chunks. Others can work in between."""
        held = [chunk for chunk in chunks if chunk.text.strip()]
        texts = [chunk.text for chunk in held]
        languages = languages_of(texts)
        grammar = grammar_of(languages[0] if languages else None)
        sentences: list[tuple[int, PassageSentence]] = []
        for chunk in held:
            for sentence in split_sentences(chunk.text):
                if len(sentences) % _SENTENCES_A_TURN == 0:
                    await asyncio.sleep(0)
                sentences.append((chunk.number, _prepared(sentence.text, grammar)))
            sentences += _GAP
        places = _places(sentences)
        return cls(
            grammar=grammar,
            languages=frozenset(languages),
            scripts=frozenset(map(script_of, texts)),
            sentences=sentences,
            count=len(sentences) - len(_GAP) * len(held),
            places=places,
            numbers=frozenset().union(*[sentence.numbers for _, sentence in sentences]),
            order=[stem for _, sentence in sentences for stem in (*sentence.order, None)],
            prefixes=frozenset([stem[:PREFIX_CHARS] for stem in places]),
        )

    def sequences(self, words: Iterable[str]) -> Set[tuple[str | None, ...]]:
        """Return all sequences of two and of three of these words that a sentence has."""
        wanted, order = set(words), self.order
        places = [at for at, word in enumerate(order) if word in wanted]
        two = {(order[a], order[b]) for a, b in neighbors(places, 2) if b == a + 1}
        three = {(order[a], order[b], order[c]) for a, b, c in neighbors(places, 3) if c == a + 2}
        return two | three

    def bits(self, stems: Iterable[str]) -> list[int]:
        """Return for each sentence which of these stems it has, a bit for each."""
        found, places = [0] * len(self.sentences), self.places
        for order, wanted in enumerate(stems):
            for at in places.get(wanted, ()):
                found[at] |= 1 << order
        return found

    def foreign(self, text: str) -> str | None:
        """Return the language or script of a claim that no chunk is in; ``None`` if words can be compared."""
        script, language = script_of(text), language_of(text)
        if script and self.scripts and script not in self.scripts:
            return language or script.title()
        known = self.languages and None not in self.languages
        return language if language and known and language not in self.languages else None

    def negates(self, sentence: PassageSentence) -> bool:
        """Return whether a sentence negates something."""
        return has_negation(one_spelling(sentence.text), self.grammar)

    def lacking(self, claimed: Iterable[Readings]) -> set[Readings]:
        """Return the numbers of a claim that no chunk has in any reading."""
        found = (readings for readings in claimed if UNSURE not in readings)
        return {readings for readings in found if self.numbers.isdisjoint(readings)}

    def holds(self, window: range, wanted: Iterable[Readings]) -> bool:
        """Return whether a window contains all these numbers."""
        held = [self.sentences[at][1].numbers for at in window]
        return all(any(not numbers.isdisjoint(readings) for numbers in held) for readings in wanted)


def neighbors(items: Sequence[ItemT], length: int) -> Iterator[tuple[ItemT, ...]]:
    """Yield every sequence of ``length`` neighbors."""
    return zip(*[items[start:] for start in range(length)], strict=False)


def _places(sentences: Sequence[tuple[int, PassageSentence]]) -> Mapping[str, Sequence[int]]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, (_, sentence) in enumerate(sentences):
        for held in sentence.stems:
            places[held].append(at)
    return places
