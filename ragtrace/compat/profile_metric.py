"""ragtrace's verdicts scored by another tool's rule.

For the tool's own prompts and calls, see `tool_metric`. The mapping of verdicts:

- A claim maps to a claim, a sentence of the reference to a statement of it, an unjudged one to a missing
  verdict. A chunk is relevant (grade 2) or not; if the tool judges the statements of a chunk, it has one.
- DeepEval's hallucination asks whether the answer contradicts each chunk: it does if a contradicted claim
  cites the chunk.
- RAGAS' two judges rate everything at once, 0 to 2. Both rate the context by its best chunk, and an answer 2
  if every sentence is supported, 0 if none is, else 1.

If ragtrace has nothing to judge, the tool may still report a number: DeepEval scores an answer without claims
1. Then this metric reports that number, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragtrace.errors import ConfigError
from ragtrace.metrics import metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    ChunkVerdict,
    Compat,
    CompatStatus,
    Direction,
    Label,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Metric
from ragtrace.scoring import Judged, canonical, score, scored_metrics

_STATES_NOTHING = (SkipReason.NO_CLAIMS, SkipReason.REFUSAL)
_MISSING = (
    SkipReason.NO_CONTENT,
    SkipReason.NO_RETRIEVAL,
    SkipReason.EMPTY_RETRIEVAL,
    SkipReason.NO_REFERENCE,
)
_OF_CHUNKS = ("context_precision", "chunk_precision", "context_relevance")
_OF_CLAIMS = ("faithfulness", "groundedness", "hallucination")
_COSINES = ("ragas", "ragas-legacy", "promptfoo")
"""Profiles whose answer relevance compares questions."""


class ProfileMetric:
    """Measures like ragtrace, and scores like another tool."""

    def __init__(
        self,
        *,
        metric: str,
        profile: str,
        threshold: float | None = None,
        strict_mode: bool = False,
        penalize_ambiguous_claims: bool = False,
        **own: Any,
    ) -> None:
        self.name = canonical(metric)
        self.profile = profile
        self._strict_mode = strict_mode
        self._penalize = penalize_ambiguous_claims
        # only its verdicts are used, so every score may pass
        rule = "score >= 0 and coverage >= 0" if self.name in _OF_CLAIMS else "score >= 0"
        if self.name in _OF_CLAIMS:  # no other tool asks for quotes
            own = {"require_evidence": False, **own}
        self._own: Metric = metric_named(_own_metric(self.name, profile), pass_when=rule, **own)
        self._by_answer = self._without_reference(own)
        self.needs = self._own.needs
        self.uses = self._own.uses
        self.prompts = self._own.prompts
        self.pass_when = None
        lower = self.name == "hallucination" and profile == "deepeval-3"
        self.direction = Direction.LOWER_IS_BETTER if lower else Direction.HIGHER_IS_BETTER
        perfect = 0.0 if lower else 1.0
        self.threshold = threshold if threshold is not None else perfect if strict_mode else 0.5

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        chosen = "-strict" * self._strict_mode + "-penalize" * self._penalize
        chosen += "-half" * (self.name in _OF_CLAIMS)
        rules = "2" if self._by_answer else "1"
        return f"{self._own.version}-{self.profile}-{rules}{chosen}"

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricOutcome:
        """Score the record, or skip it with a reason."""
        has_reference = bool((record.reference or "").strip())
        own = self._own if has_reference or not self._by_answer else self._by_answer
        found = await own.measure(record, steps)
        compat = await self._compat(record, found, steps) if isinstance(found, MetricResult) else None
        mine = replace(
            found,
            metric=self.name,
            profile=self.profile,
            evaluator_version=steps.version_of(self),
            compat=compat,
        )
        if not (isinstance(mine, MetricResult) and compat):
            return mine
        if record.target is None and compat.status is CompatStatus.ERROR and mine.skip_reason in _MISSING:
            return self._scored(replace(mine, explanation=self._refusal(mine)), compat)
        return self._scored(mine, compat)

    def _without_reference(self, own: Mapping[str, Any]) -> Metric | None:
        """Return what RAGAS has for context precision without a reference: its context utilization."""
        if self.name != "context_precision" or self.profile not in ("ragas", "ragas-legacy"):
            return None
        return metric_named("context_precision", pass_when="score >= 0", against="answer", **own)

    def _refusal(self, result: MetricResult) -> str:
        return f"{result.explanation}: {self.profile} refuses such a test case (missing_params)"

    def _scored(self, result: MetricResult, compat: Compat) -> MetricResult:
        named = replace(
            result,
            threshold=self.threshold,
            direction=self.direction,
            pass_when=None,
            passed=None,
            details={},
            diagnosis=None,
        )
        if compat.status is CompatStatus.OK and compat.score is not None:
            if not 0 <= compat.score <= 1:
                return replace(named, score=None, skip_reason=SkipReason.OUT_OF_RANGE)
            scored = replace(named, score=compat.score, skip_reason=None)
            return _undecided(scored) if scored.label is Label.PASS and _is_mostly_open(scored) else scored
        return replace(named, score=None, skip_reason=result.skip_reason or SkipReason.TOOL_NAN)

    async def _compat(self, record: RagRecord, found: MetricResult, steps: StepSession) -> Compat:
        if self.name == "answer_relevance" and self.profile in _COSINES:
            return self._of_questions(found)
        found_none = not record.chunks and record.gap(Part.CONTEXT) is None  # an empty list, not none
        no_chunks = found_none and self.name in _OF_CHUNKS
        if found.skip_reason in _STATES_NOTHING or no_chunks:
            return self._score([], n_contexts=len(record.chunks))
        if found.skip_reason is SkipReason.ALL_UNJUDGED:
            return Compat(status=CompatStatus.NAN)
        if found.skip_reason:
            return Compat(status=CompatStatus.ERROR)
        return self._score(self._given(record, found))

    def _score(self, verdicts: Sequence[Judged], *, n_contexts: int | None = None) -> Compat:
        return score(
            self.name,
            self.profile,
            verdicts,
            n_contexts=n_contexts,
            strict_mode=self._strict_mode,
            penalize_ambiguous_claims=self._penalize,
        ).compat

    def _of_questions(self, found: MetricResult) -> Compat:
        if found.skip_reason is SkipReason.REFUSAL:
            return self._score([{"noncommittal": True, "cosine": 0.0}])
        if "cosine" in found.details:
            return self._score([found.details["cosine"]])
        asked = found.skip_reason is SkipReason.ALL_UNJUDGED
        return self._score([]) if asked else Compat(status=CompatStatus.ERROR)

    def _given(self, record: RagRecord, found: MetricResult) -> Sequence[Judged]:
        ragas = self.profile in ("ragas", "ragas-legacy")
        if self.name == "hallucination":
            return _agreement(record, found.verdicts)
        if self.name == "groundedness":
            return [_rating_of_answer(found.verdicts)] * 2
        if self.name == "context_relevance" and ragas:
            return [_rating_of_context(found.chunk_verdicts)] * 2
        return found.chunk_verdicts if self.name in _OF_CHUNKS else found.verdicts


def _is_mostly_open(result: MetricResult) -> bool:
    return result.counts.judged * 2 < result.counts.total


def _undecided(result: MetricResult) -> MetricResult:
    """Take the label off: it would promise what was not found. The tool's number stays in `compat`."""
    why = f"{result.explanation}; a pass needs half of the claims decided"
    return replace(result, score=None, skip_reason=SkipReason.UNDECIDED, explanation=why)


