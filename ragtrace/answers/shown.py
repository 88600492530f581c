"""What a page shows of a judged answer: its claims marked in it, beside the chunks with the quotes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ragtrace.answers._marks import WORST_FIRST, MarkedPassage
from ragtrace.answers._marks import MarkedText as MarkedText  # part of what is shown
from ragtrace.answers._marks import pieces as pieces
from ragtrace.answers.workings import Working, workings_of
from ragtrace.model import Chunk, ChunkVerdict, JudgedAnswer, SkipReason, Verdict

_MOST_CHUNKS: Final = 20
_OF_REFERENCE: Final = "reference"
SKIP_MEANINGS: Final[Mapping[str, str]] = {
    SkipReason.NO_CONTENT: "the instrumentation did not record the text",
    SkipReason.NO_RETRIEVAL: "nothing was retrieved for the answer, or no span says so",
    SkipReason.EMPTY_RETRIEVAL: "the retrieval found nothing",
    SkipReason.REDACTED: "the text was replaced by a redaction mark",
    SkipReason.TRUNCATED: "the text was cut on its way",
    SkipReason.INCOMPLETE: "the answer was not finished, or attributes or spans were dropped on their way",
    SkipReason.FAILED_CALL: "the call ended in an error and has no answer",
    SkipReason.REFUSAL: "the answer declines to answer",
    SkipReason.NO_CLAIMS: "the answer states nothing that can be checked",
    SkipReason.ALL_UNJUDGED: "the judge decided nothing of what it was asked",
    SkipReason.UNDECIDED: "too few verdicts to tell pass from fail",
    SkipReason.NO_REFERENCE: "the metric needs a reference answer and there is none",
    SkipReason.MISSING_PART: "a metric that this one is made of has no score",
    SkipReason.OUT_OF_RANGE: "the rule that was asked for gives a number outside 0 to 1",
    SkipReason.TOOL_NAN: "the rule of the tool that was asked for gives no number",
}
"""Why there was nothing to judge, in plain words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClaim:
    """A claim, numbered."""

    number: int
    verdict: Verdict
    places: tuple[int, ...]
    """Positions of the cited chunks in the list, from 1."""
    metrics: tuple[str, ...] = ()
    """The metrics that use this verdict."""
    is_marked: bool = False
    """Whether its place in the answer is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChunk:
    """A chunk with marked quotes."""

    place: int
    """Position in the list of chunks, from 1."""
    chunk: Chunk
    pieces: tuple[MarkedText, ...]
    cited_by: tuple[int, ...]
    """Numbers of the claims that cite it."""
    verdict: ChunkVerdict | None
    """Its relevance to the question."""

    @property
    def is_cited(self) -> bool:
        """Whether a claim cites it."""
        return bool(self.cited_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """An answer with its claims on one side, and their evidence on the other."""

    judged: JudgedAnswer
    pieces: tuple[MarkedText, ...]
    claims: tuple[ShownClaim, ...]
    """Claims of the answer, in its order."""
    of_reference: tuple[ShownClaim, ...]
    """Sentences of the reference."""
    chunks: tuple[ShownChunk, ...]
    more_chunks: int
    """Number of chunks that are not shown because no claim cites them."""
    more_claims: int = 0
    """Number of claims that are not shown: the worst are."""
    workings: tuple[Working, ...] = ()
    """How the numbers were made."""


def shown_answer(
    judged: JudgedAnswer, *, most_chunks: int = _MOST_CHUNKS, most_claims: int | None = None
) -> ShownAnswer:
    """Prepare an answer for a page.

    ``most_chunks`` bounds the chunks that no claim cites, ``most_claims`` the claims, the worst first.
    """
    record = judged.record
    every = tuple(_claims(judged))
    claims = _worst(every, most_claims)
    about_answer = tuple(claim for claim in claims if claim.verdict.claim.kind != _OF_REFERENCE)
    chunks = _chunks(judged, claims)
    uncited = sorted(chunks, key=lambda chunk: not chunk.is_cited)
    cited = sum(chunk.is_cited for chunk in chunks)
    shown = {chunk.place for chunk in islice(uncited, max(most_chunks, cited))}
    return ShownAnswer(
        judged=judged,
        pieces=pieces(record.answer or "", [mark for claim in about_answer for mark in _mark(claim)]),
        claims=about_answer,
        of_reference=tuple(claim for claim in claims if claim.verdict.claim.kind == _OF_REFERENCE),
        chunks=tuple(chunk for chunk in chunks if chunk.place in shown),
        more_chunks=len(chunks) - len(shown),
        more_claims=len(every) - len(claims),
        workings=workings_of(judged.evaluation, record),
    )


def _claims(judged: JudgedAnswer) -> Iterator[ShownClaim]:
    """Yield the metrics' verdicts on claims, without repetitions."""
    metrics: dict[Verdict, list[str]] = {}
    for result in judged.evaluation.results:
        for verdict in result.verdicts:
            metrics.setdefault(verdict, []).append(result.metric)
    length = len(judged.record.answer or "")
    places = {chunk.id: place for place, chunk in reversed([*enumerate(judged.record.chunks, start=1)])}
    for number, verdict in enumerate(sorted(metrics, key=_place_in_answer), start=1):
        yield ShownClaim(
            number=number,
            verdict=verdict,
            places=tuple(places[chunk_id] for chunk_id in verdict.chunk_ids if chunk_id in places),
            metrics=tuple(dict.fromkeys(metrics[verdict])),
            is_marked=_is_within(verdict, length),
        )


