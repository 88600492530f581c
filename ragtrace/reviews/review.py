"""A review: a person confirms or overrules the verdict on a claim. As a label, and as a span of the trace."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from ragtrace import __version__, semconv
from ragtrace.answers.summary import AnswerKey
from ragtrace.escaping import escaped_json
from ragtrace.model import AttributeValue, RagRecord, Target, VerdictLabel
from ragtrace.traces.trace import Resource, Scope, Span, SpanKind, SpanLink, cut_utf8

_LENGTH_NS: Final = 1_000_000


class ReviewPick(StrEnum):
    """How an answer came to be reviewed: averages use random ones only."""

    OPENED = "opened"
    """A person opened it."""
    UNCERTAIN = "uncertain"
    """The queue that asks first where judges disagree or confidence is low."""
    RANDOM = "random"
    """The queue in random order: every answer has the same probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What one person says of one claim."""

    key: AnswerKey
    carrier_span_id: str
    """The evaluation that was looked at."""
    claim: str
    """The claim's text: content."""
    start: int | None
    """The claim's place in the answer; characters."""
    end: int | None
    verdict: VerdictLabel
    """The judge's."""
    label: VerdictLabel
    """The person's: ``supported``, ``contradicted``, ``unsupported``, or ``unjudged`` for "I cannot tell"."""
    note: str = ""
    reviewer: str = ""
    """The token's name, or what the person gave."""
    time_ns: int
    picked: ReviewPick = ReviewPick.OPENED

    @property
    def overrules(self) -> bool:
        """Whether the person disagrees."""
        return self.label is not self.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """A reviewed answer as a row that ``ragtrace calibrate`` reads."""

    key: AnswerKey
    labels: Mapping[str, VerdictLabel | None]
    """Of most people by the text of the claim; ``None`` if as many say something else, or all cannot tell."""
    label: VerdictLabel | None
    """The whole answer's: of a wrong claim, else ``supported`` if people labeled every claim so."""
    picked: ReviewPick
    """``random`` if anybody was asked at random."""
    row: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The row as a line of JSON."""
        return _line(self.row)


def _line(row: Mapping[str, object]) -> str:
    return f"{escaped_json(json.dumps(row, ensure_ascii=False))}\n"


class RecordRows:
    """Rows of records, each question and answer once."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], dict[str, Any]] = {}
        """By what tells them apart."""
        self.repeated = 0
        """Rows that say what another one says."""
        self._stands_for: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, row: Mapping[str, Any], probability: float | None) -> None:
        """Add a row that was drawn with this probability, if that is known.

        One of several alike stands for all of them; the first with labels of people is kept.
        """
        same = tuple(" ".join((row[part] or "").split()).casefold() for part in ("question", "answer"))
        known = self.rows.get(same)
        self.repeated += known is not None
        if known is None or (row["claims"] and not known["claims"]):
            self.rows[same] = dict(row)
        self._stands_for[same] += 1 / probability if probability else math.nan

    def lines(self) -> Iterator[str]:
        """Yield the rows as lines of JSON; without ``sample_probability`` where it is not known."""
        for same, row in self.rows.items():
            stands_for = self._stands_for[same]
            known = {} if math.isnan(stands_for) else {"sample_probability": min(1.0, 1 / stands_for)}
            yield _line({**row, **known})


def record_row(record: RagRecord) -> Mapping[str, Any] | None:
    """Return an answer that nobody reviewed as such a row; ``None`` if texts are missing."""
    if not (record.question and record.answer and any(chunk.text for chunk in record.chunks)):
        return None
    further = {
        "reference": record.reference,
        "earlier_turns": [asdict(turn) for turn in record.earlier_turns],
    }
    return {
        "id": record.id,
        "question": record.question,
        "contexts": [{"id": chunk.id, "text": chunk.text} for chunk in record.chunks],
        "answer": record.answer,
        **{name: value for name, value in further.items() if value},
        "claims": [],
        "answer_label": None,
    }


