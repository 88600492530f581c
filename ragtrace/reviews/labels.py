"""What several people say of a claim, as one label."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ragtrace.answers.summary import AnswerKey
from ragtrace.model import VerdictLabel
from ragtrace.reviews.review import LabeledClaim, LabelRow, Review


def label_row(
    key: AnswerKey,
    reviews: Sequence[Review],
    *,
    question: str | None,
    contexts: Sequence[tuple[str, str]],
    answer: str | None,
) -> LabelRow:
    """Join the reviews of an answer: each claim once, in the order of the answer."""
    of_claim: defaultdict[tuple[str, int | None], list[Review]] = defaultdict(list)
    for review in reviews:
        of_claim[review.claim, review.start].append(review)
    in_order = sorted(of_claim.items(), key=lambda item: (item[0][1] is None, item[0][1] or 0, item[0][0]))
    return LabelRow(
        key=key,
        question=question,
        contexts=[(chunk_id, text) for chunk_id, text in contexts],
        answer=answer,
        claims=tuple(
            LabeledClaim(text=text, label=majority(said), verdict=said[0].verdict)
            for (text, _), said in in_order
        ),
        picked=reviews[0].picked,
    )


def majority(reviews: Sequence[Review]) -> VerdictLabel | None:
    """Return the label of most people; ``None`` if two labels have as many, or nobody can tell."""
    counts = Counter(review.label for review in reviews if review.label is not VerdictLabel.UNJUDGED)
    first, *rest = (*counts.most_common(2), None)
    if first is None or (rest[0] is not None and rest[0][1] == first[1]):
        return None
    return first[0]


def calibration_row(row: LabelRow) -> Mapping[str, object]:
    """Return a row that ``ragtrace calibrate`` reads (``ragtrace.calibration.labeled_data``)."""
    return {
        "id": f"{row.key.trace_id}:{row.key.span_id}",
        "question": row.question,
        "contexts": [{"id": chunk_id, "text": text} for chunk_id, text in row.contexts],
        "answer": row.answer,
        "claims": [
            {"text": claim.text, "label": claim.label.value if claim.label else None} for claim in row.claims
        ],
    }
