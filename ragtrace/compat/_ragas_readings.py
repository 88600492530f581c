"""Computes RAGAS' results from its judge's replies, by the rules in `ragtrace.scoring`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from ragtrace.compat._ragas_replies import Classification, JudgedStatement, MadeQuestionReply, Usefulness
from ragtrace.compat.tool import ToolRun
from ragtrace.errors import JudgeNonsense
from ragtrace.metrics.steps.questions import cosine
from ragtrace.model import ChunkVerdict, Claim, Intermediate, RagRecord, Verdict, VerdictLabel
from ragtrace.scoring import score


def claims_run(profile: str, stated: Sequence[str], judged: Sequence[JudgedStatement]) -> ToolRun:
    """Score faithfulness."""
    numbers = [item.verdict for item in judged]
    found = score("faithfulness", profile, numbers)
    summary = f"{sum(map(bool, numbers))} of {len(numbers)} verdicts support a statement"
    explanation = summary if stated else "the answer states nothing"
    return ToolRun.of(found, explanation, verdicts=_claims(stated, judged))


def questions_run(
    profile: str,
    asked: str,
    made: Sequence[MadeQuestionReply],
    vectors: Mapping[str, Sequence[float]],
) -> ToolRun:
    """Score answer relevance by the questions generated from the answer."""
    found = score(
        "answer_relevance",
        profile,
        [{"question": reply.question, "noncommittal": reply.noncommittal} for reply in made],
        question=asked,
        embeddings=vectors,
    )
    if not made:
        return ToolRun.of(found, "no question was made from the answer")
    evading = sum(bool(reply.noncommittal) for reply in made)
    return ToolRun.of(
        found,
        f"{len(made)} questions made from the answer, {evading} of them noncommittal",
        intermediate=Intermediate(
            questions=tuple(reply.question for reply in made),
            similarities=tuple(_similarity(vectors[asked], vectors[reply.question]) for reply in made),
        ),
    )


def nodes_run(profile: str, record: RagRecord, judged: Sequence[Usefulness]) -> ToolRun:
    """Score context precision."""
    found = score("context_precision", profile, [reply.verdict for reply in judged])
    useful = sum(bool(reply.verdict) for reply in judged)
    verdicts = tuple(
        ChunkVerdict(
            chunk_id=chunk.id,
            rank=chunk.rank,
            label=VerdictLabel.RELEVANT if reply.verdict else VerdictLabel.IRRELEVANT,
            reason=reply.reason or None,
        )
        for chunk, reply in zip(record.chunks, judged, strict=True)
    )
    return ToolRun.of(found, f"{useful} of {len(judged)} chunks were of use", chunk_verdicts=verdicts)


def recall_run(profile: str, judged: Sequence[Classification]) -> ToolRun:
    """Score context recall."""
    found = score("context_recall", profile, [item.attributed for item in judged])
    attributed = sum(bool(item.attributed) for item in judged)
    verdicts = tuple(
        _verdict(index, item.statement, attributed=item.attributed, reason=item.reason)
        for index, item in enumerate(judged)
    )
    summary = f"{attributed} of {len(judged)} statements of the reference are in the context"
    return ToolRun.of(found, summary, verdicts=verdicts)


def ratings_run(profile: str, metric: str, ratings: Sequence[int | None]) -> ToolRun:
    """Score by the ratings of two judges."""
    said = " and ".join("none" if rating is None else str(rating) for rating in ratings)
    return ToolRun.of(score(metric, profile, ratings), f"the two judges' ratings, of 2 at most: {said}")


def _similarity(one: Sequence[float], other: Sequence[float]) -> float | None:
    try:
        return cosine(one, other)
    except JudgeNonsense:  # RAGAS computes NaN here
        return None


def _claims(stated: Sequence[str], judged: Sequence[JudgedStatement]) -> tuple[Verdict, ...]:
    """Pair statements with verdicts by position; surplus verdicts bring their own statement."""
    return tuple(
        Verdict(claim=Claim(index=index, text=text or ""), label=VerdictLabel.UNJUDGED)
        if item is None
        else _verdict(index, text or item.statement, attributed=item.verdict, reason=item.reason)
        for index, (text, item) in enumerate(zip_longest(stated, judged))
    )


def _verdict(index: int, text: str, *, attributed: int, reason: str) -> Verdict:
    # a no does not distinguish contradicted from unsupported
    label = VerdictLabel.SUPPORTED if attributed else VerdictLabel.UNSUPPORTED
    return Verdict(claim=Claim(index=index, text=text), label=label, reason=reason or None)
