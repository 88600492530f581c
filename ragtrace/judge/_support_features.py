"""What words alone say about a claim and the chunks, as numbers: the input of the support model.

The features are those of the usual lexical overlap measures: coverage in windows, n-grams, missing numbers
and names, and the wording of lines that state nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from operator import or_

from ragtrace.judge._grammars import ENGLISH, Grammar
from ragtrace.judge._numbers import Readings
from ragtrace.judge._word_index import PREFIX_CHARS, WordIndex, neighbors
from ragtrace.judge._words import (
    POLARITY,
    StemmedWord,
    claimed_numbers,
    content_stems,
    has_negation,
    names,
    ordered_stems,
    stem,
)
from ragtrace.judge.phrases import SENTENCE_ENDS, announces_answer, is_meta, is_refusal, without_source
from ragtrace.languages import one_spelling

WINDOW_SENTENCES = 3
FEATURE_LENGTHS = (1, 2, 3, 5)


@dataclass(frozen=True, slots=True)
class ClaimedWords:
    """The parts of a claim that a chunk must contain."""

    text: str
    words: tuple[StemmedWord, ...]
    stems: frozenset[str]
    """Of the content words; outside English, with whether the claim negates."""
    numbers: frozenset[Readings]
    names: Mapping[str, str]
    """With the stem of each."""
    negated: bool
    grammar: Grammar

    @classmethod
    def of(cls, text: str, grammar: Grammar = ENGLISH) -> ClaimedWords:
        """Take a claim apart by the rules of the chunks' language."""
        spelled = one_spelling(text)
        bare = without_source(spelled)
        words = ordered_stems(bare, grammar)
        return cls(
            text=spelled,
            words=words,
            stems=content_stems(bare, words, grammar),
            numbers=claimed_numbers(bare, grammar),
            names={name: stem(name, grammar) for name in names(bare, grammar)},
            negated=has_negation(bare, grammar),
            grammar=grammar,
        )

    @property
    def order(self) -> list[str]:
        """The stems of all words."""
        return [word.stem for word in self.words]

    @property
    def content(self) -> frozenset[str]:
        """The stems of the content words alone."""
        return self.stems - POLARITY

    def missing_names(self, passages: WordIndex) -> list[str]:
        """Return the names that no chunk has; without capital letters, any content word may be one."""
        if not self.grammar.has_capitals:
            return sorted(self.content - passages.places.keys())
        return [name for name, held in self.names.items() if held not in passages.places]


@dataclass(frozen=True, slots=True)
class BestWindow:
    """The neighboring sentences that hold most content words of a claim."""

    chunk: int
    window: range
    covered: int
    """Number of the claim's content words in it."""


def best_windows(
    claimed: ClaimedWords,
    passages: WordIndex,
    lengths: Sequence[int] = FEATURE_LENGTHS,
    *,
    with_numbers: bool = False,
) -> Mapping[int, BestWindow]:
    """Return, by length, the window of so many sentences with most words of the claim; the first of several.

    At the end of a chunk, windows are shorter. ``with_numbers`` takes only windows that hold all numbers of
    the claim.
    """
    wanted = claimed.numbers if with_numbers else frozenset[Readings]()
    held = windows = passages.bits(claimed.stems)
    best: dict[int, BestWindow] = {}
    for length in range(1, max(lengths) + 1):
        if length > 1:
            windows = list(map(or_, windows, held[length - 1 :]))
        if length in lengths:
            best[length] = _best(list(map(int.bit_count, windows)), length, passages, wanted)
    return best


def _best(
    covers: Sequence[int], length: int, passages: WordIndex, numbers: frozenset[Readings]
) -> BestWindow:
    """Return the first window with most words, of those that hold these numbers.

    ``covers`` says for each start how many words the window covers.
    """
    most = max(covers, default=0)
    if not numbers:
        return _window(passages, covers.index(most), length, most) if most else _NO_WINDOW
    by_cover = sorted(range(len(covers)), key=covers.__getitem__, reverse=True)
    windows = (_window(passages, start, length, covers[start]) for start in by_cover if covers[start])
    return next((found for found in windows if passages.holds(found.window, numbers)), _NO_WINDOW)


