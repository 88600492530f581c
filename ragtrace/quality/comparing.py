"""Two versions of a system on judged answers: in pairs of the same question, else as two samples."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from ragtrace.answers.port import AnswerFilter, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary, first_faithfulness, summary_of_judged
from ragtrace.model import (
    Direction,
    Evaluation,
    JudgedAnswer,
    Label,
    MetricResult,
    VerdictLabel,
    content_sha256,
)
from ragtrace.quality.report import NONE, JudgedRow, group_of, judged_row
from ragtrace.stats import (
    Difference,
    Pair,
    agreement_beyond_chance,
    difference_of,
    paired_difference,
    sign_test,
    weighted_mean,
)
from ragtrace.traces.carrier_outcomes import keyed

if TYPE_CHECKING:
    from ragtrace.answers.index import AnswerIndex

_MOST_GROUPS: Final = 50

ClaimLabels = Mapping[str, VerdictLabel]
"""The verdicts on the claims of an answer, by their text."""


class ComparedAnswer(NamedTuple):
    """A judged answer, as far as a comparison needs it."""

    summary: AnswerSummary
    name: str
    """The record's id, for people."""
    question: str
    """As questions are compared; empty if it is unknown, or not known to its end."""
    text: str = ""
    """The question for people."""
    material: str = ""
    """The digest of what the judge saw; empty if it is not at hand."""
    claims: Mapping[str, ClaimLabels] = {}
    """By metric."""
    versions: Mapping[str, str] = {}
    """The version of the evaluator, by metric."""

    @classmethod
    def of_judged(cls, answer: JudgedAnswer) -> ComparedAnswer:
        """Make it of an answer with its texts."""
        record, summary = answer.record, summary_of_judged(answer)
        has_texts = record.answer is not None or record.question is not None
        return cls(
            summary,
            record.id,
            comparable(record.question or ""),
            text=summary.question,
            material=content_sha256(record) if has_texts else "",
            claims=claims_of(answer.evaluation),
            versions={name: each.evaluator_version for name, each in keyed(answer.evaluation)},
        )

    @classmethod
    def of_summary(cls, summary: AnswerSummary) -> ComparedAnswer:
        """Make it of an answer in an index, which has no texts but how the question begins."""
        question = summary.question
        is_whole = not question.endswith("…")
        versions = {metric.name: summary.evaluator_version for metric in summary.metrics}
        return cls(
            summary,
            summary.key.trace_id,
            comparable(question) if is_whole else "",
            text=question,
            versions=versions,
        )


def claims_of(evaluation: Evaluation) -> Mapping[str, ClaimLabels]:
    """Return the verdicts on claims by metric."""
    return {
        name: {verdict.claim.text: verdict.label for verdict in outcome.verdicts}
        for name, outcome in keyed(evaluation)
        if isinstance(outcome, MetricResult)
    }


def comparable(question: str) -> str:
    """Return a question without what makes no other question: case, spaces, quotes, sentence marks."""
    words = (word.strip(_MARKS) for word in question.casefold().replace("’", "'").split())  # noqa: RUF001
    return " ".join(filter(None, words))


_MARKS: Final = ".,;:!?…¿¡'\"“”„‘«»()[]{}–—"  # noqa: RUF001 -- marks of other languages, too


async def newest_answers(
    index: AnswerIndex, scope: TrafficScope, *, most: int
) -> tuple[list[ComparedAnswer], bool]:
    """Return the newest answers of an index, and whether there are more."""
    answers: list[ComparedAnswer] = []
    async for summary in index.every(AnswerFilter(scope=scope)):
        if len(answers) == most:
            return answers, True
        answers.append(ComparedAnswer.of_summary(summary))
    return answers, False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """The answers of one version."""

    name: str
    answers: Sequence[ComparedAnswer]
    notices: tuple[str, ...] = ()
    """Sentences about what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """One metric in both versions."""

    metric: str
    lower_is_better: bool
    passing: Difference | None
    """Of the pass rates, B minus A; ``None`` if there is nothing to compare."""
    mean: Difference | None
    """Of the mean scores."""
    to_fail: int
    """Pairs that pass in A and fail in B."""
    to_pass: int
    p_value: float | None
    """Of these two counts (McNemar, exact, unweighted); ``None`` without pairs."""
    kappa: float | None
    """Cohen's kappa of pass and fail, if both judged the same texts."""

    def verdict(self, *, passes: bool) -> str:
        """Say of the pass rate or of the mean: ``better``, ``worse``, ``may be chance`` or ``unknown``."""
        found = self.passing if passes else self.mean
        if found is None:
            return "unknown"
        if found.is_chance:
            return "may be chance"
        return "better" if (found.change > 0) != (self.lower_is_better and not passes) else "worse"


