"""Labeled rows: what is read, and how a bad one is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragtrace.calibration.measurement import draw
from ragtrace.errors import InputError
from ragtrace.labeled_data import HumanLabel, LabeledAnswer, read_labeled


def read(path: Path, *rows: Any) -> list[LabeledAnswer]:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
    return list(read_labeled(path))


def row(*labels: str | None, **others: Any) -> dict[str, Any]:
    claims = [{"text": f"Claim {at}.", "label": label} for at, label in enumerate(labels)]
    return {"contexts": ["A chunk."], "claims": claims, **others}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labeled.jsonl"


def test_claims_without_agreement_are_left_out_and_counted(path: Path) -> None:
    [answer] = read(path, row("supported", None, "neutral"))
    assert [(claim.index, claim.text) for claim in answer.claims] == [(0, "Claim 0."), (1, "Claim 2.")]
    assert answer.labels == (HumanLabel.SUPPORTED, HumanLabel.UNSUPPORTED)
    assert answer.left_out == 1


@pytest.mark.parametrize(
    ("labels", "others", "expected"),
    [
        (["supported", "supported"], {}, True),
        (["supported", "contradicted"], {}, False),
        (["supported", None], {}, None),
        (["neutral", None], {}, False),
        (["supported"], {"answer_label": "neutral"}, False),
        (["supported"], {"answer_label": None}, None),
    ],
)
def test_an_answer_is_as_good_as_people_say_or_as_its_claims(
    path: Path, labels: list[str | None], others: dict[str, Any], expected: bool | None
) -> None:
    [answer] = read(path, row(*labels, **others))
    assert answer.supported is expected


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ({"claims": []}, "field `contexts`: is missing"),
        ({"contexts": []}, "field `claims`: is missing"),
        ({"contexts": [], "claims": [{"text": "secret"}]}, "field `claims.0.label`: is missing"),
        (row("secret"), "field `claims.0.label`"),
        ({"contexts": [], "claims": [{"text": "", "label": None}]}, "field `claims.0.text`"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(path: Path, bad: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(path, row("supported"), bad)
    assert str(caught.value).startswith(f"{path}, line 2: {said}")
    assert "secret" not in str(caught.value)


def test_a_sample_holds_answers_with_unsupported_claims(path: Path) -> None:
    answers = read(path, *(row("supported" if at % 10 else "neutral") for at in range(100)))
    sample = draw(answers, 16, seed=0)
    assert len({answer.record.id for answer in sample}) == 16
    assert sum(answer.has_unsupported for answer in sample) == 8
    assert sample == draw(answers, 16, seed=0)
    assert sample != draw(answers, 16, seed=1)
    assert sum(answer.has_unsupported for answer in draw(answers, 40, seed=0)) == 10
    assert len(draw(answers, 1000, seed=0)) == len(draw(answers, None, seed=0)) == 100
