"""From verdicts beside labels to figures and recommendations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import pytest

from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, draw
from ragtrace.calibration.page import floor_leads
from ragtrace.calibration.summary import CandidateResult, MeasurementPlan, Results, stratum_of, summarize
from ragtrace.judge.lexical import WordShareJudge
from ragtrace.metrics.settings import VerifyForm
from tests.unit.calibration.measurements import S, candidate, measured, run

FLOOR = JudgeCandidate(judge=WordShareJudge(), form=VerifyForm.JSON, is_floor=True)


def plan(members: Sequence[MeasuredAnswer], *, resamples: int = 100) -> MeasurementPlan:
    population = Counter(stratum_of(each.answer) for each in members)
    return MeasurementPlan(population=population, sampled=False, resamples=resamples)


def results(members: Sequence[MeasuredAnswer], *candidates: JudgeCandidate, resamples: int = 100) -> Results:
    asked = candidates or (candidate(),)
    return summarize(members, asked, plan(members, resamples=resamples), lambda identity, usage: None)


def only(
    members: Sequence[MeasuredAnswer], *candidates: JudgeCandidate, resamples: int = 100
) -> CandidateResult:
    [found, *_] = results(members, *candidates, resamples=resamples).overall.candidates
    return found


@pytest.mark.slow
def test_a_sample_with_more_flawed_answers_is_weighted_back() -> None:
    drawn = random.Random(0)
    world = [
        measured(at, human := "n" if at % 10 == 0 else "s", run(said(human, drawn))) for at in range(300)
    ]
    truth = only(world).claims.precision
    by_id = {each.answer.record.id: each for each in world}
    found = []
    for seed in range(60):
        sample = draw([each.answer for each in world], 40, seed=seed)
        of_world = MeasurementPlan(population=plan(world).population, sampled=True, resamples=0)
        members = [by_id[answer.record.id] for answer in sample]
        [of_judge] = summarize(members, [candidate()], of_world, lambda *_: None).overall.candidates
        found.append(of_judge.claims.precision.value)  # type: ignore[union-attr]
    assert truth is not None
    assert mean(found) == pytest.approx(truth.value, abs=0.05)
    assert truth.value < 0.5  # where every second answer is flawed, it would be 0.8


def said(human: str, drawn: random.Random) -> float:
    return 0.9 if (human == "s") == (drawn.random() < 0.8) else 0.1


def test_a_threshold_found_in_noise_is_not_believed() -> None:
    cuts = []
    for seed in range(20):
        drawn = random.Random(seed)
        members = [measured(at, drawn.choice("sn"), run(drawn.random())) for at in range(60)]
        cuts.append(only(members, resamples=0).claim_cut)
    in_sample = mean(cut.at_best for cut in cuts if cut)
    held_out = mean(cut.held_out.value for cut in cuts if cut and cut.held_out)
    assert in_sample > 0.57
    assert abs(held_out - 0.5) < 0.04
    assert all(not cut.is_moved for cut in cuts if cut and cut.held_out.value <= cut.at_default.value)  # type: ignore[union-attr]


def test_the_better_form_is_recommended_and_its_lead_is_on_the_same_answers() -> None:
    members = [
        measured(at, human, run(*(S for _ in human)), run(*(yes(each, wrong=at % 5 == 1) for each in human)))
        for at, human in enumerate(["ssn", "sn", "s", "nn", "sss"] * 4)
    ]
    forms = candidate(VerifyForm.JSON), candidate(VerifyForm.LOGPROBS)
    found = results(members, *forms)
    assert found.recommended is not None
    assert found.recommended.form is VerifyForm.LOGPROBS
    [lead] = found.overall.leads
    assert lead.difference.value == pytest.approx(-3 / 8)  # all supported right, 3 of 4 unsupported
    assert lead.is_clear


def test_a_lead_is_paired_by_claim_and_drawn_by_document() -> None:
    members = [
        replace(each, answer=replace(each.answer, document=f"d{at // 2}"))
        for at, each in enumerate(
            measured(
                at,
                human,
                run(*(0.9 if letter == "s" else 0.2 for letter in human)),
                run(*(0.6 if (at + place) % 3 else 0.4 for place in range(len(human)))),
            )
            for at, human in enumerate(["ssn", "sn", "sns", "nns"] * 5)
        )
    ]
    found = results(members, candidate(), FLOOR)
    [lead] = found.overall.leads
    assert lead.auc is not None
    assert lead.documents == 10
    ahead, behind = (each.claims.auc for each in found.overall.candidates)
    assert ahead is not None
    assert behind is not None
    assert lead.auc.value == pytest.approx(ahead.value - behind.value)
    [(compared, said)] = floor_leads(found.overall)
    assert compared == f"{found.overall.candidates[0].name} minus {found.overall.candidates[1].name}"
    assert said.startswith("AUC +0.")
    assert said.endswith("10 documents")


def yes(human: str, *, wrong: bool) -> float:
    return 0.9 if human == "s" or wrong else 0.2
