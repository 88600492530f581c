"""Measures the judge without a key in other languages: ``python -m tests.measure_languages``.

For each pair of `tests.language_pairs` it judges the true claim and its false twin, and counts how often the
false one is the more suspicious. The table is that of docs/judge-cards.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ragtrace.judge.lexical import LexicalJudge
from ragtrace.model import RagRecord, VerdictLabel
from ragtrace.pipeline import evaluate
from tests.language_pairs import KINDS, Pair, pairs

_HEAD = (
    "| language | number changed | name changed | negation added | negation dropped"
    " | true, called *supported* | true, called *unsupported* | false, called *supported* |"
)


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """What the judge said of both claims."""

    pair: Pair
    of_true: tuple[float, VerdictLabel]
    """Suspicion and verdict."""
    of_false: tuple[float, VerdictLabel]

    @property
    def is_told_apart(self) -> bool:
        return self.of_false[0] > self.of_true[0]


async def measure() -> list[MeasuredPair]:
    return [
        MeasuredPair(pair, await _judged(pair.true, pair.context), await _judged(pair.false, pair.context))
        for pair in pairs()
    ]


async def _judged(claim: str, context: str) -> tuple[float, VerdictLabel]:
    evaluation = await evaluate(RagRecord.of(answer=claim, contexts=[context]), judge=LexicalJudge())
    [verdict] = evaluation.results[0].verdicts
    if evaluation.suspicion is None:
        raise ValueError(f"no suspicion for {claim!r}")
    return evaluation.suspicion, verdict.label


def table(measured: Sequence[MeasuredPair]) -> Iterator[str]:
    yield _HEAD
    yield "| --- " * (_HEAD.count("|") - 1) + "|"
    for language, found in groupby(measured, key=lambda each: each.pair.language):
        of_language = list(found)
        shares = [
            _share(each.is_told_apart for each in of_language if each.pair.kind == kind) for kind in KINDS
        ]
        true = {each.pair.true: each.of_true[1] for each in of_language}.values()
        said = [
            _share(label is VerdictLabel.SUPPORTED for label in true),
            _share(label is VerdictLabel.UNSUPPORTED for label in true),
            _share(each.of_false[1] is VerdictLabel.SUPPORTED for each in of_language),
        ]
        yield f"| {language} | {' | '.join((*shares, *said))} |"


def _share(found: Iterable[bool]) -> str:
    values = list(found)
    return f"{sum(values)} of {len(values)}"


if __name__ == "__main__":
    print("\n".join(table(asyncio.run(measure()))))