class ClaimChange(NamedTuple):
    """A claim that is judged otherwise, or a wrong one that only one of the answers has."""

    text: str
    first: VerdictLabel | None
    """``None`` if the answer does not make the claim."""
    second: VerdictLabel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChange:
    """A pair with another label, score or verdict on a claim."""

    names: tuple[str, str]
    keys: tuple[AnswerKey, AnswerKey]
    question: str
    metric: str
    scores: tuple[float | None, float | None]
    labels: tuple[Label, Label]
    claims: tuple[ClaimChange, ...]

    @property
    def is_flip(self) -> bool:
        """Whether one passes and the other fails."""
        return {*self.labels} == {Label.PASS, Label.FAIL}

    @property
    def size(self) -> tuple[bool, float, int]:
        """By which changes are sorted: flips first, then by the distance of the scores."""
        first, second = self.scores
        apart = abs(first - second) if first is not None and second is not None else 0.0
        return self.is_flip, apart, len(self.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionComparison:
    """What differs between two versions."""

    names: tuple[str, str]
    answers: tuple[int, int]
    judges: tuple[tuple[str, ...], tuple[str, ...]]
    is_paired: bool
    """Whether differences are those of pairs; else of two independent samples."""
    by_id: int
    by_question: int
    unchanged: int
    """Pairs of which both judged the same texts."""
    by: str | None
    groups: Mapping[str, tuple[MetricComparison, ...]]
    """By the name of the group; all answers first, under the empty name."""
    changes: tuple[AnswerChange, ...]
    """Largest first."""
    notices: tuple[str, ...]
    """Sentences about what could not be compared, and what the difference may be due to."""

    @property
    def metrics(self) -> tuple[MetricComparison, ...]:
        """The metrics of all answers, faithfulness first."""
        return self.groups[""]


class _Paired(NamedTuple):
    first: ComparedAnswer
    second: ComparedAnswer
    cluster: str

    @property
    def probability(self) -> float | None:
        one, other = self.first.summary, self.second.summary
        if not (one.probability and other.probability):
            return None
        if one.key.trace_id == other.key.trace_id:  # the decision on a trace is one: rates are nested
            return min(one.probability, other.probability)
        return one.probability * other.probability


@dataclass(slots=True, kw_only=True)
class _Pairing:
    pairs: list[_Paired] = field(default_factory=list)
    by_id: int = 0
    other_question: int = 0
    only: tuple[list[ComparedAnswer], list[ComparedAnswer]] = ((), ())  # type: ignore[assignment]


def compare(first: ComparedSide, second: ComparedSide, *, by: str | None = None) -> VersionComparison:
    """Compare two versions: by pairs if at least half of the smaller side has a partner.

    With ``by`` also within each group (`group_of`), told by A's answer of a pair.
    """
    sides = (_newest(first.answers), _newest(second.answers))
    pairing = _paired(*sides)
    is_paired = bool(pairing.pairs) and 2 * len(pairing.pairs) >= min(map(len, sides))
    unchanged = sum(bool(each.first.material) and _is_same_text(each) for each in pairing.pairs)
    answers: dict[str, tuple[list[ComparedAnswer], list[ComparedAnswer]]] = defaultdict(lambda: ([], []))
    pairs: dict[str, list[_Paired]] = defaultdict(list)
    for at, side in enumerate(sides):
        for answer in side:
            for group in _groups(answer, by):
                answers[group][at].append(answer)
    for pair in pairing.pairs:
        for group in _groups(pair.first, by):
            pairs[group].append(pair)
    largest = sorted(answers, key=lambda name: (bool(name), -len(answers[name][0]), name))
    groups = {
        name: tuple(_metrics(answers[name], pairs[name], is_paired=is_paired))
        for name in largest[: 1 + _MOST_GROUPS]
    }
    groups.setdefault("", ())
    return VersionComparison(
        names=(first.name, second.name),
        answers=(len(sides[0]), len(sides[1])),
        judges=(_judges(sides[0]), _judges(sides[1])),
        is_paired=is_paired,
        by_id=pairing.by_id,
        by_question=len(pairing.pairs) - pairing.by_id,
        unchanged=unchanged,
        by=by,
        groups=groups,
        changes=tuple(
            sorted(
                (change for pair in pairing.pairs for change in _changes(pair)),
                key=lambda change: change.size,
                reverse=True,
            )
        ),
        notices=tuple(_notices((first, second), sides, pairing, groups, is_paired=is_paired)),
    )


def _newest(answers: Sequence[ComparedAnswer]) -> list[ComparedAnswer]:
    found: dict[AnswerKey, ComparedAnswer] = {}
    for answer in answers:
        known = found.get(answer.summary.key)
        if known is None or known.summary.judged_ns <= answer.summary.judged_ns:
            found[answer.summary.key] = answer
    return list(found.values())


def _groups(answer: ComparedAnswer, by: str | None) -> tuple[str, ...]:
    return ("", *((group_of(answer.summary, by),) if by else ()))


def _judges(answers: Iterable[ComparedAnswer]) -> tuple[str, ...]:
    return tuple(judge for judge, _ in Counter(each.summary.judge for each in answers).most_common())


def _is_same_text(pair: _Paired) -> bool:
    return pair.first.material == pair.second.material


def _paired(first: Sequence[ComparedAnswer], second: Sequence[ComparedAnswer]) -> _Pairing:
    """Pair by id where the question is the same, and what is left by question, in its order."""
    found = _Pairing()
    by_key = {answer.summary.key: answer for answer in second}
    left: list[ComparedAnswer] = []
    for answer in first:
        other = by_key.get(answer.summary.key)
        is_other = other and answer.question and other.question and answer.question != other.question
        found.other_question += bool(is_other)
        if other is None or is_other:
            left.append(answer)
        else:
            del by_key[answer.summary.key]
            found.pairs.append(_Paired(answer, other, answer.summary.key.trace_id))
    found.by_id = len(found.pairs)
    by_question: dict[str, list[ComparedAnswer]] = defaultdict(list)
    for answer in reversed(by_key.values()):
        if answer.question:
            by_question[answer.question].append(answer)
    only: list[ComparedAnswer] = []
    for answer in left:
        if answer.question and by_question.get(answer.question):
            other = by_question[answer.question].pop()
            del by_key[other.summary.key]
            found.pairs.append(_Paired(answer, other, answer.question))
        else:
            only.append(answer)
    found.only = (only, list(by_key.values()))
    return found


def _metrics(
    answers: tuple[Sequence[ComparedAnswer], Sequence[ComparedAnswer]],
    pairs: Sequence[_Paired],
    *,
    is_paired: bool,
) -> Iterator[MetricComparison]:
    first, second = (
        {metric.name: metric for answer in side for metric in answer.summary.metrics} for side in answers
    )
    for name in sorted(first.keys() & second.keys(), key=first_faithfulness):
        scored = [
            (pair, one, other)
            for pair in pairs
            if (one := _scored(pair.first, name)) and (other := _scored(pair.second, name))
        ]
        turned = Counter((one.passes, other.passes) for _, one, other in scored)
        to_fail, to_pass = turned[True, False], turned[False, True]
        is_same = bool(scored) and all(pair.first.material and _is_same_text(pair) for pair, _, _ in scored)
        if is_paired:
            passing, mean = (
                paired_difference(
                    Pair(
                        one.weighed(passes=passes).value,
                        other.weighed(passes=passes).value,
                        pair.probability,
                        pair.cluster,
                    )
                    for pair, one, other in scored
                )
                for passes in (True, False)
            )
        else:
            passing, mean = (_two_samples(answers, name, passes=passes) for passes in (True, False))
        yield MetricComparison(
            metric=name,
            lower_is_better=first[name].direction is Direction.LOWER_IS_BETTER,
            passing=passing,
            mean=mean,
            to_fail=to_fail,
            to_pass=to_pass,
            p_value=sign_test(to_fail, to_pass) if scored else None,
            kappa=agreement_beyond_chance(turned) if is_same else None,
        )


def _scored(answer: ComparedAnswer, metric: str) -> JudgedRow | None:
    found = answer.summary.metric(metric)
    return judged_row(answer.summary, found) if found else None


def _two_samples(
    answers: tuple[Sequence[ComparedAnswer], Sequence[ComparedAnswer]], metric: str, *, passes: bool
) -> Difference | None:
    older, newer = (
        weighted_mean(row.weighed(passes=passes) for each in side if (row := _scored(each, metric)))
        for side in answers
    )
    return difference_of(newer, older) if older and newer else None


def _changes(pair: _Paired) -> Iterator[AnswerChange]:
    for metric in pair.first.summary.metrics:
        other = pair.second.summary.metric(metric.name)
        if other is None:
            continue
        claims = changed_claims(
            pair.first.claims.get(metric.name, {}), pair.second.claims.get(metric.name, {})
        )
        if claims or metric.score != other.score or metric.label is not other.label:
            yield AnswerChange(
                names=(pair.first.name, pair.second.name),
                keys=(pair.first.summary.key, pair.second.summary.key),
                question=pair.first.text or pair.second.text,
                metric=metric.name,
                scores=(metric.score, other.score),
                labels=(metric.label, other.label),
                claims=claims,
            )


def changed_claims(first: ClaimLabels, second: ClaimLabels) -> tuple[ClaimChange, ...]:
    """Return the claims with another verdict, and the wrong ones that only one of the answers has."""
    by_text = {_folded(text): (text, label) for text, label in first.items()}
    others = {_folded(text): (text, label) for text, label in second.items()}
    found = []
    for folded in dict.fromkeys((*by_text, *others)):
        (text, one), (also, other) = by_text.get(folded, ("", None)), others.get(folded, ("", None))
        alone = one or other if one is None or other is None else None
        if alone in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED) or (alone is None and one != other):
            found.append(ClaimChange(text or also, one, other))
    return tuple(found)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _notices(
    sides: tuple[ComparedSide, ComparedSide],
    answers: tuple[Sequence[ComparedAnswer], Sequence[ComparedAnswer]],
    pairing: _Pairing,
    groups: Mapping[str, tuple[MetricComparison, ...]],
    *,
    is_paired: bool,
) -> Iterator[str]:
    for letter, side, newest in zip("AB", sides, answers, strict=True):
        yield from (f"{letter}: {notice}" for notice in side.notices)
        if more := len(side.answers) - len(newest):
            yield f"{more:,} evaluations in {letter} are of answers with a newer one, which counts"
        if len(judges := _judges(newest)) > 1:
            yield f"several judges are mixed in {letter}: {', '.join(judge or NONE for judge in judges)}"
    if not all(answers):
        empty = (letter for letter, side in zip("AB", answers, strict=True) if not side)
        yield f"there is no judged answer in {' and '.join(empty)}"
        return
    yield from _unpaired(answers, pairing, is_paired=is_paired)
    yield from _per_metric(answers, pairing, groups[""], is_paired=is_paired)


