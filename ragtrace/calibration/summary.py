"""The results of a measurement, computed from verdicts and human labels: numbers with intervals, by data file
and overall.

If a sample drew the answers with an unsupported claim at another rate than the others, each answer is
weighted by the number of answers it represents. Counts are unweighted.

Each answer is a cluster, because its claims are not independent. Thresholds are chosen by five-fold
cross-validation: on four fifths of the answers, and tested on the last fifth. So the reported accuracy comes
from other data than the choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np

from ragtrace.calibration.agreement import (
    NO_WRONG_CLAIM,
    ConfusionCounts,
    Numbers,
    Ranking,
    Resampling,
    ScoredAnswer,
    Weights,
    balanced_accuracy,
    cohen_kappa,
    fold_of,
    precision_of_unsupported,
    recall_of_decided,
    recall_of_unsupported,
    share,
    share_decided,
)
from ragtrace.calibration.measurement import CandidateRun, JudgeCandidate, MeasuredAnswer, judged_supported
from ragtrace.labeled_data import HumanLabel, LabeledAnswer
from ragtrace.metrics.judge_card import IntervalEstimate, RiskCoverage
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import JudgeIdentity, Usage, Verdict, VerdictLabel


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
    risk_coverage_area: IntervalEstimate | None = None
    """AURC: the mean share of errors over all coverages; 0 is best."""
    risk_limits: tuple[RiskCoverage, ...] = ()

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


TOGETHER: Final = "all files together"
RISKS: Final = (0.05, 0.10)
"""The shares of errors for which the coverage is given."""
_FOLDS: Final = 5

Stratum: TypeAlias = tuple[str, bool]
"""File name, and whether the answer has an unsupported claim."""
Price: TypeAlias = Callable[[JudgeIdentity, Usage], float | None]
"""Returns the cost of a judge's usage in US dollars; ``None`` if unknown."""
_ByCluster: TypeAlias = Sequence[ConfusionCounts | None]
"""The counts of each answer; ``None`` if a run failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPlan:
    """The population of a measurement, and the settings of its intervals."""

    population: Mapping[Stratum, int]
    """Number of measurable answers."""
    sampled: bool
    """Whether only a sample was measured, with different rates per stratum."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Claims and answers that could not be measured, by reason."""
    resamples: int = 1000
    seed: int = 0
    at_once: int = 1
    """Concurrently measured answers."""


def stratum_of(answer: LabeledAnswer) -> Stratum:
    """Return the stratum of an answer."""
    return answer.file, answer.has_unsupported


def summarize(
    measured: Sequence[MeasuredAnswer],
    candidates: Sequence[JudgeCandidate],
    plan: MeasurementPlan,
    price: Price,
) -> Results:
    """Compute the results for each file and overall. An interrupted run counts as a sample."""
    plan = replace(plan, sampled=plan.sampled or len(measured) < sum(plan.population.values()))
    in_order = sorted(measured, key=lambda answer: (answer.answer.file, answer.position))
    files = dict.fromkeys(file for file, _ in plan.population)
    groups = [(file, [answer for answer in in_order if answer.answer.file == file]) for file in files]
    if len(groups) != 1:
        groups.append((TOGETHER, in_order))
    return Results(
        groups=tuple(_group(name, members, candidates, plan, price) for name, members in groups),
        sampled=plan.sampled,
        left_out=plan.left_out,
        resamples=plan.resamples,
        seed=plan.seed,
        documents=_documents(measured),
    )


def _documents(measured: Sequence[MeasuredAnswer]) -> int | None:
    """Count the documents; ``None`` if every answer has its own."""
    number = len({_document(answer) for answer in measured})
    return number if number < len(measured) else None


def _document(each: MeasuredAnswer) -> Hashable:
    return each.answer.file, each.answer.document or each.position


