"""The verdicts on a carrier: its events back to claims and chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from ragtrace import semconv
from ragtrace.answers._values import (
    Attributes,
    flag_of,
    integer_of,
    number_of,
    text_of,
    texts_of,
)
from ragtrace.model import Chunk, ChunkVerdict, Claim, DecidedBy, RagRecord, Verdict, VerdictLabel
from ragtrace.traces.trace import Span, SpanEvent

VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)

_PREFIX: Final = semconv.CLAIM_EVENT_PREFIX
CLAIM_STARTS: Final = (semconv.CLAIM_OFFSET_START, f"{_PREFIX}answer_start")
"""Carriers of version 0.1 have the second name."""
CLAIM_ENDS: Final = (semconv.CLAIM_OFFSET_END, f"{_PREFIX}answer_end")
_CUT_MARK: Final = "…"
_CUT_BYTES: Final = semconv.SAFE_STRING_BYTES - 8
"""A text that was cut is at most one character and the mark shorter than the limit."""


@dataclass(slots=True, kw_only=True)
class EventFaults:
    """What a reader should know about the events: each number becomes a sentence."""

    unreadable: int = 0
    without_text: int = 0
    moved: int = 0
    """Claims whose place is beyond the end of the answer."""
    unverified: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventVerdicts:
    """The verdicts of a carrier, by the metric's name in attribute keys."""

    claims: Mapping[str, Sequence[Verdict]]
    chunks: Mapping[str, Sequence[ChunkVerdict]]
    faults: EventFaults = field(default_factory=EventFaults)

    def claims_of(self, key: str) -> tuple[Verdict, ...]:
        """Return a metric's verdicts on claims, in the order of the answer."""
        return tuple(sorted(self.claims.get(key, ()), key=_place))

    def chunks_of(self, key: str) -> tuple[ChunkVerdict, ...]:
        """Return a metric's verdicts on chunks, by rank."""
        return tuple(sorted(self.chunks.get(key, ()), key=lambda verdict: verdict.rank))


def read_verdicts(carrier: Span, record: RagRecord) -> EventVerdicts:
    """Read the verdicts of a carrier; an unreadable one is counted and left out."""
    claims: dict[str, list[Verdict]] = defaultdict(list)
    chunks: dict[str, list[ChunkVerdict]] = defaultdict(list)
    faults, reader = EventFaults(), _Chunks(record.chunks)
    for event in carrier.events:
        if _is_claim(event):
            verdict = _claim(event, record, reader, faults)
            _share(verdict, claims, event.attributes, semconv.CLAIM_METRICS, semconv.CLAIM_METRIC, faults)
        elif event.name.startswith(semconv.CHUNK_EVENT_PREFIX):
            graded = _chunk(event, reader, faults)
            _share(graded, chunks, event.attributes, semconv.CHUNK_METRICS, semconv.CHUNK_METRIC, faults)
    return EventVerdicts(claims=claims, chunks=chunks, faults=faults)


def _share(
    verdict: VerdictT | None,
    by_metric: dict[str, list[VerdictT]],
    attributes: Attributes,
    several: str,
    one: str,
    faults: EventFaults,
) -> None:
    """Give a verdict to every metric that uses it."""
    metrics = texts_of(attributes, several) or texts_of(attributes, one)
    if verdict is None or not metrics:
        faults.unreadable += 1
        return
    for metric in metrics:
        by_metric[metric].append(verdict)


def _is_claim(event: SpanEvent) -> bool:
    return event.name.startswith((semconv.CLAIM_EVENT_PREFIX, semconv.REFERENCE_EVENT_PREFIX))


def _place(verdict: Verdict) -> tuple[bool, int, int]:
    # metrics that share a claim also share its index, so only the place orders claims and sentences alike
    claim = verdict.claim
    return claim.start is None, claim.start or 0, claim.index


