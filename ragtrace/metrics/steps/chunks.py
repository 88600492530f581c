"""Step C: ask for the relevance of each retrieved chunk, or of each of their sentences, to the question."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ragtrace.judge_forms import ChunkRelevance, ChunksInput, ChunksReply, GivenGrade, NumberedText
from ragtrace.judge_steps import Grading, SentenceGrading
from ragtrace.metrics._evidence import pack_chunks
from ragtrace.metrics.asking import ItemReplies, ask_items, batches, output_tokens, together
from ragtrace.metrics.fence import Section, fenced
from ragtrace.metrics.steps.step import Material, Step, chunk_sections, one_a_number
from ragtrace.model import Chunk, ChunkVerdict, SentenceGrade, VerdictLabel
from ragtrace.sentences import Sentence, split_sentences

_LABELS: Mapping[ChunkRelevance, VerdictLabel] = {
    2: VerdictLabel.RELEVANT,
    1: VerdictLabel.PARTLY_RELEVANT,
    0: VerdictLabel.IRRELEVANT,
}
_BEST: ChunkRelevance = 2


async def grade_chunks(material: Material) -> Grading:
    """Ask for a grade on each chunk. The fence code seeds the order of the chunks.

    A chunk that is too long for one call is graded in pieces, and gets the best grade of its pieces.
    """
    chunks, limits = material.record.chunks, material.limits
    reference = (material.record.reference or "").strip() or None
    packs = _packs(chunks, material.fence_code, limits.context_chars)
    calls = [batch for pack in packs[: limits.max_packs] for batch in batches(pack, limits.chunks_per_call)]
    ask, cut_off = partial(_ask, material, reference), ItemReplies[GivenGrade].cut_off
    answers = await together(ask_items(call, ask, cut_off) for call in calls)
    pieces = Counter(piece.number for pack in packs for piece in pack)
    ranked = sorted(enumerate(chunks, start=1), key=lambda numbered: numbered[1].rank)
    return Grading(
        verdicts=tuple(
            _verdict(
                chunk.id,
                rank,
                _grade(number, pieces[number], answers),
                omitted=any(number in answer.omitted for answer in answers),
            )
            for rank, (number, chunk) in enumerate(ranked)
        ),
        rejected=sum(answer.rejected for answer in answers),
        with_reference=reference is not None,
    )


async def _ask(
    material: Material,
    reference: str | None,
    chunks: Sequence[NumberedText],
    answered: Sequence[NumberedText],
    again: bool,
) -> ItemReplies[GivenGrade]:
    question = material.record.question or ""
    given = ChunksInput(question=question, reference=reference, chunks=tuple(chunks))
    reply = await material.judge.ask(CHUNKS.request(given, material, again=again))
    grades = ((grade.id, grade) for grade in reply.value.chunks)
    return ItemReplies.check(grades, asked=chunks, abstained=reply.abstained, notes=reply.notes)


def _render(given: ChunksInput, code: str) -> str:
    """Put the common part of all calls first."""
    reference: list[Section] = [("reference", [given.reference])] if given.reference else []
    return fenced(code, [("question", [given.question]), *reference, *chunk_sections(given.chunks)])


CHUNKS: Final = Step(
    name="chunks",
    prompts=("chunks", "retrieval"),
    reply=ChunksReply,
    render=_render,
    output_tokens=lambda given: output_tokens([""] * len(given.chunks)),
    items="chunks",
    run=grade_chunks,
)


def _packs(chunks: Sequence[Chunk], seed: str, pack_chars: int) -> list[list[NumberedText]]:
    # numbered as for the other steps, and shuffled: judges prefer what they read first
    numbered = (NumberedText(number=n, text=chunk.text or "") for n, chunk in enumerate(chunks, start=1))
    shown = [chunk for chunk in numbered if chunk.text.strip()]
    random.Random(seed).shuffle(shown)
    return [one_a_number(pack) for pack in pack_chunks(shown, pack_chars)]


def _grade(number: int, pieces: int, answers: Sequence[ItemReplies[GivenGrade]]) -> GivenGrade | str:
    """Return the best grade among the pieces of a chunk, or why there is none."""
    grades = [answer.found[number] for answer in answers if number in answer.found]
    best = max(grades, key=lambda grade: grade.relevance, default=None)
    if best and (best.relevance == _BEST or len(grades) == pieces):
        return best
    if not pieces:
        return "the chunk has no text"
    given_up = (answer.given_up[number] for answer in answers if number in answer.given_up)
    return next(given_up, "the context is too long to show all of the chunk")


def _verdict(chunk_id: str, rank: int, grade: GivenGrade | str, *, omitted: bool) -> ChunkVerdict:
    if isinstance(grade, str):
        return ChunkVerdict(
            chunk_id=chunk_id, rank=rank, label=VerdictLabel.UNJUDGED, reason=grade, omitted=omitted
        )
    label, reason = _LABELS[grade.relevance], grade.reason.strip() or None
    return ChunkVerdict(chunk_id=chunk_id, rank=rank, label=label, reason=reason)


_BEST_FIRST = (VerdictLabel.RELEVANT, VerdictLabel.PARTLY_RELEVANT, VerdictLabel.IRRELEVANT)


async def grade_sentences(material: Material) -> SentenceGrading:
    """Ask for a grade on each sentence, with the prompt for chunks.

    Sentences beyond ``max_sentences`` are not judged, and count as unjudged.
    """
    chunks = sorted(material.record.chunks, key=lambda chunk: chunk.rank)
    found = [(chunk, sentence) for chunk in chunks for sentence in split_sentences(chunk.text or "")]
    asked = found[: material.limits.max_sentences]
    items = tuple(
        Chunk(id=str(rank), text=sentence.text, rank=rank) for rank, (_, sentence) in enumerate(asked)
    )
    grading = await grade_chunks(replace(material, record=replace(material.record, chunks=items)))
    grades = tuple(
        _sentence_grade(chunk, sentence, verdict)
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


def _sentence_grade(chunk: Chunk, sentence: Sentence, verdict: ChunkVerdict) -> SentenceGrade:
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
