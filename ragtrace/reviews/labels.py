"""What several people say of a claim, as one label."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ragtrace.answers.summary import AnswerKey
from ragtrace.escaping import escaped_json
from ragtrace.model import VerdictLabel
from ragtrace.reviews.review import LabeledClaim, LabelRow, Review, ReviewPick


def label_row(
    key: AnswerKey,
    reviews: Sequence[Review],
    *,
    question: str | None,
    contexts: Sequence[tuple[str, str]],
    answer: str | None,
    asked: int | None,
) -> LabelRow:
    """Join the reviews of an answer: each claim once, in the order of the answer."""
    in_order = sorted(
        by_claim(reviews).items(), key=lambda item: (item[0][1] is None, item[0][1] or 0, item[0][0])
    )
    return LabelRow(
        key=key,
        question=question,
        contexts=[(chunk_id, text) for chunk_id, text in contexts],
        answer=answer,
        claims=tuple(
            LabeledClaim(text=text, label=majority(said), verdict=said[0].verdict)
            for (text, _), said in in_order
        ),
        asked=asked,
        picked=_picked(reviews),
    )


def by_claim(reviews: Sequence[Review]) -> Mapping[tuple[str, int | None], Sequence[Review]]:
    """Return the reviews of an answer by the claim's text and place."""
    of_claim: defaultdict[tuple[str, int | None], list[Review]] = defaultdict(list)
    for review in reviews:
        of_claim[review.claim, review.start].append(review)
    return of_claim


def _picked(reviews: Sequence[Review]) -> ReviewPick:
    picks = [review.picked for review in reviews]
    return ReviewPick.RANDOM if ReviewPick.RANDOM in picks else picks[0]


def majority(reviews: Sequence[Review]) -> VerdictLabel | None:
    """Return the label of most people; ``None`` if two labels have as many, or nobody can tell."""
    counts = Counter(review.label for review in reviews if review.label is not VerdictLabel.UNJUDGED)
    first, *rest = (*counts.most_common(2), None)
    if first is None or (rest[0] is not None and rest[0][1] == first[1]):
        return None
    return first[0]


def calibration_row(row: LabelRow) -> Mapping[str, object]:
    """Return a row that ``ragtrace calibrate`` reads (``ragtrace.labeled_data``)."""
    return {
        "id": f"{row.key.trace_id}:{row.key.span_id}",
        "question": row.question,
        "contexts": [{"id": chunk_id, "text": text} for chunk_id, text in row.contexts],
        "answer": row.answer,
        "claims": [
            {"text": claim.text, "label": claim.label.value if claim.label else None} for claim in row.claims
        ],
        "answer_label": row.label.value if row.label else None,
    }


def calibration_line(row: LabelRow) -> str:
    """Return that row as a line of JSON."""
    return f"{escaped_json(json.dumps(calibration_row(row), ensure_ascii=False))}\n"
