"""Hallucination: the share of the answer's claims that the retrieved chunks contradict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ragtrace.metrics.base import INCIDENTAL, MetricFinding, readings, tally
from ragtrace.metrics.faithfulness import ClaimMetric, explain_support, judged_claims
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import Direction, Part, RagRecord, SkipReason, Verdict, VerdictCounts
from ragtrace.scoring import contradicted_share, coverage, ungrounded_share

_BLIND = "this judge cannot tell a contradiction from what the context does not mention"


class Hallucination(ClaimMetric):
    """Measures the share of an answer's claims that its context contradicts: lower is better.

    score = C / (n - U), with S supported, C contradicted, N unsupported and U unjudged of n claims: 1 minus
    lenient faithfulness, from the same verdicts. Claims that the context does not mention only count in the
    details, and in faithfulness. A judge that cannot tell the two apart (the lexical one) gives no score.

    Passes if no claim is contradicted by more than an incidental word and at least half of them are decided.

    Details: ``unsupported_share`` = N / (n - U), ``ungrounded_share`` = (C + N) / (n - U), ``upper_bound`` =
    (C + U) / n: if every unjudged claim were contradicted, ``coverage`` = (n - U) / n.

    Source: RAGTruth (Niu et al. 2024) distinguishes evident conflict (the score) from baseless information
    (``unsupported_share``). DeepEval's metric of this name counts chunks, not claims.
    """

    name = "hallucination"
    direction = Direction.LOWER_IS_BETTER
    passes = "material_contradicted == 0 and coverage >= 0.5"
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        on_missing: str = "unjudged",
        require_evidence: bool | None = None,
        truths: bool = False,
        truths_limit: int | None = None,
        count_unsupported: bool = False,
    ) -> None:
        """With ``count_unsupported``, the score is ``ungrounded_share``, and both kinds of claims fail.

        Raises:
            ConfigError: an option has another value.
        """
        self.count_unsupported = count_unsupported
        if count_unsupported:
            self.passes = ClaimMetric.passes
        super().__init__(
            threshold=threshold,
            pass_when=pass_when,
            judge_truncated=judge_truncated,
            prompts=prompts,
            on_missing=on_missing,
            require_evidence=require_evidence,
            truths=truths,
            truths_limit=truths_limit,
        )

    def _readings_chosen(self) -> Iterator[str]:
        yield from super()._readings_chosen()
        if self.count_unsupported:
            yield "ungrounded"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Count the contradicted claims."""
        if not steps.judge.contradicts and not self.count_unsupported:
            return MetricFinding(skip_reason=SkipReason.ALL_UNJUDGED, explanation=_BLIND)
        found = await judged_claims(self, steps)
        if isinstance(found, MetricFinding):
            return found
        counts = found.counts
        return MetricFinding(
            score=self._share(counts),
            explanation=self._explain(found.verification.verdicts) + found.caution,
            verdicts=found.verification.verdicts,
            details=readings(
                unsupported_share=counts.unsupported / counts.judged,
                ungrounded_share=ungrounded_share(counts),
                upper_bound=(counts.contradicted + counts.unjudged) / counts.total,
                coverage=coverage(counts),
                **found.truth_counts,
            ),
            intermediate=found.intermediate,
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Count the contradicted claims, and by option the unsupported ones."""
        return self._share(VerdictCounts.of(finding.verdicts))

    def _share(self, counts: VerdictCounts) -> float | None:
        return ungrounded_share(counts) if self.count_unsupported else contradicted_share(counts)

    def _explain(self, verdicts: Sequence[Verdict]) -> str:
        if self.count_unsupported:
            return explain_support(verdicts)
        counts = VerdictCounts.of(verdicts)
        material = VerdictCounts.of(verdict for verdict in verdicts if not verdict.is_incidental).contradicted
        wrong = {
            "contradicted": material,
            INCIDENTAL: counts.contradicted - material,
            "unjudged": counts.unjudged,
        }
        return tally(counts.total, "claim", "free of contradiction", wrong)
