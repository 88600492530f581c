"""What a measurement says: figures with intervals, by data file and together.

Where a sample took the answers with an unsupported claim at another rate than the others, each answer is
weighted by how many it stands for; counts are the plain ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragtrace.calibration._agreement import ScoreBin
from ragtrace.calibration.intervals import IntervalEstimate
from ragtrace.metrics.verify_settings import VerifyForm
from ragtrace.model import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementLevel:
    """How well verdicts agree with people: on claims, or on whole answers."""

    things: int
    """With a label of people and a run of the judge."""
    unsupported: int
    """As people say."""
    caught: int
    """How many of these the judge calls so."""
    confusion: Mapping[str, Mapping[str, int]]
    """What people say → what the judge says → how often, unweighted."""
    decided: IntervalEstimate | None
    """The share that the judge did not leave open."""
    balanced_accuracy: IntervalEstimate | None
    """Of what was decided."""
    two_way: IntervalEstimate | None
    """Balanced accuracy over everything, what was left open read as unsupported."""
    kappa: IntervalEstimate | None
    precision: IntervalEstimate | None
    """Of the verdict *unsupported*."""
    recall: IntervalEstimate | None
    """Of the verdict *unsupported*, over all that people call so: what the judge leaves open is missed."""
    recall_of_decided: IntervalEstimate | None
    """The same over what the judge decided: it says nothing about what is found."""
    auc: IntervalEstimate | None = None

    @property
    def said(self) -> list[str]:
        """What the judge said at all, in the order of the alphabet."""
        return sorted({judge for row in self.confusion.values() for judge in row})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCutoff:
    """Where to cut a score in two."""

    recommended: float
    """The best, if held-out data bears it out; else the default."""
    default: float
    """0.5 of a probability; 1 of the share of supported claims: an answer with a wrong claim fails."""
    best: IntervalEstimate
    """The highest balanced accuracy on the very data it was looked for in."""
    at_best: float
    """That balanced accuracy: too high, since it was picked."""
    at_default: IntervalEstimate
    """Balanced accuracy at the default."""
    held_out: IntervalEstimate | None
    """Balanced accuracy of thresholds on answers that they were not looked for in."""

    @property
    def is_moved(self) -> bool:
        """Whether another threshold than the default is recommended."""
        return self.recommended != self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """What came out of one judge in one form."""

    name: str
    form: VerifyForm
    is_floor: bool
    claims: AgreementLevel
    answers: AgreementLevel
    """An answer is judged supported where each of its claims is."""
    end_to_end: AgreementLevel | None
    """The same where the judge words the claims itself."""
    end_to_end_claims: AgreementLevel | None
    """Labeled claims by what the judge's own claims say of the same place: one that it never made is
    missed."""
    claim_cut: ScoreCutoff | None
    """Of the probability that a claim is supported, where the judge gives one."""
    answer_cut: ScoreCutoff | None
    """Of the share of supported claims."""
    flips: IntervalEstimate | None
    """Share of claims whose verdict was not the same in all runs."""
    runs: int
    failures: Mapping[str, int]
    """Runs that failed, by type: they stand in no figure."""
    skipped: Mapping[str, int]
    usage: Usage
    cost: float | None
    """US dollars; ``None`` where the price is not known."""
    seconds: float
    """What the judge took of the time of the run: waits side by side count once."""
    answer_runs: int
    """Answers judged, over all runs."""
    reliability: tuple[ScoreBin, ...] = ()
    roc: tuple[tuple[float, float], ...] = ()

    @property
    def seconds_an_answer(self) -> float:
        """How long one run took for an answer, in the mean."""
        return self.seconds / self.answer_runs if self.answer_runs else 0.0

    @property
    def two_way(self) -> IntervalEstimate | None:
        """Balanced accuracy on all claims, at the recommended threshold where there is one of its own."""
        if self.claim_cut is not None and self.claim_cut.is_moved:
            return self.claim_cut.held_out
        return self.claims.two_way

    @property
    def answer_threshold(self) -> float | None:
        """The share of supported claims from which to pass an answer, if one beats the default rule."""
        cut = self.answer_cut
        return cut.recommended if cut is not None and cut.is_moved else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyLead:
    """How much higher the two-way balanced accuracy of the first is, over the claims that both judged."""

    first: str
    second: str
    difference: IntervalEstimate

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """What came out on one file, or on all of them."""

    name: str
    answers: int
    """Measured."""
    of_answers: int
    """That could have been measured."""
    candidates: tuple[CandidateResult, ...]
    leads: tuple[AccuracyLead, ...]

    @property
    def has_cuts(self) -> bool:
        """Whether a threshold was looked for."""
        return any(each.claim_cut or each.answer_cut for each in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that came out; the last group is the one that recommendations rest on."""

    groups: tuple[GroupResult, ...]
    sampled: bool
    left_out: Mapping[str, int]
    resamples: int
    seed: int
    documents: int | None = None
    """How many the answers are about, where several are about the same: intervals draw these."""

    @property
    def overall(self) -> GroupResult:
        """Everything together."""
        return self.groups[-1]

    @property
    def recommended(self) -> CandidateResult | None:
        """What has the highest two-way balanced accuracy on claims; ``None`` where nothing was measured."""
        rated = [
            (each.two_way.value, each)
            for each in self.overall.candidates
            if not each.is_floor and each.two_way is not None
        ]
        return max(rated, key=lambda pair: pair[0])[1] if rated else None
