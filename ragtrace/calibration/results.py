"""The results of a measurement: numbers with intervals, by data file and overall.

If a sample drew the answers with an unsupported claim at another rate than the others, each answer is
weighted by the number of answers it represents. Counts are unweighted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragtrace.calibration.agreement import IntervalEstimate, ScoreBin
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementLevel:
    """Agreement of verdicts with people, on claims or on whole answers."""

    things: int
    """Number with a human label and a judge's result."""
    unsupported: int
    """Number that people call unsupported."""
    caught: int
    """Number of these that the judge calls unsupported."""
    confusion: Mapping[str, Mapping[str, int]]
    """Human label → judge's label → count, unweighted."""
    decided: IntervalEstimate | None
    """The share that the judge decided."""
    balanced_accuracy: IntervalEstimate | None
    """Balanced accuracy over the decided ones."""
    two_way: IntervalEstimate | None
    """Balanced accuracy over all, with open ones counted as unsupported."""
    kappa: IntervalEstimate | None
    precision: IntervalEstimate | None
    """Precision of the verdict *unsupported*."""
    recall: IntervalEstimate | None
    """Recall of the verdict *unsupported*; open ones count as missed."""
    recall_of_decided: IntervalEstimate | None
    """The same over the decided ones; it is not the share that is found."""
    auc: IntervalEstimate | None = None

    @property
    def said(self) -> list[str]:
        """The judge's labels, in alphabetical order."""
        return sorted({judge for row in self.confusion.values() for judge in row})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCutoff:
    """The threshold of a score."""

    recommended: float
    """The best threshold if held-out data confirms it, else the default."""
    default: float
    """0.5 for a probability; 1 for the share of supported claims: an answer with a wrong claim fails."""
    best: IntervalEstimate
    """The threshold with the highest balanced accuracy on all data."""
    at_best: float
    """That balanced accuracy, which is optimistic: the threshold was chosen on the same data."""
    at_default: IntervalEstimate
    """Balanced accuracy at the default."""
    held_out: IntervalEstimate | None
    """Balanced accuracy of thresholds on held-out answers."""

    @property
    def is_moved(self) -> bool:
        """Whether another threshold than the default is recommended."""
        return self.recommended != self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskLimit:
    """How much a judge can decide if it must not err more often than this."""

    risk: float
    """The largest share of errors among the decided claims."""
    coverage: IntervalEstimate
    """The largest share of all claims, the surest first, that stays within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """The results of one judge in one form."""

    name: str
    form: VerifyForm
    is_floor: bool
    claims: AgreementLevel
    answers: AgreementLevel
    """Whole answers: supported if every claim is."""
    end_to_end: AgreementLevel | None
    """Whole answers, with claims that the judge extracts."""
    end_to_end_claims: AgreementLevel | None
    """Labeled claims against the judge's own claims at the same position; those it did not extract are
    missed."""
    claim_cut: ScoreCutoff | None
    """Threshold of the probability that a claim is supported, if the judge gives one."""
    answer_cut: ScoreCutoff | None
    """Threshold of the share of supported claims."""
    flips: IntervalEstimate | None
    """Share of claims whose verdict differed between runs."""
    runs: int
    failures: Mapping[str, int]
    """Failed runs by type; no number includes them."""
    skipped: Mapping[str, int]
    usage: Usage
    cost: float | None
    """US dollars; ``None`` if the price is unknown."""
    seconds: float
    """The judge's part of the run's duration; concurrent waits count once."""
    answer_runs: int
    """Judged answers over all runs."""
    calibration_error: float | None = None
    """Expected calibration error of the probability of support: ten bins, weighted by their claims."""
    risk_coverage: tuple[tuple[float, float], ...] = ()
    """The share of claims, the surest first, and the share of errors among them."""
    risk_coverage_area: IntervalEstimate | None = None
    """AURC: the mean share of errors over all coverages; 0 is best."""
    risk_limits: tuple[RiskLimit, ...] = ()
    reliability: tuple[ScoreBin, ...] = ()
    roc: tuple[tuple[float, float], ...] = ()

    @property
    def contradicted_precision(self) -> float | None:
        """The share of claims called contradicted that people call contradicted; ``None`` without any."""
        said = {human: row.get("contradicted", 0) for human, row in self.claims.confusion.items()}
        return said.get("contradicted", 0) / sum(said.values()) if sum(said.values()) else None

    @property
    def seconds_an_answer(self) -> float:
        """Mean duration of one run of an answer."""
        return self.seconds / self.answer_runs if self.answer_runs else 0.0

    @property
    def two_way(self) -> IntervalEstimate | None:
        """Balanced accuracy on all claims, at the recommended threshold if there is one."""
        if self.claim_cut is not None and self.claim_cut.is_moved:
            return self.claim_cut.held_out
        return self.claims.two_way

    @property
    def answer_threshold(self) -> float | None:
        """The share of supported claims from which an answer passes, if it beats the default rule."""
        cut = self.answer_cut
        return cut.recommended if cut is not None and cut.is_moved else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyLead:
    """The first's lead over the second on the answers that both judged: the same claims, drawn together."""

    first: str
    second: str
    difference: IntervalEstimate
    """In balanced accuracy; open claims count as unsupported."""
    auc: IntervalEstimate | None = None
    """In AUC, over the claims that both gave a probability."""
    documents: int = 0
    """Number of documents with such answers."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return is_clear(self.difference)


def is_clear(difference: IntervalEstimate) -> bool:
    """Return whether the interval of a difference excludes 0."""
    low, high = difference.low, difference.high
    return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """The results on one file, or on all files."""

    name: str
    answers: int
    """Measured."""
    of_answers: int
    """Number of measurable answers."""
    candidates: tuple[CandidateResult, ...]
    leads: tuple[AccuracyLead, ...]

    @property
    def risks(self) -> list[str]:
        """The limits of errors for which there is a coverage, in words."""
        found = next((each.risk_limits for each in self.candidates if each.risk_limits), ())
        return [f"decided at {limit.risk:.0%} errors" for limit in found]

    @property
    def has_cuts(self) -> bool:
        """Whether a threshold was searched."""
        return any(candidate.claim_cut or candidate.answer_cut for candidate in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All results; recommendations are based on the last group."""

    groups: tuple[GroupResult, ...]
    sampled: bool
    left_out: Mapping[str, int]
    resamples: int
    seed: int
    documents: int | None = None
    """Number of documents if several answers share one; intervals resample documents."""

    @property
    def overall(self) -> GroupResult:
        """The results over all files."""
        return self.groups[-1]

    @property
    def recommended(self) -> CandidateResult | None:
        """The candidate with the highest balanced accuracy on claims; ``None`` if nothing was measured."""
        rated = [
            (candidate.two_way.value, candidate)
            for candidate in self.overall.candidates
            if not candidate.is_floor and candidate.two_way is not None
        ]
        return max(rated, key=lambda pair: pair[0])[1] if rated else None
