"""Noise sensitivity: the share of the answer's claims that are wrong and come from irrelevant chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ragtrace.metrics.asking import both
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings
from ragtrace.metrics.faithfulness import nothing_stated
from ragtrace.metrics.session import StepSession
from ragtrace.model import OF_REFERENCE, Direction, Part, RagRecord, SkipReason, Verdict, VerdictLabel

_WRONG = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
_RIGHT, _NOISE, _SIGNAL, _INVENTED, _OPEN = "right", "noise", "signal", "invented", "open"


class NoiseSensitivity(BuiltInMetric):
    """Measures the share of an answer's claims that are wrong because the model believed an irrelevant chunk.

    score = W / (n - U): of n claims, W are not in the reference answer, and the chunks that support them are
    all irrelevant (grade below 2); U are undecided: one of the verdicts or grades that it takes is missing.
    Lower is better.

    Details: ``relevant``: the share of wrong claims that a relevant chunk supports, ``invented``: the share
    that no chunk supports, ``coverage`` = (n - U) / n.

    Source: RAGAS' noise sensitivity (after RAGChecker, Ru et al. 2024) in its mode *irrelevant*; its mode
    *relevant* is ``relevant``. There a chunk is relevant if it supports a claim of the reference.
    """

    name = "noise_sensitivity"
    direction = Direction.LOWER_IS_BETTER
    needs = (Part.QUESTION, Part.CONTEXT, Part.ANSWER, Part.REFERENCE)
    uses = ("extract", "verify", "chunks")

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Find the wrong claims, and the grades of the chunks that they come from."""
        extraction = await steps.extract()
        if not extraction.claims:
            return nothing_stated(extraction)
        by_chunks = both(steps.verify(), steps.chunks())
        by_reference, (verification, grading) = await both(steps.verify_by_reference(), by_chunks)
        grades = {verdict.chunk_id: verdict.label for verdict in grading.verdicts}
        pairs = list(zip(by_reference, verification.verdicts, strict=True))
        causes = [_cause(right, source, grades) for right, source in pairs]
        counts, total = Counter(causes), len(causes)
        decided = total - counts[_OPEN]
        verdicts = tuple(
            _shown(right, source)
            for (right, source), cause in zip(pairs, causes, strict=True)
            if cause == _NOISE
        )
        said = f"{counts[_NOISE]} of {total} claim{'s' if total > 1 else ''} wrong by an irrelevant chunk"
        if counts[_OPEN]:
            said += f", {counts[_OPEN]} undecided"
        if not decided:
            return MetricFinding(skip_reason=SkipReason.ALL_UNJUDGED, explanation=said)
        return MetricFinding(
            score=counts[_NOISE] / decided,
            explanation=said,
            verdicts=verdicts,
            details=readings(
                relevant=counts[_SIGNAL] / decided,
                invented=counts[_INVENTED] / decided,
                coverage=decided / total,
            ),
        )


def _cause(right: Verdict, source: Verdict, grades: dict[str, VerdictLabel]) -> str:
    if right.label is VerdictLabel.SUPPORTED:
        return _RIGHT
    if right.label is VerdictLabel.UNJUDGED or source.label is VerdictLabel.UNJUDGED:
        return _OPEN
    if source.label in _WRONG:
        return _INVENTED
    found = {grades.get(chunk_id, VerdictLabel.UNJUDGED) for chunk_id in source.chunk_ids}
    if VerdictLabel.RELEVANT in found:
        return _SIGNAL
    return _OPEN if not found or VerdictLabel.UNJUDGED in found else _NOISE


def _shown(right: Verdict, source: Verdict) -> Verdict:
    """Return the reference's verdict with the chunk that the claim comes from."""
    return replace(
        right,
        claim=replace(right.claim, kind=OF_REFERENCE),
        reason="by the reference it is wrong; it comes from a chunk that does not answer the question",
        chunk_ids=source.chunk_ids,
        quote=source.quote,
        quote_verified=source.quote_verified,
    )
