"""Judging a long context takes linear time: four times the text takes about four times the processor."""

from __future__ import annotations

import asyncio
import time
from itertools import cycle

import pytest

from ragtrace import sentences
from ragtrace.judge import _words
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.model import RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.sentences import split_sentences
from tests.language_pairs import pairs

SHORT, LONG = 25_000, 100_000
_AT_MOST = 8.0
"""Linear is 4, quadratic 16; caches and other processes make it uneven."""


def context_of(language: str, chars: int) -> str:
    texts = [pair.context for pair in pairs() if pair.language == language]
    text = ""
    for number, paragraph in enumerate(cycle(texts)):
        text += f"{paragraph.replace('30', str(1000 + number))} "
        if len(text) > chars:
            return text[:chars]
    raise AssertionError


def cpu_s(text: str, answer: str) -> float:
    """Return the least processor time of two runs."""
    record = RagRecord.of(answer=answer, contexts=[text])
    taken: list[float] = []
    for _ in range(2):
        _words._prepared.cache_clear()
        sentences._split.cache_clear()
        start = time.process_time()
        asyncio.run(evaluate(record, judge=LexicalJudge()))
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.slow
@pytest.mark.parametrize("language", dict.fromkeys(pair.language for pair in pairs()))
def test_four_times_the_context_takes_no_more_than_about_four_times_the_processor(language: str) -> None:
    answer = " ".join(dict.fromkeys(pair.true for pair in pairs() if pair.language == language))
    short, long = (cpu_s(context_of(language, chars), answer) for chars in (SHORT, LONG))
    assert long / short < _AT_MOST


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["x", "x ", "顾客可以", "1 234 ", "5 (", "e\u0301", "z. B. ", "(see ", "。」"]
)
def test_a_text_of_anything_is_split_in_linear_time(unit: str) -> None:
    short, long = (min(_split_s((unit * chars)[:chars]) for _ in range(5)) for chars in (LONG, 4 * LONG))
    assert long / short < _AT_MOST


def _split_s(text: str) -> float:
    start = time.process_time()
    split_sentences(text)
    return time.process_time() - start