def _own_metric(name: str, profile: str) -> str:
    """Return the built-in metric whose verdicts the rule needs.

    Raises:
        ConfigError: no rule uses ragtrace's verdicts.
    """
    there = [
        metric for metric in scored_metrics(profile) if (metric, profile) != ("answer_relevance", "rag_evals")
    ]
    if name not in there:
        raise ConfigError(
            f"{profile} has no rule for verdicts on {name!r}: choose from {', '.join(there)};"
            " --peer-prompts (the tool's own prompts) may offer more"
        )
    return "question_similarity" if name == "answer_relevance" and profile in _COSINES else name


def _agreement(record: RagRecord, verdicts: Sequence[Verdict]) -> Sequence[Judged]:
    contradicted = {
        chunk_id
        for verdict in verdicts
        if verdict.label is VerdictLabel.CONTRADICTED
        for chunk_id in verdict.chunk_ids
    }
    return [chunk.id not in contradicted for chunk in record.chunks]


def _rating_of_answer(verdicts: Sequence[Verdict]) -> int | None:
    judged = [verdict.label for verdict in verdicts if verdict.label is not VerdictLabel.UNJUDGED]
    supported = judged.count(VerdictLabel.SUPPORTED)
    if not judged:
        return None
    return 2 if supported == len(judged) else min(1, supported)


def _rating_of_context(verdicts: Sequence[ChunkVerdict]) -> int | None:
    grades = {VerdictLabel.RELEVANT: 2, VerdictLabel.PARTLY_RELEVANT: 1, VerdictLabel.IRRELEVANT: 0}
    return max((grades[verdict.label] for verdict in verdicts if verdict.label in grades), default=None)