def _unpaired(
    answers: tuple[Sequence[ComparedAnswer], Sequence[ComparedAnswer]], pairing: _Pairing, *, is_paired: bool
) -> Iterator[str]:
    only = tuple(map(len, pairing.only))
    if is_paired and any(only):
        yield f"{only[0]:,} answers only in A and {only[1]:,} only in B have no partner, and are in no figure"
    if not is_paired:
        few = f"only {len(pairing.pairs):,} pairs are" if pairing.pairs else "no answers are"
        yield (
            f"{few} about the same question: all answers are compared as two samples, so the difference is"
            " also that of their questions"
        )
    if pairing.other_question:
        yield f"{pairing.other_question:,} answers have the same id, but another question: they are no pairs"
    if cut := sum(each.text.endswith("…") and not each.question for side in pairing.only for each in side):
        yield f"{cut:,} questions are too long for the index to be paired by"


def _per_metric(
    answers: tuple[Sequence[ComparedAnswer], Sequence[ComparedAnswer]],
    pairing: _Pairing,
    metrics: Sequence[MetricComparison],
    *,
    is_paired: bool,
) -> Iterator[str]:
    ran = [{metric.name for each in side for metric in each.summary.metrics} for side in answers]
    for letter, alone in (("A", ran[0] - ran[1]), ("B", ran[1] - ran[0])):
        for name in sorted(alone):
            yield f"{name} ran only in {letter}, and is not compared"
    for found in metrics:
        name = found.metric
        rows = [[(each, row) for each in side if (row := _scored(each, name))] for side in answers]
        by = [
            {(each.summary.judge or NONE, each.versions.get(name, "")) for each, _ in side} for side in rows
        ]
        if by[0] != by[1] and all(by):
            judges = [sorted({judge for judge, _ in each}) for each in by]
            how = "other judges" if judges[0] != judges[1] else "another version of the evaluator"
            said = f": {', '.join(judges[0])} and {', '.join(judges[1])}" if judges[0] != judges[1] else ""
            yield f"{name}: A and B were judged by {how}{said}; this alone may make a difference"
        if is_paired:
            scored = [
                (_scored(pair.first, name) is not None, _scored(pair.second, name) is not None)
                for pair in pairing.pairs
            ]
            one, other, none = map(scored.count, ((True, False), (False, True), (False, False)))
            if one or other or none:
                yield (
                    f"{name}: of {len(scored):,} pairs, {one:,} have a score only in A, {other:,} only"
                    f" in B, {none:,} in neither (failed or nothing to judge): they are in no difference"
                )
            unknown = sum(
                pair.probability is None and all(both)
                for pair, both in zip(pairing.pairs, scored, strict=True)
            )
        else:
            for letter, side, known in zip("AB", answers, rows, strict=True):
                if without := len(side) - len(known):
                    yield f"{name}: {without:,} of {len(side):,} answers in {letter} have no score"
            unknown = sum(row.probability is None for side in rows for _, row in side)
        if unknown:
            yield f"{name}: {unknown:,} scores have no known sampling probability and are in no difference"


