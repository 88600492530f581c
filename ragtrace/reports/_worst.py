"""The worst answers of a run, prepared for a page."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from ragtrace.model import Chunk, ChunkVerdict, Direction, MetricResult, Verdict, VerdictLabel
from ragtrace.outcomes import JudgedAnswer
from ragtrace.reports._marks import WORST_FIRST, MarkedPassage, MarkedText, pieces

_MOST_CHUNKS: Final = 20
_OF_REFERENCE: Final = "reference"


class WorstAnswers:
    """Keeps the answers with the lowest scores, up to a number; never those without a flaw."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen = 0
        self._heap: list[tuple[_Badness, JudgedAnswer]] = []

    def add(self, answer: JudgedAnswer) -> None:
        """Add an answer if it is among the worst."""
        self._seen += 1
        badness = _badness(answer, self._seen)
        if self._most == 0 or badness is None:
            return
        keep = heapq.heappush if len(self._heap) < self._most else heapq.heappushpop
        keep(self._heap, (badness, answer))

    def __iter__(self) -> Iterator[JudgedAnswer]:
        """Yield them, the worst first."""
        return (answer for _, answer in sorted(self._heap, key=lambda each: each[0], reverse=True))


class _Badness(NamedTuple):
    lack: float
    """The largest distance of a metric from its best score."""
    contradicted: int
    unsupported: int
    earliness: int
    """Unique, so that answers themselves are never compared."""


def _badness(answer: JudgedAnswer, number: int) -> _Badness | None:
    lacks = [_lack(result) for result in answer.evaluation.results if result.score is not None]
    labels = [verdict.label for result in answer.evaluation.results for verdict in result.verdicts]
    if not lacks or not any(lacks):
        return None
    return _Badness(
        lack=max(lacks),
        contradicted=labels.count(VerdictLabel.CONTRADICTED),
        unsupported=labels.count(VerdictLabel.UNSUPPORTED),
        earliness=-number,
    )


def _lack(result: MetricResult) -> float:
    assert result.score is not None
    return 1 - result.score if result.direction is Direction.HIGHER_IS_BETTER else result.score


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClaim:
    """A claim, numbered."""

    number: int
    verdict: Verdict
    places: tuple[int, ...]
    """Positions of the cited chunks in the list, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChunk:
    """A chunk with marked quotes."""

    place: int
    """Position in the list of chunks, from 1."""
    chunk: Chunk
    pieces: tuple[MarkedText, ...]
    is_cited: bool
    verdict: ChunkVerdict | None
    """Its relevance to the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """An answer with its claims on one side, and their evidence on the other."""

    rank: int
    """Rank from 1, the worst first."""
    judged: JudgedAnswer
    trace_url: str | None
    pieces: tuple[MarkedText, ...]
    claims: tuple[ShownClaim, ...]
    """Claims of the answer, in its order."""
    of_reference: tuple[ShownClaim, ...]
    """Sentences of the reference."""
    chunks: tuple[ShownChunk, ...]
    more_chunks: int
    """Number of chunks that are not shown because no claim cites them."""


def shown_answer(rank: int, judged: JudgedAnswer, *, trace_url: str | None) -> ShownAnswer:
    """Prepare an answer for a page."""
    record = judged.record
    claims = tuple(_claims(judged))
    about_answer = tuple(claim for claim in claims if claim.verdict.claim.kind != _OF_REFERENCE)
    chunks = [_chunk(place, chunk, claims, judged) for place, chunk in enumerate(record.chunks, start=1)]
    uncited = sorted(chunks, key=lambda chunk: not chunk.is_cited)
    shown = {each.place for each in islice(uncited, max(_MOST_CHUNKS, sum(c.is_cited for c in chunks)))}
    return ShownAnswer(
        rank=rank,
        judged=judged,
        trace_url=trace_url,
        pieces=pieces(record.answer or "", [mark for claim in about_answer for mark in _mark(claim)]),
        claims=about_answer,
        of_reference=tuple(claim for claim in claims if claim.verdict.claim.kind == _OF_REFERENCE),
        chunks=tuple(chunk for chunk in chunks if chunk.place in shown),
        more_chunks=len(chunks) - len(shown),
    )


def _claims(judged: JudgedAnswer) -> Iterator[ShownClaim]:
    """Yield the metrics' verdicts on claims, without repetitions."""
    verdicts = [verdict for result in judged.evaluation.results for verdict in result.verdicts]
    places = {chunk.id: place for place, chunk in reversed([*enumerate(judged.record.chunks, start=1)])}
    in_order = sorted(dict.fromkeys(verdicts), key=_place_in_answer)
    for number, verdict in enumerate(in_order, start=1):
        cited = tuple(places[chunk_id] for chunk_id in verdict.chunk_ids if chunk_id in places)
        yield ShownClaim(number=number, verdict=verdict, places=cited)


def _place_in_answer(verdict: Verdict) -> tuple[int, int]:
    return (verdict.claim.index, WORST_FIRST.index(verdict.label))


def _mark(shown: ShownClaim) -> Iterator[MarkedPassage]:
    claim = shown.verdict.claim
    if claim.start is not None and claim.end is not None:
        yield MarkedPassage(claim.start, claim.end, shown.number, shown.verdict.label)


def _chunk(place: int, chunk: Chunk, claims: Sequence[ShownClaim], judged: JudgedAnswer) -> ShownChunk:
    text = chunk.text or ""
    quoting = [claim for claim in claims if claim.places[:1] == (place,) and claim.verdict.quote]
    marks = [
        MarkedPassage(at, at + len(quote), claim.number, claim.verdict.label)
        for claim in quoting
        if (quote := claim.verdict.quote or "") and (at := text.find(quote)) >= 0
    ]
    worths = [
        chunk_verdict for result in judged.evaluation.results for chunk_verdict in result.chunk_verdicts
    ]
    return ShownChunk(
        place=place,
        chunk=chunk,
        pieces=pieces(text, marks),
        is_cited=any(place in claim.places for claim in claims),
        verdict=next((verdict for verdict in worths if verdict.rank == chunk.rank), None),
    )
