"""How to test a metric of one's own: with a judge that follows a script, without key or network."""

from __future__ import annotations

from typing import Any

from ragtrace_politeness import Politeness, RudeReply, Shown

from ragtrace import RagRecord, evaluate_sync
from ragtrace.ports import JudgeRequest
from ragtrace.testing import ScriptedJudge, check_metric


def say(request: JudgeRequest[Any]) -> RudeReply:
    """Find rude what speaks of fools, and name a sentence that does not exist besides."""
    assert isinstance(request.inputs, Shown)
    numbered = enumerate(request.inputs.sentences, start=1)
    return RudeReply(rude=[number for number, text in numbered if "fool" in text] + [99])


def test_the_score_is_the_share_of_sentences_that_are_not_rude() -> None:
    record = RagRecord.of(question="When?", answer="Only a fool asks that. The shop opens at nine.")
    [result] = evaluate_sync(record, metrics=[Politeness()], judge=ScriptedJudge(say)).results
    assert result.score == 0.5
    assert result.label == "fail"
    assert result.explanation == "1 of 2 sentences rude: 1; score 0.5, threshold 1"


def test_it_keeps_what_every_metric_promises() -> None:
    check_metric(Politeness(), judge=ScriptedJudge(say))
