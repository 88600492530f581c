"""Compares two evaluators on the same answers: score differences and disagreements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragtrace.model import Label, MetricOutcome, MetricResult, Usage, VerdictLabel
from ragtrace.stats import Difference, Pair, agreement_beyond_chance, paired_difference, sign_test
from ragtrace.transcripts.file import TranscriptRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """The comparison of one metric on the answers that both evaluators scored."""

    metric: str
    profiles: tuple[str, str]
    difference: Difference | None
    """Second score minus first; ``None`` if no answer has both."""
    kappa: float | None
    """Cohen's kappa (1960) of pass and fail."""
    passes_first_only: int
    passes_second_only: int
    p_value: float
    """p-value of the difference in labels (exact McNemar test, unweighted)."""
    scored_first_only: int
    scored_second_only: int
    scored_by_neither: int


class ClaimPair(NamedTuple):
    """A claim on which the evaluators disagree."""

    text: str
    first: VerdictLabel
    second: VerdictLabel


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """An answer with different labels or scores."""

    record_id: str
    metric: str
    first: float | None
    second: float | None
    labels: tuple[Label, Label]
    claims: tuple[ClaimPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorComparison:
    """The comparison of two evaluators. The first judged ``both``, ``only_first`` and ``other_material``."""

    both: int
    only_first: int
    only_second: int
    other_material: int
    """Answers that both judged, but with different material; they are not compared."""
    metrics: tuple[MetricComparison, ...]
    disagreements: tuple[Disagreement, ...]
    """Largest difference first."""
    usage: tuple[Usage, Usage]
    """The usage of each evaluator over all its answers."""


def compare(first: Iterable[TranscriptRecord], second: Iterable[TranscriptRecord]) -> EvaluatorComparison:
    """Compare two evaluators on the same answers, matched by id.

    Averages estimate the population: each answer is weighted by the inverse of its sampling probability.
    """
    comparing = Comparer()
    known = {record.record.id: _Side(record) for record in first}
    for record in second:
        comparing.add_sides(known.pop(record.record.id, None), _Side(record))
    for side in known.values():
        comparing.add_sides(side, None)
    return comparing.comparison()


class Comparer:
    """Compares answer by answer; of their texts, it keeps only those of claims."""

    def __init__(self) -> None:
        self._both = self._only_first = self._only_second = self._other_material = 0
        self._first = self._second = Usage()
        self._tallies: dict[tuple[str, str, str], _Tally] = {}
        self._disagreements: list[Disagreement] = []

    def add_pair(self, first: TranscriptRecord, second: TranscriptRecord) -> None:
        """Count an answer that both evaluators judged."""
        self.add_sides(_Side(first), _Side(second))

    def add_sides(self, first: _Side | None, second: _Side | None) -> None:
        """Count an answer that both judged, or one of them."""
        self._first += first.usage if first else Usage()
        self._second += second.usage if second else Usage()
        if first is None or second is None:
            self._only_first += second is None
            self._only_second += first is None
        elif first.material != second.material:
            self._other_material += 1
        else:
            self._both += 1
            for pair in _pairs(first.outcomes, second.outcomes):
                self._count(first, *pair)

    def comparison(self) -> EvaluatorComparison:
        """Return the comparison of the answers so far."""
        return EvaluatorComparison(
            both=self._both,
            only_first=self._only_first,
            only_second=self._only_second,
            other_material=self._other_material,
            metrics=tuple(tally.comparison() for tally in self._tallies.values()),
            disagreements=tuple(sorted(self._disagreements, key=_how_far, reverse=True)),
            usage=(self._first, self._second),
        )

    def _count(self, side: _Side, first: MetricOutcome, second: MetricOutcome) -> None:
        key = (first.metric, first.profile, second.profile)
        if key not in self._tallies:
            self._tallies[key] = _Tally(metric=first.metric, profiles=(first.profile, second.profile))
        scores, labels = (_score(first), _score(second)), (first.label, second.label)
        self._tallies[key].add(side, scores, labels)
        claims = tuple(_differing(first, second))
        if claims or scores[0] != scores[1] or labels[0] != labels[1]:
            self._disagreements.append(
                Disagreement(
                    record_id=side.record_id,
                    metric=first.metric,
                    first=scores[0],
                    second=scores[1],
                    labels=labels,
                    claims=claims,
                )
            )


class _Side:
    """The needed parts of an evaluation, without its texts."""

    def __init__(self, kept: TranscriptRecord) -> None:
        self.record_id, self.material = kept.record.id, kept.material_sha256
        self.probability, self.cluster = kept.probability, kept.cluster
        self.outcomes, self.usage = kept.evaluation.outcomes, kept.evaluation.usage


@dataclass(slots=True, kw_only=True)
class _Tally:
    metric: str
    profiles: tuple[str, str]
    pairs: list[Pair] = field(default_factory=list)
    labels: list[tuple[bool, bool]] = field(default_factory=list)
    scored: Counter[tuple[bool, bool]] = field(default_factory=Counter)

    def add(self, one: _Side, scores: tuple[float | None, float | None], labels: tuple[Label, Label]) -> None:
        first, second = scores
        self.scored[first is not None, second is not None] += 1
        if first is not None and second is not None:
            self.pairs.append(Pair(first, second, one.probability, one.cluster))
            self.labels.append((labels[0] is Label.PASS, labels[1] is Label.PASS))

    def comparison(self) -> MetricComparison:
        turned = Counter(self.labels)
        return MetricComparison(
            metric=self.metric,
            profiles=self.profiles,
            difference=paired_difference(self.pairs),
            kappa=agreement_beyond_chance(turned),
            passes_first_only=turned[True, False],
            passes_second_only=turned[False, True],
            p_value=sign_test(turned[True, False], turned[False, True]),
            scored_first_only=self.scored[True, False],
            scored_second_only=self.scored[False, True],
            scored_by_neither=self.scored[False, False],
        )


def _score(outcome: MetricOutcome) -> float | None:
    return outcome.score if isinstance(outcome, MetricResult) else None


def _differing(first: MetricOutcome, second: MetricOutcome) -> Iterator[ClaimPair]:
    """Yield claims that both judged differently, matched by text."""
    if not (isinstance(first, MetricResult) and isinstance(second, MetricResult)):
        return
    by_words = {_folded(verdict.claim.text): verdict for verdict in second.verdicts}
    for verdict in first.verdicts:
        other = by_words.get(_folded(verdict.claim.text))
        if other is not None and other.label is not verdict.label:
            yield ClaimPair(verdict.claim.text, verdict.label, other.label)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _how_far(each: Disagreement) -> tuple[bool, float, int]:
    turned = {*each.labels} == {Label.PASS, Label.FAIL}
    apart = abs(each.first - each.second) if each.first is not None and each.second is not None else 0.0
    return turned, apart, len(each.claims)


def _pairs(
    first: Sequence[MetricOutcome], second: Sequence[MetricOutcome]
) -> list[tuple[MetricOutcome, MetricOutcome]]:
    """Pair outcomes of the same metric and profile; of any profile if a metric ran once on each side."""
    named = {(outcome.metric, outcome.profile): outcome for outcome in second}
    once = Counter(outcome.metric for outcome in first), Counter(outcome.metric for outcome in second)
    alone = {
        outcome.metric: outcome
        for outcome in second
        if once[0][outcome.metric] == once[1][outcome.metric] == 1
    }
    found = [
        (outcome, named.get((outcome.metric, outcome.profile)) or alone.get(outcome.metric))
        for outcome in first
    ]
    return [(one, other) for one, other in found if other is not None]
