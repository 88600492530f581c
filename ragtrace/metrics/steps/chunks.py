"""Step C: ask for the relevance of each retrieved chunk to the question."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ragtrace.judge_forms import ChunkRelevance, ChunksInput, ChunksReply, GivenGrade, NumberedText
from ragtrace.judge_steps import Grading, Prompt
from ragtrace.metrics._evidence import pack_chunks
from ragtrace.metrics.ask_items import ItemReplies, ask_items
from ragtrace.metrics.judge_calls import batches, output_tokens, together
from ragtrace.metrics.prompt import render_chunks
from ragtrace.model import Chunk, ChunkVerdict, VerdictLabel
from ragtrace.ports import Judge, JudgeRequest

_LABELS: Mapping[ChunkRelevance, VerdictLabel] = {
    2: VerdictLabel.RELEVANT,
    1: VerdictLabel.PARTLY_RELEVANT,
    0: VerdictLabel.IRRELEVANT,
}
_BEST: ChunkRelevance = 2


async def grade_chunks(
    chunks: Sequence[Chunk],
    *,
    question: str,
    reference: str | None,
    judge: Judge,
    prompt: Prompt,
    fence_code: str,
    pack_chars: int,
    max_packs: int,
    chunks_per_call: int,
) -> Grading:
    """Ask for a grade on each chunk. The fence code seeds the order of the chunks.

    A chunk that is too long for one call is graded in pieces, and gets the best grade of its pieces.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    asking = _Asking(
        question=question, reference=reference, judge=judge, prompt=prompt, fence_code=fence_code
    )
    packs = _packs(chunks, fence_code, pack_chars)
    calls = [batch for pack in packs[:max_packs] for batch in batches(pack, chunks_per_call)]
    answers = await together(ask_items(call, asking.ask) for call in calls)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """The common part of all calls."""

    question: str
    reference: str | None
    judge: Judge
    prompt: Prompt
    fence_code: str

    async def ask(self, chunks: Sequence[NumberedText]) -> ItemReplies[GivenGrade]:
        reply = await self.judge.ask(self._request(chunks))
        given = ((grade.id, grade) for grade in reply.value.chunks)
        return ItemReplies.check(given, asked=chunks, abstained=reply.abstained, notes=reply.notes)

    def _request(self, chunks: Sequence[NumberedText]) -> JudgeRequest[ChunksReply]:
        def about(numbers: Collection[int]) -> JudgeRequest[ChunksReply]:
            return self._request([chunk for chunk in chunks if chunk.number in numbers])

        given = ChunksInput(question=self.question, reference=self.reference, chunks=tuple(chunks))
        return JudgeRequest(
            step="chunks",
            system=self.prompt.text,
            user=render_chunks(given, self.fence_code),
            reply_type=ChunksReply,
            inputs=given,
            max_output_tokens=output_tokens([""] * len(chunks)),
            items={chunk.number: chunk.text for chunk in chunks},
            about=about,
        )


def _packs(chunks: Sequence[Chunk], seed: str, pack_chars: int) -> list[list[NumberedText]]:
    # numbered as for the other steps, and shuffled: judges prefer what they read first
    numbered = (NumberedText(number=n, text=chunk.text or "") for n, chunk in enumerate(chunks, start=1))
    shown = [chunk for chunk in numbered if chunk.text.strip()]
    random.Random(seed).shuffle(shown)
    return [_one_a_number(pack) for pack in pack_chunks(shown, pack_chars)]


def _one_a_number(pack: Iterable[NumberedText]) -> list[NumberedText]:
    # a pack may hold two pieces of a long chunk, but a number must be unique
    texts: dict[int, list[str]] = {}
    for piece in pack:
        texts.setdefault(piece.number, []).append(piece.text)
    return [NumberedText(number=number, text="\n".join(parts)) for number, parts in texts.items()]


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
