"""How far the judge and the human annotators agree, said honestly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ragtrace.stats import wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Counts of answers, by what the judge and the people found in them."""

    both_clean: int
    both_flawed: int
    judge_only: int
    """Flawed to the judge, clean to people: a false alarm, if people are right."""
    people_only: int
    """Clean to the judge, flawed to people: missed, if people are right."""

    @property
    def total(self) -> int:
        """The answers that have a verdict."""
        return self.both_clean + self.both_flawed + self.judge_only + self.people_only

    @property
    def agreed(self) -> int:
        """The answers that both see alike."""
        return self.both_clean + self.both_flawed

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of the shares found among flawed and among clean answers; ``None`` without either kind."""
        flawed, clean = self.both_flawed + self.people_only, self.both_clean + self.judge_only
        if not flawed or not clean:
            return None
        return (self.both_flawed / flawed + self.both_clean / clean) / 2

    def sentence(self, judge: str) -> str:
        """Say it for people, with an interval that shows how little so few answers prove."""
        if not self.total:
            return f"{judge} decided no answer: there is nothing to compare."
        low, high = wilson_interval(self.agreed, self.total)
        return (
            f"{judge} agrees with people on {self.agreed} of {self.total} answers "
            f"({self.agreed / self.total:.0%}; 95 % interval {low:.0%} to {high:.0%}): "
            f"{self.people_only} flaws missed, {self.judge_only} false alarms."
        )


def compare(pairs: Iterable[tuple[bool, bool]]) -> Agreement:
    """Count pairs of (the judge found a flaw, people found a flaw)."""
    seen = list(pairs)
    return Agreement(
        both_clean=seen.count((False, False)),
        both_flawed=seen.count((True, True)),
        judge_only=seen.count((True, False)),
        people_only=seen.count((False, True)),
    )
