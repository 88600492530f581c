"""Each peer's rule over the verdicts that its model's replies stand for."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.scoring import score
from tests.conformance.peer_cases import PeerCase, read_cases

UNREADABLE = {
    ("faith-invalid-json-claims", "ragas"),
    ("faith-invalid-json-claims", "ragas-legacy"),
    ("faith-invalid-json-claims", "deepeval-4"),
    ("faith-invalid-json-claims", "deepeval-3"),
    ("faith-fenced-json", "ragas"),
}
"""The peer never got to the verdicts: its model's reply had another form."""


def cases() -> list[PeerCase]:
    return [case for case in read_cases() if (case.case["id"], case.profile) not in UNREADABLE]


def verdicts(case: PeerCase) -> dict[str, Any]:
    neutral: dict[str, Any] = case.case["neutral"]
    if case.case["id"] == "cprec-verdict-2" and case.profile.startswith("ragas"):
        return {"node_verdicts": [2, 0]}  # what its model wrote, where the neutral verdict is a yes
    return neutral


@pytest.mark.parametrize("case", cases(), ids=str)
def test_neutral_verdicts_give_what_the_peer_reported(case: PeerCase) -> None:
    found = score(
        case.metric,
        case.profile,
        verdicts(case),
        question=case.row["question"],
        embeddings=case.embeddings,
    )
    assert found.status == case.status
    assert found.raw == pytest.approx(case.expected["score"], abs=1e-9)