def _claim(event: SpanEvent, record: RagRecord, chunks: _Chunks, faults: EventFaults) -> Verdict | None:
    told = event.attributes
    named = text_of(told, semconv.CLAIM_VERDICT) or text_of(told, semconv.REFERENCE_VERDICT)
    label, index = _label(named or _last(event.name)), integer_of(told, semconv.CLAIM_INDEX)
    if label is None or index is None:
        return None
    quote = text_of(told, semconv.CLAIM_QUOTE)
    chunk_ids = tuple(map(chunks.full_id, texts_of(told, semconv.CLAIM_CHUNK_IDS)))
    verdict = Verdict(
        claim=_claim_in(told, index, record, faults),
        label=label,
        reason=text_of(told, semconv.CLAIM_REASON),
        chunk_ids=chunk_ids,
        quote=quote,
        quote_verified=flag_of(told, semconv.CLAIM_QUOTE_VERIFIED),
        confidence=_probability(told, semconv.CLAIM_CONFIDENCE),
        support=_probability(told, semconv.CLAIM_SUPPORT),
        decided_by=_decided_by(told),
    )
    faults.cut += any(map(_is_cut, (verdict.claim.text, verdict.reason)))
    if quote is not None and verdict.quote_verified and not chunks.have(quote, chunk_ids):
        faults.unverified += 1
        return replace(verdict, quote_verified=False)
    return verdict


def _decided_by(told: Attributes) -> DecidedBy | None:
    named = text_of(told, semconv.CLAIM_DECIDED_BY)
    return DecidedBy(named) if named in set(DecidedBy) else None


def _claim_in(told: Attributes, index: int, record: RagRecord, faults: EventFaults) -> Claim:
    start, end = _first_integer(told, CLAIM_STARTS), _first_integer(told, CLAIM_ENDS)
    answer, text = record.answer, text_of(told, semconv.CLAIM_ASSERTION)
    if answer is not None and not _is_within(start, end, answer):
        faults.moved += 1
        start = end = None
    if text is None:
        faults.without_text += 1
        text = "" if answer is None or start is None else answer[start:end]
    return Claim(
        index=index, text=text, start=start, end=end, kind=text_of(told, semconv.CLAIM_KIND) or "factual"
    )


def _is_within(start: int | None, end: int | None, answer: str) -> bool:
    if start is None or end is None:
        return start is end
    return 0 <= start <= end <= len(answer)


def _chunk(event: SpanEvent, chunks: _Chunks, faults: EventFaults) -> ChunkVerdict | None:
    told = event.attributes
    label = _label(text_of(told, semconv.CHUNK_LABEL) or _last(event.name))
    chunk_id, rank = text_of(told, semconv.CHUNK_ID), integer_of(told, semconv.CHUNK_RANK)
    if label is None or chunk_id is None or rank is None:
        return None
    reason = text_of(told, semconv.CHUNK_REASON)
    faults.cut += _is_cut(reason)
    return ChunkVerdict(
        chunk_id=chunks.full_id(chunk_id),
        rank=rank,
        label=label,
        reason=reason,
        confidence=_probability(told, semconv.CHUNK_CONFIDENCE),
    )


class _Chunks:
    """The chunks of the record as it is today."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._texts: dict[str, list[str]] = defaultdict(list)
        for chunk in chunks:
            self._texts[chunk.id].append(chunk.text or "")

    def full_id(self, told: str) -> str:
        """Return the chunk's id, if the carrier has only its beginning."""
        if told in self._texts or not told.endswith(_CUT_MARK):
            return told
        begun = [known for known in self._texts if known.startswith(told[: -len(_CUT_MARK)])]
        return begun[0] if len(begun) == 1 else told

    def have(self, quote: str, chunk_ids: Iterable[str]) -> bool:
        """Return whether one of these chunks has the quote."""
        return any(quote in text for chunk_id in chunk_ids for text in self._texts.get(chunk_id, ()))


def _label(word: str) -> VerdictLabel | None:
    try:
        return VerdictLabel(word)
    except ValueError:
        return None


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _first_integer(told: Attributes, keys: Iterable[str]) -> int | None:
    return next((found for key in keys if (found := integer_of(told, key)) is not None), None)


def _probability(told: Attributes, key: str) -> float | None:
    value = number_of(told, key)
    return value if value is not None and 0 <= value <= 1 else None


def _is_cut(text: str | None) -> bool:
    return (
        text is not None and text.endswith(_CUT_MARK) and len(text.encode("utf-8", "replace")) >= _CUT_BYTES
    )