def _place_in_answer(verdict: Verdict) -> tuple[int, int]:
    return (verdict.claim.index, WORST_FIRST.index(verdict.label))


def _is_within(verdict: Verdict, length: int) -> bool:
    start, end = verdict.claim.start, verdict.claim.end
    return (
        verdict.claim.kind != _OF_REFERENCE
        and start is not None
        and end is not None
        and 0 <= start < end <= length
    )


def _worst(claims: tuple[ShownClaim, ...], most: int | None) -> tuple[ShownClaim, ...]:
    if most is None or len(claims) <= most:
        return claims
    by_badness = sorted(claims, key=lambda claim: WORST_FIRST.index(claim.verdict.label))
    return tuple(sorted(by_badness[:most], key=lambda claim: claim.number))


def _mark(shown: ShownClaim) -> Iterator[MarkedPassage]:
    claim = shown.verdict.claim
    if claim.start is not None and claim.end is not None:
        yield MarkedPassage(claim.start, claim.end, shown.number, shown.verdict.label)


def _chunks(judged: JudgedAnswer, claims: Sequence[ShownClaim]) -> Sequence[ShownChunk]:
    citing: defaultdict[int, list[ShownClaim]] = defaultdict(list)
    for claim in claims:
        for place in dict.fromkeys(claim.places):
            citing[place].append(claim)
    worths: dict[int, ChunkVerdict] = {}
    for result in judged.evaluation.results:
        for verdict in result.chunk_verdicts:
            worths.setdefault(verdict.rank, verdict)
    return [
        _chunk(place, chunk, citing[place], worths)
        for place, chunk in enumerate(judged.record.chunks, start=1)
    ]


def _chunk(
    place: int, chunk: Chunk, citing: Sequence[ShownClaim], worths: Mapping[int, ChunkVerdict]
) -> ShownChunk:
    text = chunk.text or ""
    quoting = [claim for claim in citing if claim.places[:1] == (place,) and claim.verdict.quote]
    marks = [
        MarkedPassage(at, at + len(quote), claim.number, claim.verdict.label)
        for claim in quoting
        if (quote := claim.verdict.quote or "") and (at := text.find(quote)) >= 0
    ]
    return ShownChunk(
        place=place,
        chunk=chunk,
        pieces=pieces(text, marks),
        cited_by=tuple(claim.number for claim in citing),
        verdict=worths.get(chunk.rank),
    )
