"""Question similarity: how similar the question is to questions that the answer would answer."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.steps.questions import cosine
from ragtrace.model import Intermediate, Part, RagRecord, SkipReason


class QuestionSimilarity(BuiltInMetric):
    """Measures how similar the question is to questions that a judge generates from the answer alone.

    score = mean over the questions q_i of cos(q, q_i), by the embedder's vectors. A cosine is in [-1, 1]; if
    the mean is below 0, there is no score (``out_of_range``). Refusals get no score either (``refusal``).

    Details: ``cosine``: the plain mean, ``questions``: how many were compared, ``min_cosine``.

    Source: RAGAS' answer relevancy (Es et al. 2023). RAGAS makes three calls at a temperature near 0,
    which give the same question three times, and scores noncommittal answers 0. Here one call asks for three
    wordings.
    """

    name = "question_similarity"
    needs = (Part.QUESTION, Part.ANSWER)
    uses = ("questions",)

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Compare the question with those generated from the answer."""
        steps.checked_embedder()  # fails before a judge call is wasted
        made = await steps.questions()
        if made.noncommittal:
            return MetricFinding(skip_reason=SkipReason.REFUSAL, explanation="the answer declines to answer")
        if not made.questions:
            return MetricFinding(
                skip_reason=SkipReason.ALL_UNJUDGED, explanation="the judge made no question from the answer"
            )
        asked, *others = await steps.embed((record.question or "", *made.questions))
        cosines = [cosine(asked, other) for other in others]
        compared = Intermediate(questions=made.questions, similarities=tuple(cosines))
        return replace(_finding(cosines), intermediate=compared)


def _finding(cosines: list[float]) -> MetricFinding:
    mean = fmean(cosines)
    details = readings(cosine=mean, questions=len(cosines), min_cosine=min(cosines))
    if mean < 0:
        explanation = f"the mean cosine is {mean:.3f}: below 0 it is no share"
        return MetricFinding(skip_reason=SkipReason.OUT_OF_RANGE, explanation=explanation, details=details)
    explanation = f"mean cosine of {len(cosines)} questions that the answer would answer: {mean:.3f}"
    return MetricFinding(score=mean, explanation=explanation, details=details)
