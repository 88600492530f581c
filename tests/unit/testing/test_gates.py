from __future__ import annotations

import pytest

from ragtrace import RagRecord, evaluate_sync
from ragtrace.testing import Script, ScriptedJudge, assert_faithful, assert_metrics

RECORD = RagRecord.of(
    id="returns",
    question="How long can I return an order?",
    contexts={"faq-12": "Orders can be returned within 14 days. The shop is open."},
    answer="Orders can be returned within 30 days. The shop is open.",
)
UNANSWERED = RagRecord.of(id="no", question="Why?", contexts=["Cats purr."], answer="")


def test_an_answer_that_reaches_its_scores_gives_its_evaluation() -> None:
    assert assert_metrics(RECORD, judge=ScriptedJudge(), faithfulness=0.5).results[0].score == 0.5


def test_the_message_names_scores_claims_and_chunks() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_faithful(RECORD, judge=ScriptedJudge())
    assert str(caught.value).splitlines() == [
        "record returns fails 1 of 1 metrics (judge scripted:scripted)",
        "faithfulness: 1 of 2 claims contradicted; score 0.5, threshold 1",
        "  contradicted: Orders can be returned within 30 days.",
        "    faq-12: “Orders can be returned within 14 days.”",
        "    the numbers differ",
    ]


def test_a_metric_that_had_nothing_to_judge_fails_the_gate_unless_allowed() -> None:
    with pytest.raises(AssertionError, match=r"not measured, no_content: .*allow_skipped=True"):
        assert_metrics(UNANSWERED, judge="scripted", faithfulness=0.8)
    assert_metrics(UNANSWERED, judge="scripted", faithfulness=0.8, allow_skipped=True)


def test_a_judge_that_fails_fails_the_gate() -> None:
    broken = ScriptedJudge(Script(error="judge_timeout"))
    with pytest.raises(AssertionError, match="faithfulness: error judge_timeout"):
        assert_metrics(RECORD, judge=broken, faithfulness=0.0, allow_skipped=True)


def test_text_under_judgment_cannot_steer_the_terminal() -> None:
    steering = RagRecord.of(question="?", contexts=["Cats purr."], answer="Dogs \x1b[2Jbark loudly.")
    with pytest.raises(AssertionError) as caught:
        assert_faithful(steering, judge="scripted")
    assert "\x1b" not in str(caught.value)


async def test_it_can_be_waited_for_inside_a_running_event_loop() -> None:
    assert evaluate_sync(RECORD, judge="scripted").results[0].score == 0.5
