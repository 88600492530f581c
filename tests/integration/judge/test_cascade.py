"""The cascade: a screen decides what it is sure of, a model the rest, and every verdict says who gave it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ragtrace import evaluate_sync
from ragtrace.budget.prices import load_prices
from ragtrace.judge import ScriptedJudge, open_judge
from ragtrace.judge.layers import ScreenSpec, screened
from ragtrace.model import (
    Chunk,
    DecidedBy,
    Evaluation,
    JudgeIdentity,
    MetricFailure,
    RagRecord,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.testing import check_judge
from tests.integration.cli.program import json_lines, run

SURE = (
    "The standard guarantee covers the glass frame of every parasol for ten years from the day of purchase."
)
WRONG = "Refunds take 99 days after the parcel arrives."
OPEN = "The fabric fades slowly."
RECORD = RagRecord(
    id="r",
    question="What does the guarantee cover?",
    chunks=(
        Chunk(id="c1", text=f"{SURE} It does not cover the fabric, which fades."),
        Chunk(id="c2", text="Refunds take 14 days after the parcel arrives at our warehouse in Leiden."),
    ),
    answer=f"{SURE} {WRONG} {OPEN}",
)


class Model(ScriptedJudge):
    """A script that passes for a language model: it is asked canary claims, too, and costs money."""

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="openai", model="gpt-4o-mini")


def judged(model: ScriptedJudge, record: RagRecord = RECORD, **spec: object) -> Evaluation:
    cascade = screened(model, open_judge("lexical"), ScreenSpec(**spec))  # type: ignore[arg-type]
    return evaluate_sync(record, judge=cascade)


def verdicts(evaluation: Evaluation) -> dict[str, Verdict]:
    [outcome] = evaluation.outcomes
    assert not isinstance(outcome, MetricFailure), outcome.message
    return {verdict.claim.text: verdict for verdict in outcome.verdicts}


def claims_shown(model: ScriptedJudge) -> list[set[str]]:
    """Return the claims of each request, without canary claims."""
    return [set(request.items.values()) for request in model.requests if request.step == "verify"]


def test_the_model_sees_only_what_the_screen_leaves_open() -> None:
    model = Model()
    found = verdicts(judged(model))
    [shown] = claims_shown(model)
    assert shown == {WRONG, OPEN}
    assert found[SURE].decided_by is DecidedBy.SCREEN
    assert found[WRONG].decided_by is found[OPEN].decided_by is DecidedBy.JUDGE
    assert found[SURE].quote_verified


def test_an_answer_that_the_screen_decides_alone_costs_no_call() -> None:
    model = Model()
    evaluation = judged(model, replace(RECORD, answer=SURE))
    assert verdicts(evaluation)[SURE].label is VerdictLabel.SUPPORTED
    assert evaluation.usage == Usage()
    assert model.requests == []
    assert load_prices().cost_of(evaluation) == 0.0


def test_a_screened_evaluator_is_another_one() -> None:
    plain, first, second = (
        evaluate_sync(RECORD, judge=Model()),
        judged(Model()),
        judged(Model(), band=(0.2, 0.9)),
    )
    assert len({each.evaluator_version for each in (plain, first, second)}) == 3
    assert first.judge.name == "openai:gpt-4o-mini after lexical:lexical-v4 [0.1, 0.9]"
    assert first.judge_card == "none", "neither judge's card holds for both together"


@given(st.permutations([SURE, WRONG, OPEN]), st.floats(0.01, 0.5), st.floats(0.5, 0.99, exclude_min=True))
def test_every_claim_is_decided_once_whatever_the_order_and_the_band(
    sentences: list[str], low: float, high: float
) -> None:
    model = Model()
    found = verdicts(judged(model, replace(RECORD, answer=" ".join(sentences)), band=(low, high)))
    asked = set().union(*claims_shown(model))
    assert list(found) == sentences
    for text, verdict in found.items():
        assert verdict.support is not None
        assert (verdict.decided_by is DecidedBy.JUDGE) == (text in asked)
        if verdict.decided_by is DecidedBy.SCREEN:
            assert not low <= verdict.support <= high


def test_it_is_a_judge_like_any_other() -> None:
    check_judge(screened(ScriptedJudge(), open_judge("lexical"), ScreenSpec()))


def test_the_command_line_asks_a_cascade(tmp_path: Path) -> None:
    cases, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    row = {"question": RECORD.question, "contexts": [c.text for c in RECORD.chunks], "answer": RECORD.answer}
    cases.write_text(json.dumps(row))
    asked = ("evaluate", str(cases), "--judge", "scripted", "--set", "judge.screen=lexical", "--json")
    told = run(*asked, "--set", "judge.band=[0.4, 0.9]", "--out", str(out))
    assert told.exit_code == 0, told.stderr
    assert "after the screen lexical:lexical-v4 [0.4, 0.9]" in told.stderr
    (line,) = json_lines(told.stdout)
    assert line["judge"] == "scripted:scripted after lexical:lexical-v4 [0.4, 0.9]"
    assert [verdict["decided_by"] for verdict in line["verdicts"]] == ["screen", "screen", "judge"]
    for options, said in (
        (("--set", "judge.band=0.4"), "`judge.band`: write "),
        (("--judge", "lexical"), "computes as the screen does"),
    ):
        refused = run(*asked, *options)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert said in " ".join(refused.stderr.split())
