"""Step C on sentences: ask for the relevance of each sentence of the chunks to the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragtrace.judge_steps import SentenceGrading
from ragtrace.metrics.steps.chunks import grade_chunks
from ragtrace.metrics.steps.step import Material
from ragtrace.model import Chunk, ChunkVerdict, SentenceGrade, VerdictLabel
from ragtrace.sentences import Sentence, split_sentences

_BEST_FIRST = (VerdictLabel.RELEVANT, VerdictLabel.PARTLY_RELEVANT, VerdictLabel.IRRELEVANT)


async def grade_sentences(material: Material) -> SentenceGrading:
    """Ask for a grade on each sentence, with the prompt for chunks.

    Sentences beyond ``max_sentences`` are not judged, and count as unjudged.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    chunks = sorted(material.record.chunks, key=lambda chunk: chunk.rank)
    found = [(chunk, sentence) for chunk in chunks for sentence in split_sentences(chunk.text or "")]
    asked = found[: material.limits.max_sentences]
    items = tuple(
        Chunk(id=str(rank), text=sentence.text, rank=rank) for rank, (_, sentence) in enumerate(asked)
    )
    grading = await grade_chunks(replace(material, record=replace(material.record, chunks=items)))
    grades = tuple(
        _grade(chunk, sentence, verdict)
        for (chunk, sentence), verdict in zip(asked, grading.verdicts, strict=True)
    )
    total = {chunk.id: 0 for chunk in chunks}
    for chunk, _ in found:
        total[chunk.id] += 1
    return SentenceGrading(
        grades=grades,
        total=len(found),
        chunks=tuple(_of_chunk(chunk, rank, grades, total[chunk.id]) for rank, chunk in enumerate(chunks)),
        rejected=grading.rejected,
        with_reference=grading.with_reference,
    )


def _grade(chunk: Chunk, sentence: Sentence, verdict: ChunkVerdict) -> SentenceGrade:
    return SentenceGrade(
        chunk_id=chunk.id,
        start=sentence.start,
        end=sentence.end,
        label=verdict.label,
        omitted=verdict.omitted,
    )


def _of_chunk(chunk: Chunk, rank: int, grades: Sequence[SentenceGrade], total: int) -> ChunkVerdict:
    """Return the best grade of a chunk's sentences, unless a sentence that is not judged could be better."""
    own = [grade for grade in grades if grade.chunk_id == chunk.id]
    labels = {grade.label for grade in own}
    best = next((label for label in _BEST_FIRST if label in labels), None)
    is_whole = len(own) == total and VerdictLabel.UNJUDGED not in labels
    if best is VerdictLabel.RELEVANT or (best and is_whole):
        return ChunkVerdict(chunk_id=chunk.id, rank=rank, label=best)
    return ChunkVerdict(
        chunk_id=chunk.id,
        rank=rank,
        label=VerdictLabel.UNJUDGED,
        reason="a sentence of the chunk is not judged" if total else "the chunk has no sentence",
    )
