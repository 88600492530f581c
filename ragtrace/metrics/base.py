"""The base of built-in metrics: needs, skip reasons, pass rules and the fields of their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypedDict

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import StepName
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource, read_prompts
from ragtrace.metrics.steps import prompts_of
from ragtrace.model import (
    ChunkVerdict,
    Diagnosis,
    Direction,
    Gap,
    Intermediate,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictLabel,
)
from ragtrace.scoring.formulas import SCORE, PassRule, Readings


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFinding:
    """A metric's finding about a record: a score, or the reason why there is none."""

    score: float | None = None
    skip_reason: SkipReason | None = None
    explanation: str = ""
    verdicts: tuple[Verdict, ...] = ()
    chunk_verdicts: tuple[ChunkVerdict, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    intermediate: Intermediate | None = None
    diagnosis: Diagnosis | None = None
    parts: Mapping[str, MetricFinding] = field(default_factory=dict)
    """What the metrics found that this one combines, by their names."""

    @property
    def omitted(self) -> int:
        """How many verdicts the judge left out."""
        if self.parts:
            return sum(part.omitted for part in self.parts.values())
        return sum(v.omitted for v in self.verdicts) + sum(v.omitted for v in self.chunk_verdicts)


def unjudged(explanation: str, verdicts: tuple[Verdict, ...] = ()) -> MetricFinding:
    """Return the finding of a metric whose judge decided nothing."""
    return MetricFinding(skip_reason=SkipReason.ALL_UNJUDGED, explanation=explanation, verdicts=verdicts)


class MetricOptions(TypedDict, total=False):
    """The options of every built-in metric."""

    threshold: float | None
    pass_when: str | None
    judge_truncated: bool
    prompts: Mapping[str, PromptSource] | None


class BuiltInMetric(ABC):
    """A built-in metric. Stateless: one instance handles many records concurrently."""

    name: str
    profile = "ragtrace"
    direction = Direction.HIGHER_IS_BETTER
    needs: tuple[Part, ...] = ()
    """The required parts of a record; without one of them, the record is skipped."""
    uses: tuple[StepName, ...] = ()
    """The judge steps it uses."""
    rules = "1"
    """Changes whenever the same verdicts could give another score."""
    passes: str | None = None
    """The default pass rule; ``None`` is a score from 0.5 on (or up to 0.5)."""
    readings: tuple[str, ...] = (SCORE,)
    """The names that a pass rule may use: the keys of `read`."""
    good, wrong = VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED
    """The best and the worst of the labels in ``verdicts``."""

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
    ) -> None:
        self._rule = self._chosen_rule(threshold, pass_when)
        self.judge_truncated = judge_truncated
        """Judge records with truncated texts instead of skipping them."""
        self.prompts = read_prompts(prompts or {}, known=prompts_of(*self.uses))
        """The user's prompts, by the name of the prompt they replace."""

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return f"{self.rules}-truncated" if self.judge_truncated else self.rules

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricResult:
        """Score the record, or skip it with a reason."""
        if gap := self._gap(record):
            finding, passed = MetricFinding(skip_reason=gap.reason, explanation=gap.detail), None
        else:
            finding, passed = self._ruled(await self.find(record, steps.using(self.prompts)))
        found = {each.name: getattr(finding, each.name) for each in fields(finding) if each.name != "parts"}
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=steps.version_of(self),
            prompt_sha256=steps.prompt_sha256_of(self),
            usage=steps.spent_here,
            pass_when=None if self.threshold is not None else self.pass_when,
            passed=passed,
            **found,
        )

    @property
    def threshold(self) -> float | None:
        """The score where ``pass`` begins; ``None`` if `pass_when` uses more than the score."""
        return self._rule.threshold

    @property
    def pass_when(self) -> str:
        """The pass rule, for example ``score >= 0.5``."""
        return str(self._rule)

    def read(self, finding: MetricFinding) -> Readings:
        """Return the readings that a pass rule may use, from the verdicts."""
        return {SCORE: self.score_of(finding)}

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the verdicts, if it depends on nothing else."""
        return finding.score

    @abstractmethod
    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Judge a record that has all required parts."""

    def _chosen_rule(self, threshold: float | None, pass_when: str | None) -> PassRule:
        if pass_when is not None and threshold is not None:
            raise ConfigError(
                f"{self.name} has both `threshold` and `pass_when`: leave out one, or write"
                f" `{PassRule.at(threshold, self.direction)}` into the rule"
            )
        if threshold is not None:
            return PassRule.at(threshold, self.direction)
        if pass_when is None and self.passes is None:
            return PassRule.at(_HALF, self.direction)
        return PassRule.parse(pass_when or self.passes or "", known=self.readings)

    def _ruled(self, finding: MetricFinding) -> tuple[MetricFinding, bool | None]:
        """Decide whether a score passes; if the available verdicts cannot decide it, remove the score."""
        if finding.score is None:
            return finding, None
        given = self.read(finding)
        passed = self._rule.decide(
            given,
            worst=self.read(self.filled(finding, self.wrong, VerdictLabel.IRRELEVANT)),
            best=self.read(self.filled(finding, self.good, VerdictLabel.RELEVANT)),
        )
        if passed is None:
            explanation = "; ".join([finding.explanation, *self._why_undecided(finding, given)])
            return replace(
                finding, score=None, skip_reason=SkipReason.UNDECIDED, explanation=explanation
            ), None
        return finding, passed

    def filled(self, finding: MetricFinding, claims: VerdictLabel, chunks: VerdictLabel) -> MetricFinding:
        """Fill in labels for verdicts that the judge left out."""
        return replace(
            finding,
            verdicts=tuple(replace(v, label=claims) if v.omitted else v for v in finding.verdicts),
            chunk_verdicts=tuple(
                replace(v, label=chunks) if v.omitted else v for v in finding.chunk_verdicts
            ),
        )

    def _why_undecided(self, finding: MetricFinding, given: Readings) -> Iterator[str]:
        if lost := finding.omitted:
            yield f"the judge left out {lost} verdict{'s' if lost > 1 else ''}"
        yield f"a pass needs {self._rule.complete(given)}"

    def _gap(self, record: RagRecord) -> Gap | None:
        gaps = [gap for gap in (*record.gaps, *_further_gaps(record)) if gap.part in self.needs]
        forgiven = {SkipReason.TRUNCATED} if self.judge_truncated else set()
        lacking = next((gap.part for gap in gaps if gap.reason not in forgiven), None)
        # a part that was truncated to nothing is still missing because of the truncation
        return next((gap for gap in gaps if gap.part is lacking), None)


