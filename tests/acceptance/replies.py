"""What the judge of the acceptance tests says: one claim is supported, the other contradicted."""

from __future__ import annotations

__all__ = ["ANSWER", "REPLIES"]

ANSWER = "Refunds take 14 days. Refunds take 30 days."
REPLIES = {
    "extract": {
        "claims": [
            {"id": number, "sentence_ids": [number], "text": text, "kind": "factual", "relevance": "direct"}
            for number, text in enumerate(("Refunds take 14 days.", "Refunds take 30 days."), start=1)
        ],
        "refusal": False,
    },
    "verify": {
        "verdicts": [
            {
                "id": number,
                "chunks": [1],
                "quote": "Refunds take 14 days.",
                "label": label,
                "reason": "Stated.",
            }
            for number, label in enumerate(("supported", "contradicted"), start=1)
        ]
    },
}