def label_row(
    key: AnswerKey,
    reviews: Sequence[Review],
    *,
    question: str | None,
    contexts: Sequence[tuple[str, str]],
    answer: str | None,
    asked: int | None,
) -> LabelRow:
    """Join the reviews of an answer: each claim once, in the order of the answer.

    ``contexts`` has id and text of each chunk, and ``asked`` is how many claims the evaluation has, reviewed
    or not, if that is known.
    """
    in_order = sorted(
        by_claim(reviews).items(), key=lambda item: (item[0][1] is None, item[0][1] or 0, item[0][0])
    )
    claims = [(text, majority(said)) for (text, _), said in in_order]
    labels, picks = [label for _, label in claims], [review.picked for review in reviews]
    wrong = [label for label in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED) if label in labels]
    is_whole = asked is not None and len(labels) >= asked and None not in labels
    whole = wrong[0] if wrong else VerdictLabel.SUPPORTED if labels and is_whole else None
    return LabelRow(
        key=key,
        labels=dict(claims),
        label=whole,
        picked=ReviewPick.RANDOM if ReviewPick.RANDOM in picks else picks[0],
        row={
            "id": f"{key.trace_id}:{key.span_id}",
            "question": question,
            "contexts": [{"id": chunk_id, "text": text} for chunk_id, text in contexts],
            "answer": answer,
            **({"reference": answer} if whole is VerdictLabel.SUPPORTED else {}),
            "claims": [{"text": text, "label": label} for text, label in claims],
            "answer_label": whole,
        },
    )


def by_claim(reviews: Sequence[Review]) -> Mapping[tuple[str, int | None], Sequence[Review]]:
    """Return the reviews of an answer by the claim's text and place."""
    of_claim: defaultdict[tuple[str, int | None], list[Review]] = defaultdict(list)
    for review in reviews:
        of_claim[review.claim, review.start].append(review)
    return of_claim


def majority(reviews: Sequence[Review]) -> VerdictLabel | None:
    """Return the label of most people; ``None`` if two labels have as many, or nobody can tell."""
    counts = Counter(review.label for review in reviews if review.label is not VerdictLabel.UNJUDGED)
    first, *rest = (*counts.most_common(2), None)
    if first is None or (rest[0] is not None and rest[0][1] == first[1]):
        return None
    return first[0]


def review_span(review: Review, target: Target, *, content: bool = True) -> Span:
    """Build the span of a review: a child of the judged span, linked to it, at the time of the review.

    Its id is derived from the review, so that a re-send is the same span. ``content`` is the policy of
    carriers: without it the span has neither the claim nor the note.
    """
    start_ns = max(review.time_ns, target.start_ns)
    return Span(
        trace_id=target.trace_id,
        span_id=_span_id(review),
        parent_span_id=target.span_id,
        name=f"{semconv.REVIEW_SPAN} {review.label.value}",
        kind=SpanKind.INTERNAL,
        start_ns=start_ns,
        end_ns=start_ns + _LENGTH_NS,
        attributes=_attributes(review, target, content=content),
        links=(
            SpanLink(trace_id=target.trace_id, span_id=target.span_id, attributes=semconv.LINK_TO_PARENT),
        ),
        flags=target.trace_flags,
        trace_state=target.trace_state,
        resource=Resource(attributes=target.resource, schema_url=target.resource_schema_url),
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=__version__),
    )


def _span_id(review: Review) -> str:
    key = "|".join(
        (*review.key, review.carrier_span_id, review.claim, review.reviewer, str(review.time_ns), "review")
    )
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8].hex()


def _attributes(review: Review, target: Target, *, content: bool) -> dict[str, AttributeValue]:
    note = review.note if content else ""
    found: dict[str, AttributeValue | None] = {
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.REVIEW_LABEL: review.label.value,
        semconv.REVIEW_VERDICT: review.verdict.value,
        semconv.REVIEW_OVERRULES: review.overrules,
        semconv.REVIEW_CLAIM: _cut(review.claim) if content else None,
        semconv.REVIEW_NOTE: _cut(note) or None,
        semconv.REVIEW_OFFSET_START: review.start,
        semconv.REVIEW_OFFSET_END: review.end,
        semconv.REVIEW_REVIEWER: _cut(review.reviewer) or None,
        semconv.REVIEW_CARRIER: review.carrier_span_id or None,
        semconv.REVIEW_PICKED: review.picked.value,
        semconv.TARGET_TRACE_ID: target.trace_id,
        semconv.TARGET_SPAN_ID: target.span_id,
        **_annotation(review, note),
    }
    return {key: value for key, value in found.items() if value is not None}


def _annotation(review: Review, note: str) -> dict[str, AttributeValue | None]:
    """Return the review as an OpenInference annotation (``spec/annotations.md``)."""
    prefix = f"{semconv.OI_ANNOTATIONS}.0.annotation."
    return {
        f"{prefix}name": "claim_verdict",
        f"{prefix}annotator_kind": semconv.OI_HUMAN,
        f"{prefix}label": review.label.value,
        f"{prefix}explanation": _cut(note) or None,
    }


def _cut(text: str) -> str:
    return cut_utf8(text, semconv.SAFE_STRING_BYTES)
