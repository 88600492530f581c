"""How far people and the judge agree on claims, and people among themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from ragtrace.model import VerdictLabel
from ragtrace.reviews.review import Review, by_claim, majority
from ragtrace.stats import wilson_interval

LEAST: Final = 20
"""Fewer claims say too little about a judge."""
LABELS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAgreement:
    """Agreement on claims that both decided."""

    table: Mapping[tuple[VerdictLabel, VerdictLabel], int]
    """Claims by the judge's verdict and the people's label, undecided ones too."""
    reviewers: int
    pairs: int
    """Pairs of people who labeled the same claim."""
    pairs_agreed: int

    @property
    def decided(self) -> int:
        """Claims that the judge and people decided."""
        return sum(number for (judge, human), number in self.table.items() if _decided(judge, human))

    @property
    def agreed(self) -> int:
        """Claims that both label alike."""
        return sum(
            number
            for (judge, human), number in self.table.items()
            if _decided(judge, human) and judge is human
        )

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share of agreement (Wilson); ``None`` without a decided claim."""
        return wilson_interval(self.agreed, self.decided) if self.decided else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa (1960) over the decided claims; ``None`` if chance agreement is complete."""
        total = self.decided
        if not total:
            return None
        judge, human = Counter[VerdictLabel](), Counter[VerdictLabel]()
        for (of_judge, of_human), number in self.table.items():
            if _decided(of_judge, of_human):
                judge[of_judge] += number
                human[of_human] += number
        chance = sum(judge[label] * human[label] for label in LABELS) / total**2
        return None if chance == 1 else (self.agreed / total - chance) / (1 - chance)

    @property
    def says_little(self) -> bool:
        """Whether there are too few claims to judge a judge by."""
        return self.decided < LEAST


def agreement(answers: Iterable[Sequence[Review]]) -> ReviewAgreement:
    """Compare the reviews of answers with the judge's verdicts, by claim."""
    table: Counter[tuple[VerdictLabel, VerdictLabel]] = Counter()
    names: set[str] = set()
    pairs = pairs_agreed = 0
    for reviews in answers:
        names |= {review.reviewer for review in reviews}
        for said in by_claim(reviews).values():
            table[said[0].verdict, majority(said) or VerdictLabel.UNJUDGED] += 1
            for one, other in combinations(said, 2):
                pairs += 1
                pairs_agreed += one.label is other.label
    return ReviewAgreement(table=table, reviewers=len(names), pairs=pairs, pairs_agreed=pairs_agreed)


def _decided(judge: VerdictLabel, human: VerdictLabel) -> bool:
    return VerdictLabel.UNJUDGED not in (judge, human)
