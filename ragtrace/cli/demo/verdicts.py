"""Verdicts as a person would read them off a trace: from the carrier spans alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ragtrace import semconv
from ragtrace.model import AttributeValue, SkipReason
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span, SpanEvent

_METRIC = "faithfulness"
_WRONG = ("contradicted", "unsupported")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClaim:
    """A claim with its verdict."""

    verdict: str
    claim: str
    chunk_ids: tuple[str, ...]
    quote: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceVerdict:
    """What a carrier span says of one answer."""

    trace_id: str
    span_id: str
    """The judged span's."""
    carrier_span_id: str
    label: str
    score: float | None
    skip_reason: str | None
    claims: int
    undecided: int
    said: tuple[ReadClaim, ...]
    """The claims that have an event, wrong ones first."""
    brief: str

    @property
    def findings(self) -> tuple[ReadClaim, ...]:
        """The claims that failed."""
        return tuple(claim for claim in self.said if claim.verdict in _WRONG)

    @property
    def word(self) -> str:
        """Say in a word what became of the answer: ``pass``, ``fail``, or why it is neither."""
        if self.skip_reason == SkipReason.ALL_UNJUDGED:
            return SkipReason.UNDECIDED.value
        return (self.skip_reason or self.label).replace("_", " ")


class VerdictFile:
    """The file of OTLP JSON lines that the collector writes; read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[TraceVerdict]:
        """Yield the verdicts that were written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                for span in decode_json(line.decode()):
                    if semconv.EVAL_STATUS in span.attributes:
                        yield _read(span)


def _read(span: Span) -> TraceVerdict:
    attributes = span.attributes
    score = attributes.get(f"{semconv.SCORE_PREFIX}{_METRIC}")
    return TraceVerdict(
        trace_id=span.trace_id,
        span_id=str(attributes.get(semconv.TARGET_SPAN_ID, span.parent_span_id)),
        carrier_span_id=span.span_id,
        label=str(attributes.get(f"{semconv.LABEL_PREFIX}{_METRIC}", "error")),
        score=score if isinstance(score, float) else None,
        skip_reason=_text(attributes, semconv.EVAL_SKIP_REASON),
        claims=_count(span, "total"),
        undecided=_count(span, "unjudged"),
        said=tuple(
            _claim(event) for event in span.events if event.name.startswith(semconv.CLAIM_EVENT_PREFIX)
        ),
        brief=str(attributes.get(semconv.BRIEF, "")),
    )


def _count(span: Span, what: str) -> int:
    for event in span.events:
        if event.name == semconv.EVALUATION_RESULT:
            number = event.attributes.get(f"{semconv.CLAIMS_PREFIX}{what}", 0)
            return number if isinstance(number, int) else 0
    return 0


def _claim(event: SpanEvent) -> ReadClaim:
    ids = event.attributes.get(semconv.CLAIM_CHUNK_IDS, ())
    return ReadClaim(
        verdict=str(event.attributes.get(semconv.CLAIM_VERDICT, "")),
        claim=str(event.attributes.get(semconv.CLAIM_ASSERTION, "")),
        chunk_ids=tuple(str(each) for each in ids) if isinstance(ids, tuple) else (),
        quote=_text(event.attributes, semconv.CLAIM_QUOTE),
        reason=_text(event.attributes, semconv.CLAIM_REASON),
    )


def _text(attributes: Mapping[str, AttributeValue], key: str) -> str | None:
    value = attributes.get(key)
    return value if isinstance(value, str) else None