def _window(passages: WordIndex, start: int, length: int, covered: int) -> BestWindow:
    while not passages.sentences[start][1].text:  # begins in a gap: the next chunk has it all
        start += 1
    return BestWindow(passages.sentences[start][0], range(start, start + length), covered)


_NO_WINDOW = BestWindow(0, range(0), 0)


def support_features(
    claimed: ClaimedWords,
    passages: WordIndex,
    windows: Mapping[int, BestWindow],
    sequences: Set[tuple[str | None, ...]],
) -> Mapping[str, float]:
    """Return the features of a claim against the chunks, by name.

    ``windows`` are its `best_windows`, ``sequences`` those of its words that the chunks have.
    """
    return {
        **_coverage(claimed, passages, windows),
        **_sequences(claimed, passages, sequences),
        **_numbers_and_names(claimed, passages),
        **_wording(claimed),
        "log_passages": math.log1p(passages.count),
    }


def _coverage(
    claimed: ClaimedWords, passages: WordIndex, windows: Mapping[int, BestWindow]
) -> dict[str, float]:
    stems = claimed.stems
    wanted = max(1, len(stems))
    missing = [held for held in stems if held not in passages.places]
    rarity = {
        held: math.log((passages.count + 1) / (len(passages.places.get(held, ())) + 0.5)) for held in stems
    }
    near = sum(held[:PREFIX_CHARS] in passages.prefixes for held in missing if len(held) >= PREFIX_CHARS)
    total = math.fsum(rarity.values()) or 1.0  # in whichever order the set is
    found = {f"cover_{length}": best.covered / wanted if stems else 1.0 for length, best in windows.items()}
    window = windows[3].window
    return found | {
        "cover_all": 1 - len(missing) / wanted,
        "rare_cover_all": 1 - math.fsum(rarity[held] for held in missing) / total,
        "missing_words": math.log1p(len(missing)),
        "near_words": near / wanted,
        "numbers_elsewhere": float(
            not passages.holds(window, claimed.numbers - passages.lacking(claimed.numbers))
        ),
        "negation_differs": float(_negation_differs(claimed, passages, windows[1].window)),
    }


def _negation_differs(claimed: ClaimedWords, passages: WordIndex, window: range) -> bool:
    return any(passages.negates(passages.sentences[at][1]) != claimed.negated for at in window)


def _sequences(
    claimed: ClaimedWords, passages: WordIndex, there: Set[tuple[str | None, ...]]
) -> dict[str, float]:
    order = claimed.order
    shares = {f"sequences_{length}": _share_held(order, there, length) for length in (2, 3)}
    run = longest = 0
    for word in claimed.words:
        if word.is_content:
            run = 0 if word.stem in passages.places else run + 1
            longest = max(longest, run)
    return shares | {"new_run": math.log1p(longest)}


def _share_held(order: Sequence[str], there: Set[tuple[str | None, ...]], length: int) -> float:
    found = list(map(there.__contains__, neighbors(order, length)))
    return sum(found) / len(found) if found else 1.0


def _numbers_and_names(claimed: ClaimedWords, passages: WordIndex) -> dict[str, float]:
    no_number = len(passages.lacking(claimed.numbers))
    no_name = len(claimed.missing_names(passages)) if claimed.names else 0
    return {
        "missing_numbers": math.log1p(no_number),
        "missing_numbers_share": no_number / max(1, len(claimed.numbers)),
        "missing_names": math.log1p(no_name),
        "missing_names_share": no_name / max(1, len(claimed.names)),
        "has_numbers": float(bool(claimed.numbers)),
        "has_names": float(bool(claimed.names)),
    }


def _wording(claimed: ClaimedWords) -> dict[str, float]:
    text = claimed.text
    return {
        "log_words": math.log1p(len(claimed.words)),
        "few_words": float(len(claimed.content) < 3),
        "about_answer": float(announces_answer(text) or is_meta(text)),
        "refusal": float(is_refusal(text)),
        "heading": float(len(claimed.words) <= 4 and text.strip(" *_")[-1:] not in SENTENCE_ENDS),
        "hedged": float(bool(claimed.grammar.hedges.search(text))),
        "negated": float(claimed.negated and claimed.grammar.is_english),  # else it is a content word
    }
