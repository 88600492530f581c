"""Criteria of one's own: one request for all, a version by the text, and what becomes of odd replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ragtrace.answers.carrier import read_carrier
from ragtrace.answers.shown import shown_answer
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import CriteriaReply
from ragtrace.metrics import metric_named
from ragtrace.metrics.answers import criterion_named
from ragtrace.model import JudgedAnswer, Label, RagRecord, Sample, Target, VerdictLabel
from ragtrace.pipeline import evaluate, evaluator_version
from ragtrace.ports import JudgeRequest
from ragtrace.traces.attach import AttachOptions, carrier

RECORD = RagRecord.of(
    question="How long do refunds take?",
    contexts={"faq": "Refunds take 14 days."},
    answer="Refunds take 14 days. Then call the shop.",
)
TEXTS = {"next_step": "The answer names the next step", "short": "The answer is short", "kind": "It is kind"}
METRICS = [metric_named(name, criterion=text) for name, text in TEXTS.items()]


async def test_several_criteria_take_one_call() -> None:
    judge = ScriptedJudge(Script(criteria={TEXTS["next_step"]: True, TEXTS["short"]: True}))
    evaluation = await evaluate(RECORD, metrics=METRICS, judge=judge)
    assert [(result.metric, result.score) for result in evaluation.results] == [
        ("next_step", 1.0),
        ("short", 1.0),
        ("kind", 0.0),
    ]
    assert judge.calls == {"criteria": 1}
    [request] = judge.requests
    # the operator's words are no material of others, and stand before it
    assert request.user.startswith(
        "criteria:\n[1] The answer names the next step\n[2] The answer is short\n[3] It is kind\n<<question "
    )
    assert "chunk" not in request.user


async def test_a_number_that_the_judge_leaves_out_is_asked_for_again_then_unjudged_or_an_error() -> None:
    def forgetful(request: JudgeRequest[Any]) -> CriteriaReply:
        reply = ScriptedJudge().reply_to(request)
        assert isinstance(reply, CriteriaReply)
        return CriteriaReply(criteria=reply.criteria[:1])

    judge = ScriptedJudge(forgetful)
    evaluation = await evaluate(RECORD, metrics=METRICS, judge=judge)
    assert judge.calls == {"criteria": 2}
    assert {failure.error_type for failure in evaluation.failures} == {"judge_nonsense"}


def test_the_version_changes_with_the_text_alone() -> None:
    def version(text: str) -> str:
        return evaluator_version([metric_named("next_step", criterion=text)], ScriptedJudge())

    assert version("Names the next step") == version(" Names  the\nnext step ")
    assert version("Names the next step") != version("Names a next step")


async def test_the_carrier_says_it_and_is_read_back() -> None:
    target = Target(trace_id="ab" * 16, span_id="cd" * 8, start_ns=1, end_ns=2_000_000)
    record = replace(RECORD, target=target)
    script = Script.model_validate(
        {"criteria": {TEXTS["short"]: {"met": False, "quote": "Then call the shop"}}}
    )
    evaluation = await evaluate(record, metrics=METRICS[1:2], judge=ScriptedJudge(script))
    sample = Sample(rule="ratio", rate=1.0, probability=1.0)
    span = carrier(
        evaluation, record, sample=sample, mode="append", options=AttachOptions(), now_ns=3_000_000
    )
    assert span.attributes["ragtrace.label.short"] == "fail"
    assert span.attributes["ragtrace.brief"] == "short 0.00 fail: criterion not met"
    [said] = [event for event in span.events if event.name == "ragtrace.claim.not_met"]
    assert said.attributes["ragtrace.claim.kind"] == "criterion"
    version = read_carrier(span, record)
    [result] = version.judged.evaluation.results
    [verdict] = result.verdicts
    assert (result.label, verdict.label) == (Label.FAIL, VerdictLabel.NOT_MET)
    assert (verdict.claim.text, verdict.quote) == (TEXTS["short"], "Then call the shop")
    shown = shown_answer(JudgedAnswer(record=record, evaluation=version.judged.evaluation))
    assert (shown.claims, [each.is_wrong for each in shown.criteria]) == ((), [True])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            "The answer names the next step",
            ("the_answer_names_the_next_step", "The answer names the next step"),
        ),
        ("polite=It is polite", ("polite", "It is polite")),
        ("Nennt eine Öffnungszeit", ("nennt_eine_offnungszeit", "Nennt eine Öffnungszeit")),
        ("3 steps", ("criterion_3_steps", "3 steps")),
        ("x" * 50, ("x" * 40, "x" * 50)),
        (
            "The answer tells the customer what happens next",
            ("the_answer_tells_the_customer_what", "The answer tells the customer what happens next"),
        ),
    ],
)
def test_a_name_is_given_or_made_of_the_words(given: str, named: tuple[str, str]) -> None:
    assert criterion_named(given) == named