def _group(
    name: str,
    members: Sequence[MeasuredAnswer],
    candidates: Sequence[JudgeCandidate],
    plan: MeasurementPlan,
    price: Price,
) -> GroupResult:
    population = {
        stratum: size for stratum, size in plan.population.items() if name in (stratum[0], TOGETHER)
    }
    drawing = _drawing(members, population, plan)
    sides = [_Side(members, at, drawing) for at in range(len(candidates))]
    names = [candidate.name for candidate in candidates]
    return GroupResult(
        name=name,
        answers=len(members),
        of_answers=sum(population.values()),
        candidates=tuple(
            _result(side, candidate, plan, price) for side, candidate in zip(sides, candidates, strict=True)
        ),
        leads=tuple(
            lead
            for first, second in combinations(range(len(sides)), 2)
            if (lead := _lead((names[first], sides[first]), (names[second], sides[second]), drawing))
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """Weights, resampling and folds of a group's answers."""

    resampling: Resampling
    fold_of: Sequence[int]
    """Folds by cluster."""

    @property
    def weights(self) -> Weights:
        return self.resampling.weights

    def without(self, fold: int) -> Weights:
        """Return the weights of all folds but one."""
        return np.where(np.array(self.fold_of, dtype=np.intp) == fold, 0.0, self.weights)


def _drawing(
    members: Sequence[MeasuredAnswer], population: Mapping[Stratum, int], plan: MeasurementPlan
) -> _Drawing:
    drawn_from = [stratum_of(member.answer) for member in members]
    sizes = Counter(drawn_from)
    weights = [population[stratum] / sizes[stratum] for stratum in drawn_from]
    documents = [_document(member) for member in members]
    # if a document's answers are in both strata, it is resampled within its file
    as_drawn = plan.sampled and len(set(documents)) == len(documents)
    strata = drawn_from if as_drawn else [stratum[0] for stratum in drawn_from]
    return _Drawing(
        resampling=Resampling(weights, strata, documents, resamples=plan.resamples, seed=plan.seed),
        fold_of=fold_of(drawn_from, documents, folds=_FOLDS, seed=plan.seed),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A claim's human label and verdict."""

    label: HumanLabel
    verdict: Verdict
    support: float | None

    @property
    def human(self) -> bool:
        return self.label is HumanLabel.SUPPORTED

    def said(self, threshold: float | None) -> bool | None:
        """Return the binary verdict, from the probability if there are one and a threshold."""
        if threshold is None or self.support is None:
            return judged_supported(self.verdict)
        if self.support >= threshold:
            return True
        return None if self.verdict.label is VerdictLabel.UNJUDGED else False


class _Side:
    """The results of one candidate on the answers of a group."""

    def __init__(self, members: Sequence[MeasuredAnswer], at: int, drawing: _Drawing) -> None:
        self.answers = [member.answer for member in members]
        self.runs = [member.runs[at] for member in members]
        self.whole = [member.end_to_end[at] for member in members]
        self.documents = [_document(member) for member in members]
        self.drawing = drawing

    @cached_property
    def pairs(self) -> list[list[_Pair] | None]:
        """By answer: label and verdict of each claim in the first run."""
        return [
            [
                _Pair(label, verdict, support)
                for label, verdict, support in zip(
                    answer.labels, runs[0].verdicts, runs[0].support, strict=True
                )
            ]
            if runs[0].verdicts
            else None
            for answer, runs in zip(self.answers, self.runs, strict=True)
        ]

    @cached_property
    def ranking(self) -> Ranking:
        """The claims, ranked by the probability of support."""
        return Ranking(
            ScoredAnswer(pair.support, pair.human, cluster)
            for cluster, pairs in enumerate(self.pairs)
            for pair in pairs or ()
            if pair.support is not None
        )

    @cached_property
    def probabilities(self) -> Ranking:
        """The claims, ranked by the probability of support, also of judges without a cut for it."""
        if self.ranking:
            return self.ranking
        return Ranking(
            ScoredAnswer(pair.verdict.support, pair.human, cluster)
            for cluster, pairs in enumerate(self.pairs)
            for pair in pairs or ()
            if pair.verdict.support is not None
        )

    def probability_of(self, pair: _Pair) -> float | None:
        """Return the probability by which a claim is ranked."""
        return pair.support if self.ranking else pair.verdict.support

    @cached_property
    def claim_cut(self) -> ScoreCutoff | None:
        """The threshold of the probability."""
        return _cut(self.ranking, self.drawing, lambda of_fold: self.claim_counts(self._spread(of_fold)))

    @cached_property
    def held_out_thresholds(self) -> Sequence[float] | None:
        """By answer: the threshold that was chosen without it, if one is recommended."""
        if self.claim_cut is None or not self.claim_cut.is_moved:
            return None
        return self._spread(_thresholds_of_folds(self.ranking, self.drawing))

    def claim_counts(self, thresholds: Sequence[float] | None = None) -> list[ConfusionCounts | None]:
        """Count the claims at the judge's own threshold, or at the given ones."""
        return [
            None
            if pairs is None
            else ConfusionCounts.total(
                ConfusionCounts.of(pair.human, pair.said(thresholds[cluster] if thresholds else None))
                for pair in pairs
            )
            for cluster, pairs in enumerate(self.pairs)
        ]

    def answer_scores(self, thresholds: Sequence[float] | None = None) -> list[float | None]:
        """Return the strict faithfulness of each answer: the share of supported claims."""
        return [
            _faithfulness([pair.said(thresholds[cluster] if thresholds else None) for pair in pairs or ()])
            for cluster, pairs in enumerate(self.pairs)
        ]

    def answer_counts(
        self, scores: Sequence[float | None], thresholds: Sequence[float]
    ) -> list[ConfusionCounts | None]:
        """Count the labeled answers on which the judge did not fail."""
        return [
            None
            if answer.supported is None or pairs is None
            else ConfusionCounts.of(answer.supported, None if score is None else score >= threshold)
            for answer, pairs, score, threshold in zip(
                self.answers, self.pairs, scores, thresholds, strict=True
            )
        ]

    def _spread(self, of_fold: Sequence[float]) -> list[float]:
        return [of_fold[fold] for fold in self.drawing.fold_of]


def _faithfulness(said: Sequence[bool | None]) -> float | None:
    """Return the share of supported claims; ``None`` if none is wrong and less than half are decided."""
    judged = [verdict for verdict in said if verdict is not None]
    is_decided = len(judged) * 2 >= len(said) or not all(judged)
    return sum(judged) / len(judged) if judged and is_decided else None


def _result(side: _Side, candidate: JudgeCandidate, plan: MeasurementPlan, price: Price) -> CandidateResult:
    runs = [run for runs in side.runs for run in runs]
    usage = sum((run.usage for run in runs), Usage())
    usage = sum((whole.usage for whole in side.whole if whole), usage)
    weights, ranking = side.drawing.weights, side.probabilities
    return CandidateResult(
        name=candidate.name,
        form=candidate.form,
        is_floor=candidate.is_floor,
        claims=_claims(side),
        answers=_answers(side, side.answer_scores()),
        end_to_end=_end_to_end(side),
        claim_cut=side.claim_cut,
        answer_cut=_answer_cut(side),
        flips=_flips(side, candidate),
        runs=candidate.runs,
        failures=dict(Counter(run.failure for run in runs if run.failure)),
        skipped=dict(Counter(run.skipped for run in runs if run.skipped)),
        usage=usage,
        cost=price(candidate.judge.identity, usage),
        seconds=sum(run.seconds for run in runs) / plan.at_once,
        answer_runs=len(runs),
        calibration_error=ranking.calibration_error(weights) if ranking else None,
        risk_coverage_area=side.drawing.resampling.estimate(ranking.risk_coverage_area) if ranking else None,
        risk_limits=tuple(_risk_limits(side)),
    )


def _risk_limits(side: _Side) -> Iterator[RiskCoverage]:
    ranking = side.probabilities
    for risk in RISKS if ranking else ():
        coverage = side.drawing.resampling.estimate(partial(ranking.coverage_at, risk))
        if coverage is not None:
            yield RiskCoverage(risk=risk, coverage=coverage)


def _claims(side: _Side) -> AgreementLevel:
    pairs = [pair for pairs in side.pairs for pair in pairs or ()]
    confusion = Counter((str(pair.label), str(pair.verdict.label)) for pair in pairs)
    ranking = side.probabilities
    auc = side.drawing.resampling.estimate(ranking.auc) if ranking else None
    return _level(side.claim_counts(), confusion, side.drawing.resampling, auc)


def _answers(side: _Side, scores: Sequence[float | None]) -> AgreementLevel:
    counts = side.answer_counts(scores, [1.0] * len(scores))
    auc = side.drawing.resampling.estimate(_answer_ranking(side, scores).auc)
    return _level(counts, _answer_confusion(counts), side.drawing.resampling, auc)


def _end_to_end(side: _Side) -> AgreementLevel | None:
    counts = [
        None
        if whole is None or whole.failure or answer.supported is None
        else ConfusionCounts.of(answer.supported, None if whole.score is None else whole.score == 1)
        for answer, whole in zip(side.answers, side.whole, strict=True)
    ]
    if all(whole is None for whole in side.whole):
        return None
    return _level(counts, _answer_confusion(counts), side.drawing.resampling, None)


def _answer_confusion(by_cluster: _ByCluster) -> Mapping[tuple[str, str], int]:
    total = ConfusionCounts.total(counts for counts in by_cluster if counts)
    places = [(human, judge) for human in ("supported", "unsupported") for judge in _ANSWER_WORDS]
    in_order = (total.passed, total.false_alarms, total.open_supported, total.missed, total.caught, total[5])
    return {place: int(number) for place, number in zip(places, in_order, strict=True) if number}


_ANSWER_WORDS = ("supported", "unsupported", "unjudged")


def _level(
    by_cluster: _ByCluster,
    confusion: Mapping[tuple[str, str], int],
    resampling: Resampling,
    auc: IntervalEstimate | None,
) -> AgreementLevel:
    total = ConfusionCounts.total(counts for counts in by_cluster if counts)
    weigh = _weighing(by_cluster)

    def estimate(measure: Callable[[ConfusionCounts], Numbers]) -> IntervalEstimate | None:
        return resampling.estimate(lambda weights: measure(weigh(weights)))

    table: dict[str, dict[str, int]] = {}
    for (human, judge), number in sorted(confusion.items()):
        table.setdefault(human, {})[judge] = number
    return AgreementLevel(
        things=int(sum(total)),
        unsupported=int(total.missed + total.caught + total.open_unsupported),
        caught=int(total.caught),
        confusion=table,
        decided=estimate(share_decided),
        balanced_accuracy=estimate(balanced_accuracy),
        two_way=estimate(_two_way),
        kappa=estimate(cohen_kappa),
        precision=estimate(precision_of_unsupported),
        recall=estimate(recall_of_unsupported),
        recall_of_decided=estimate(recall_of_decided),
        auc=auc,
    )


def _two_way(counts: ConfusionCounts) -> Numbers:
    return balanced_accuracy(counts.with_open_as_unsupported)


def _weighing(by_cluster: _ByCluster) -> Callable[[Weights], ConfusionCounts]:
    table = np.array([counts or ConfusionCounts() for counts in by_cluster]).reshape(-1, 6)
    return lambda weights: ConfusionCounts(*(weights @ table).T)


def _cut(
    ranking: Ranking, drawing: _Drawing, counts_at: Callable[[Sequence[float]], _ByCluster]
) -> ScoreCutoff | None:
    """Find the best threshold, and cross-validate the search."""
    if not ranking:
        return None
    resampling = drawing.resampling
    best = resampling.estimate(ranking.best_threshold)
    at_default = resampling.estimate(lambda weights: ranking.accuracy_at(ranking.default, weights))
    if best is None or at_default is None:
        return None
    weigh = _weighing(counts_at(_thresholds_of_folds(ranking, drawing)))
    held_out = resampling.estimate(lambda weights: balanced_accuracy(weigh(weights)))
    bears_out = held_out is not None and held_out.value > at_default.value
    return ScoreCutoff(
        recommended=best.value if bears_out else ranking.default,
        default=ranking.default,
        best=best,
        at_best=float(ranking.accuracy_at(best.value, drawing.weights)[0]),
        at_default=at_default,
        held_out=held_out,
    )


def _thresholds_of_folds(ranking: Ranking, drawing: _Drawing) -> list[float]:
    """Return for each fold the best threshold of the others; the default if those have only one class."""
    found = (float(ranking.best_threshold(drawing.without(fold))[0]) for fold in range(_FOLDS))
    return [ranking.default if np.isnan(threshold) else threshold for threshold in found]


def _answer_ranking(side: _Side, scores: Sequence[float | None]) -> Ranking:
    scored = (
        ScoredAnswer(score, answer.supported, cluster)
        for cluster, (answer, score) in enumerate(zip(side.answers, scores, strict=True))
        if score is not None and answer.supported is not None
    )
    return Ranking(scored, default=NO_WRONG_CLAIM)


def _answer_cut(side: _Side) -> ScoreCutoff | None:
    scores = side.answer_scores(side.held_out_thresholds)
    return _cut(
        _answer_ranking(side, scores),
        side.drawing,
        lambda of_fold: side.answer_counts(scores, [of_fold[fold] for fold in side.drawing.fold_of]),
    )


def _lead(first: tuple[str, _Side], second: tuple[str, _Side], drawing: _Drawing) -> AccuracyLead | None:
    """Return the first's lead; ``None`` if there is none to compute."""
    sides = first[1], second[1]
    difference = _difference(*sides, drawing.resampling)
    if difference is None:
        return None
    judged = zip(sides[0].documents, sides[0].pairs, sides[1].pairs, strict=True)
    documents = {document for document, ours, theirs in judged if ours is not None and theirs is not None}
    return AccuracyLead(
        first=first[0],
        second=second[0],
        difference=difference,
        auc=_auc_difference(*sides, drawing.resampling),
        documents=len(documents),
    )


def _auc_difference(first: _Side, second: _Side, resampling: Resampling) -> IntervalEstimate | None:
    scored = [
        (ours, theirs, pair.human, cluster)
        for cluster, (of_first, of_second) in enumerate(zip(first.pairs, second.pairs, strict=True))
        for pair, other in zip(of_first or (), of_second or (), strict=False)
        if (ours := first.probability_of(pair)) is not None
        and (theirs := second.probability_of(other)) is not None
    ]
    if not scored:
        return None
    ahead = Ranking(ScoredAnswer(ours, human, cluster) for ours, _, human, cluster in scored)
    behind = Ranking(ScoredAnswer(theirs, human, cluster) for _, theirs, human, cluster in scored)
    return resampling.estimate(lambda weights: ahead.auc(weights) - behind.auc(weights))


def _difference(first: _Side, second: _Side, resampling: Resampling) -> IntervalEstimate | None:
    of_first, of_second = (side.claim_counts(side.held_out_thresholds) for side in (first, second))
    both = [a is not None and b is not None for a, b in zip(of_first, of_second, strict=True)]
    sides = [
        _weighing([each if shared else None for each, shared in zip(counts, both, strict=True)])
        for counts in (of_first, of_second)
    ]

    def lead(weights: Weights) -> Numbers:
        ahead, behind = (_two_way(weigh(weights)) for weigh in sides)
        return ahead - behind

    return resampling.estimate(lead)


def _flips(side: _Side, candidate: JudgeCandidate) -> IntervalEstimate | None:
    if candidate.runs < 2:
        return None
    counted = [
        _flipped(runs)
        if _can_be_reordered(answer, candidate.form) and all(run.verdicts for run in runs)
        else (0, 0)
        for answer, runs in zip(side.answers, side.runs, strict=True)
    ]
    flipped, compared = np.array(counted, dtype=np.float64).reshape(-1, 2).T
    return side.drawing.resampling.estimate(lambda weights: share(weights @ flipped, weights @ compared))


def _flipped(runs: Sequence[CandidateRun]) -> tuple[int, int]:
    by_claim = list(zip(*(run.verdicts for run in runs), strict=True))
    flipped = sum(len({judged_supported(verdict) for verdict in verdicts}) > 1 for verdicts in by_claim)
    return flipped, len(by_claim)


def _can_be_reordered(answer: LabeledAnswer, form: VerifyForm) -> bool:
    has_other_claims = (
        form is VerifyForm.JSON and len(answer.claims) > 1
    )  # else each claim has its own request
    return len(answer.record.chunks) > 1 or has_other_claims
