"""The chunks' sentences, indexed by the words, numbers and word pairs that they hold.

Built once for all claims about the same chunks, in linear time of their length.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from ragtrace.judge._grammars import ENGLISH, Grammar, grammar_of
from ragtrace.judge._words import content_stems, has_negation, numbers, ordered_stems
from ragtrace.judge_forms import NumberedText
from ragtrace.languages import Language, language_of, languages_of, one_spelling, script_of
from ragtrace.sentences import split_sentences

WordT = TypeVar("WordT")

PREFIX_CHARS = 4
_SENTENCES_A_TURN = 50


@dataclass(frozen=True, slots=True)
class PassageSentence:
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


@dataclass(frozen=True, slots=True)
class WordIndex:
    """The sentences of the chunks."""

    grammar: Grammar = ENGLISH
    """Of the language that most of the chunks are in."""
    languages: frozenset[Language | None] = frozenset()
    """Of all chunks; ``None`` is a chunk whose language is not known."""
    scripts: frozenset[str | None] = frozenset()
    """Of all chunks."""
    sentences: list[tuple[int, PassageSentence]] = field(default_factory=list)
    """Sentences with the number of their chunk."""
    ends: list[int] = field(default_factory=list)
    """By sentence, the position behind the last one of its chunk."""
    places: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Positions of the sentences with a stem."""
    numbers: set[str] = field(default_factory=set)
    sequences: set[tuple[str | None, ...]] = field(default_factory=set)
    """All sequences of two and of three words of a sentence; those with ``None`` are none."""
    prefixes: set[str] = field(default_factory=set)
    """The first letters of every stem."""

    @classmethod
    async def of(cls, chunks: Iterable[NumberedText]) -> WordIndex:
        """Prepare the chunks. Others can work in between."""
        held = [chunk for chunk in chunks if chunk.text.strip()]
        texts = [chunk.text for chunk in held]
        languages = languages_of(texts)
        grammar = grammar_of(languages[0] if languages else None)
        passages = cls(grammar, frozenset(languages), frozenset(map(script_of, texts)))
        for chunk in held:
            for sentence in split_sentences(chunk.text):
                if len(passages.sentences) % _SENTENCES_A_TURN == 0:
                    await asyncio.sleep(0)
                passages._add(chunk.number, _prepared(sentence.text, passages.grammar))
            end = len(passages.sentences)
            passages.ends.extend([end] * (end - len(passages.ends)))
        passages._add_sequences()
        passages.prefixes.update(held[:PREFIX_CHARS] for held in passages.places)
        return passages

    def _add(self, number: int, sentence: PassageSentence) -> None:
        at, places = len(self.sentences), self.places
        for held in sentence.stems:
            places[held].append(at)
        self.numbers.update(sentence.numbers)
        self.sentences.append((number, sentence))

    def _add_sequences(self) -> None:
        """Index all sentences at once, apart from one another by what is no word."""
        order: list[str | None] = []
        for _, sentence in self.sentences:
            order += sentence.order
            order.append(None)
        for length in (2, 3):
            self.sequences.update(sequences(order, length))

    def foreign(self, text: str) -> str | None:
        """Return the language or script of a claim that no chunk is in; ``None`` if words can be compared."""
        script, language = script_of(text), language_of(text)
        if script and self.scripts and script not in self.scripts:
            return language or script.title()
        known = self.languages and None not in self.languages
        return language if language and known and language not in self.languages else None

    def window(self, start: int, length: int) -> tuple[int, range]:
        """Return a chunk's number and the range of up to ``length`` sentences of it from ``start``."""
        return self.sentences[start][0], range(start, min(start + length, self.ends[start]))

    def negates(self, sentence: PassageSentence) -> bool:
        """Return whether a sentence negates something."""
        return has_negation(one_spelling(sentence.text), self.grammar)

    def holds(self, window: range, wanted: frozenset[str]) -> bool:
        """Return whether a window contains all these numbers."""
        return not wanted.difference(*(self.sentences[at][1].numbers for at in window))


def sequences(words: Sequence[WordT], length: int) -> Iterator[tuple[WordT, ...]]:
    """Yield every sequence of ``length`` neighboring words."""
    return zip(*[words[start:] for start in range(length)], strict=False)