_HALF = 0.5


def readings(**values: float | None) -> Mapping[str, float]:
    """Return the readings that have a value, as numbers."""
    return {name: float(value) for name, value in values.items() if value is not None}


INCIDENTAL: Final = "flawed only incidentally"
"""Of a claim whose flaw is not material."""


def tally(total: int, unit: str, good: str, found: Mapping[str, int]) -> str:
    """Describe what keeps a score from being perfect: ``1 of 4 claims contradicted, 2 unjudged``."""
    wrong = [(number, what) for what, number in found.items() if number]
    units = f"1 {unit}" if total == 1 else f"{total} {unit}s"
    if not wrong:
        return f"{units} {good}" if total == 1 else f"all {units} {good}"
    (number, what), *rest = wrong
    return ", ".join([f"{number} of {units} {what}", *(f"{number} {what}" for number, what in rest)])


def _further_gaps(record: RagRecord) -> Iterator[Gap]:
    """Find the gaps of a record that does not come from a trace, which has no recorded gaps."""
    if not (record.question or "").strip():
        yield Gap(part=Part.QUESTION, reason=SkipReason.NO_CONTENT, detail="the record has no question")
    if not (record.answer or "").strip():
        yield Gap(part=Part.ANSWER, reason=SkipReason.NO_CONTENT, detail="the record has no answer")
    if not (record.reference or "").strip():
        yield Gap(
            part=Part.REFERENCE, reason=SkipReason.NO_REFERENCE, detail="the record has no reference answer"
        )
    if not record.chunks:
        yield Gap(part=Part.CONTEXT, reason=SkipReason.NO_RETRIEVAL, detail="the record has no chunks")
    elif not any((chunk.text or "").strip() for chunk in record.chunks):
        yield Gap(part=Part.CONTEXT, reason=SkipReason.NO_CONTENT, detail="no chunk of the record has text")
    if any(chunk.truncated for chunk in record.chunks):
        yield Gap(part=Part.CONTEXT, reason=SkipReason.TRUNCATED, detail="a chunk was cut on its way")
