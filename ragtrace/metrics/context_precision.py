"""Context precision: are the relevant chunks ranked first?"""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.errors import ConfigError
from ragtrace.metrics.base import BuiltInMetric, MetricFinding
from ragtrace.metrics.chunk_precision import graded_chunks, useful
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PromptSource
from ragtrace.model import Part, RagRecord
from ragtrace.scoring import average_precision, relevant_share

_REFERENCE, _ANSWER = _AGAINST = ("reference", "answer")


class ContextPrecision(BuiltInMetric):
    """Measures whether the relevant chunks rank before the others: average precision over the ranks.

    score = (sum of P@k over the ranks k of relevant chunks) / (number of relevant chunks), where P@k is the
    share of relevant chunks among the first k; 0 if chunks were judged and none is relevant. Relevant
    means grade 2 of 0, 1, 2. Unjudged chunks are left out of the ranking and reported. If the record has a
    reference answer, the judge sees it and grades what the reference needs (``with_reference`` = 1).

    With ``against="answer"``, the judge grades by what the answer states in place of a reference: whether the
    chunks were useful for it.

    Details: ``precision``: the plain share of relevant chunks, ``coverage``: share of chunks that were
    judged, ``grades_rejected``, ``with_reference``.

    Source: average precision as in TREC; RAGAS' and DeepEval's context precision, without the 1e-10; by the
    answer as RAGAS' context utilization.
    """

    name = "context_precision"
    needs: tuple[Part, ...] = (Part.QUESTION, Part.CONTEXT)
    uses = ("chunks",)

    def __init__(
        self,
        *,
        threshold: float | None = None,
        pass_when: str | None = None,
        judge_truncated: bool = False,
        prompts: Mapping[str, PromptSource] | None = None,
        against: str = _REFERENCE,
    ) -> None:
        """``against`` says what chunks are graded by: the ``reference``, if there is one, or the ``answer``.

        Raises:
            ConfigError: an option has another value.
        """
        super().__init__(
            threshold=threshold, pass_when=pass_when, judge_truncated=judge_truncated, prompts=prompts
        )
        if against not in _AGAINST:
            raise ConfigError(f"{self.name}: `against` is {' or '.join(_AGAINST)}, not {against!r}")
        self.against = against
        if against == _ANSWER:
            self.needs = (*type(self).needs, Part.ANSWER)

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        return super().version if self.against == _REFERENCE else f"{super().version}-{self.against}"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Rank the relevant chunks."""
        found = await graded_chunks(steps, by_answer=self.against == _ANSWER)
        if isinstance(found, MetricFinding):
            return found
        return found.finding(
            average_precision(useful(found.grading.verdicts)), precision=relevant_share(found.counts)
        )

    def score_of(self, finding: MetricFinding) -> float | None:
        """Compute the score from the grades."""
        return average_precision(useful(finding.chunk_verdicts))