_RULE: Final = re.compile(
    r"(?:(?!possibly\b|worse\b|mean\b|pass\b)(?P<metric>[\w.-]+)\s+)?(?:(?P<what>mean|pass\s+rate)\s+)?"
    r"(?P<possibly>possibly\s+)?worse(?:\s+by\s+more\s+than\s+(?P<limit>0?\.\d+|[01](?:\.0*)?))?"
)
GRAMMAR: Final = "[METRIC] [mean] [possibly] worse [by more than X], such as 'worse by more than 0.02'"


FAILED: Final = "failed"


class GateVerdict(NamedTuple):
    """What became of a rule with one metric."""

    outcome: str
    """``failed``, ``passed`` or, if it does not fail, ``cannot tell``."""
    said: str

    @property
    def fails(self) -> bool:
        """Whether the rule fails."""
        return self.outcome == FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Fails if B is worse than A by more than a limit.

    Without *possibly* it fails if the 95 % interval shows that: its nearer end is beyond the limit. With
    *possibly* it fails unless the interval rules it out. In between nobody can tell, and it says so.
    """

    rule: str
    metric: str | None
    """``None`` for every metric."""
    is_mean: bool
    """Whether it is about the mean score; else about the pass rate."""
    is_strict: bool
    """Whether it is *possibly* worse that fails."""
    limit: float

    @classmethod
    def of(cls, rule: str) -> Gate:
        """Read a rule.

        Raises:
            ValueError: it is none.
        """
        found = _RULE.fullmatch(rule.strip())
        if found is None:
            raise ValueError(f"{rule!r} is no rule: write {GRAMMAR}")
        return cls(
            rule=rule,
            metric=found["metric"],
            is_mean=found["what"] == "mean",
            is_strict=bool(found["possibly"]),
            limit=float(found["limit"] or 0),
        )

    def check(self, comparison: VersionComparison) -> Iterator[GateVerdict]:
        """Yield the verdict on each metric of the rule. What is not there fails: nobody looked at it."""
        metrics = [each for each in comparison.metrics if self.metric in (None, each.metric)]
        if not metrics:
            yield GateVerdict(
                FAILED, f"{self.metric or 'a metric'} is not in both A and B: nothing shows {_FINE}"
            )
        yield from map(self._check, metrics)

    def _check(self, metric: MetricComparison) -> GateVerdict:
        name = f"{metric.metric}, {'mean score' if self.is_mean else 'pass rate'}"
        found = metric.mean if self.is_mean else metric.passing
        if found is None:
            return GateVerdict(FAILED, f"{name}: there is no score to compare: nothing shows {_FINE}")
        is_lower_better = metric.lower_is_better and self.is_mean
        least, most = (found.low, found.high) if is_lower_better else (-found.high, -found.low)
        by_more = f"worse by more than {self.limit:g}" if self.limit else "worse"
        if least > self.limit:
            return GateVerdict(
                FAILED, f"{name}: B is {by_more}: by {least:.3f} to {most:.3f} (95 % interval)"
            )
        if most <= self.limit:
            return GateVerdict("passed", f"{name}: B is not {by_more}: at most by {max(0.0, most):.3f}")
        said = f"{name}: the interval is too wide to tell if B is {by_more}: B - A is between"
        said += f" {found.low:+.3f} and {found.high:+.3f}"
        if self.limit:
            shorter = (found.high - found.low) / 2 / self.limit
            needed = ceil(min(found.records) * (shorter**2 if found.change else shorter))
            if shorter > 1:
                said += f"; if they are alike, about {needed:,} answers of each would tell"
        return GateVerdict(FAILED if self.is_strict else "cannot tell", said)


_FINE: Final = "that B is no worse"
