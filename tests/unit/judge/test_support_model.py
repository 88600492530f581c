"""The lexical judge ranks claims and answers, and decides only beyond cuts that were measured."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from ragtrace.labeled_data import read_labeled
from ragtrace.model import Label, MetricResult, RagRecord, SkipReason, VerdictLabel
from ragtrace.pipeline import evaluate
from tests.checkout import ROOT

SAMPLE = ROOT / "examples" / "data" / "ragtruth_qa_sample.jsonl"
SAID = json.loads(files("ragtrace.judge").joinpath("support_model.json").read_text())
CONTEXT = "Customers may return purchased shoes within 30 days. The store in Berlin pays the money back."


async def judged(answer: str, *contexts: str) -> tuple[MetricResult, float | None]:
    evaluation = await evaluate(RagRecord.of(answer=answer, contexts=contexts or [CONTEXT]))
    [result] = evaluation.results
    return result, evaluation.suspicion


async def test_every_claim_has_a_probability_of_support_and_a_decided_one_the_confidence_of_its_label() -> (
    None
):
    result, _ = await judged(
        "Customers may return shoes within 30 days. The store in Hamburg pays the money back."
        " It costs 99 euros."
    )
    assert [verdict.label for verdict in result.verdicts] == [
        VerdictLabel.SUPPORTED,
        VerdictLabel.UNJUDGED,
        VerdictLabel.UNSUPPORTED,
    ]
    there, unclear, missing = result.verdicts
    assert there.confidence == there.support
    assert unclear.confidence is None
    assert missing.support is not None
    assert missing.confidence == pytest.approx(1 - missing.support)
    assert there.support > (unclear.support or 0) > missing.support  # type: ignore[operator]


async def test_a_doubtful_answer_is_more_suspicious_than_a_copied_one() -> None:
    _, copied = await judged("Customers may return purchased shoes within 30 days.")
    _, invented = await judged(
        "Customers may return purchased shoes within 30 days. Gift cards last 99 years."
    )
    assert copied is not None
    assert invented is not None
    assert 0 < copied < 0.2 < 0.5 < invented < 1


async def test_no_answer_passes_of_which_less_than_half_is_decided() -> None:
    labels = []
    for answer in read_labeled(SAMPLE):
        [result] = (await evaluate(answer.record)).results
        labels.append(result.label)
        if result.counts.judged * 2 < result.counts.total and not result.counts.unsupported:
            assert result.skip_reason in (SkipReason.UNDECIDED, SkipReason.ALL_UNJUDGED)
    assert {Label.PASS, Label.FAIL, Label.SKIPPED} == set(labels)


@pytest.mark.parametrize("file", SAID["out_of_fold"])
def test_the_shipped_cuts_are_as_precise_as_promised_out_of_fold(file: str) -> None:
    found = SAID["out_of_fold"][file]
    assert found["caught"] / found["flagged"] >= 0.5
    assert found["passed_rightly"] / found["passed"] >= 0.97
    assert found["decided"] == found["flagged"] + found["passed"]
