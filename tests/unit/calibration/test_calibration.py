"""Agreement with people, intervals, labeled rows and recommendations, and figures computed without numpy."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.calibration.agreement import (
    ConfusionCounts,
    Numbers,
    Ranking,
    Resampling,
    ScoredAnswer,
    Weights,
    balanced_accuracy,
)
from ragtrace.calibration.measurement import CandidateRun, JudgeCandidate, MeasuredAnswer, draw
from ragtrace.calibration.summary import CandidateResult, MeasurementPlan, Results, stratum_of, summarize
from ragtrace.errors import InputError
from ragtrace.judge import ScriptedJudge
from ragtrace.labeled_data import HumanLabel, LabeledAnswer, read_labeled
from ragtrace.metrics.judge_card import IntervalEstimate
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import Chunk, Claim, RagRecord, Usage, Verdict, VerdictLabel

S, C, N, U = map(VerdictLabel, ("supported", "contradicted", "unsupported", "unjudged"))


def labeled(human: str, *, id_: str = "a", file: str = "data.jsonl") -> LabeledAnswer:
    """Return an answer; each letter of ``human`` is a claim: ``s``, ``c`` or ``n``."""
    names = {"s": HumanLabel.SUPPORTED, "c": HumanLabel.CONTRADICTED, "n": HumanLabel.UNSUPPORTED}
    chunks = tuple(Chunk(id=str(at), text=f"Chunk {at}.", rank=at) for at in range(2))
    return LabeledAnswer(
        record=RagRecord(id=id_, question="Q?", chunks=chunks, answer="An answer."),
        claims=tuple(Claim(index=at, text=f"Claim {at} of {id_}.") for at in range(len(human))),
        labels=tuple(names[letter] for letter in human),
        supported=set(human) <= {"s"},
        file=file,
    )


def run(*said: VerdictLabel | float) -> CandidateRun:
    """Return a run; a number is P(yes)."""
    verdicts = [
        Verdict(claim=Claim(index=at, text="?"), label=each)
        if isinstance(each, VerdictLabel)
        else Verdict(claim=Claim(index=at, text="?"), label=S if each >= 0.5 else N)
        for at, each in enumerate(said)
    ]
    support = tuple(None if isinstance(each, VerdictLabel) else each for each in said)
    return CandidateRun(
        verdicts=tuple(verdicts), support=support, usage=Usage(calls=1, input_tokens=10), seconds=0.5
    )


def measured(
    position: int, human: str, *runs: CandidateRun | Sequence[CandidateRun], file: str = "data.jsonl"
) -> MeasuredAnswer:
    """Return what each candidate made of an answer."""
    return MeasuredAnswer(
        answer=labeled(human, id_=f"a{position}", file=file),
        position=position,
        runs=tuple((each,) if isinstance(each, CandidateRun) else tuple(each) for each in runs),
        end_to_end=(None,) * len(runs),
    )


def candidate(form: VerifyForm = VerifyForm.JSON, *, runs: int = 1) -> JudgeCandidate:
    """Return a candidate that nothing is asked of."""
    return JudgeCandidate(judge=ScriptedJudge(), form=form, runs=runs)


Pairs = list[tuple[bool, bool | None]]

PAIRS = st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])), max_size=30)
SCORED = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]), st.booleans()), min_size=1, max_size=20
)


def number_of(found: Numbers) -> float | None:
    """Return the number of one draw; None if it is undefined."""
    value = float(np.asarray(found).item())
    return None if np.isnan(value) else value


def even(many: int) -> Weights:
    return np.ones((1, many))


def counts_of(pairs: Pairs) -> ConfusionCounts:
    return ConfusionCounts.total(ConfusionCounts.of(human, judge) for human, judge in pairs)


def decided(pairs: Pairs) -> list[tuple[bool, bool]]:
    return [(human, judge) for human, judge in pairs if judge is not None]


@given(PAIRS)
def test_balanced_accuracy_is_the_mean_over_the_two_sides(pairs: Pairs) -> None:
    sides = [[human == judge for human, judge in decided(pairs) if human is side] for side in (True, False)]
    expected = mean(map(mean, sides)) if all(sides) else None
    assert number_of(balanced_accuracy(counts_of(pairs))) == (
        None if expected is None else pytest.approx(expected)
    )


@given(SCORED)
def test_auc_is_the_chance_that_a_supported_claim_scores_higher(scored: list[tuple[float, bool]]) -> None:
    above = [score for score, supported in scored if supported]
    below = [score for score, supported in scored if not supported]
    found = number_of(ranking(scored).auc(even(len(scored))))
    if not above or not below:
        assert found is None
    else:
        assert found == pytest.approx(mean((a > b) + (a == b) / 2 for a in above for b in below))


@given(SCORED, st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_a_weight_counts_like_so_many_copies(scored: list[tuple[float, bool]], weights: list[int]) -> None:
    copies = [each for each, weight in zip(scored, weights, strict=False) for _ in range(weight)]
    weighted, copied = ranking(scored), ranking(copies)
    drawn, once = np.array([weights[: len(scored)]], dtype=float), even(len(copies))
    assert number_of(weighted.auc(drawn)) == pytest.approx(number_of(copied.auc(once)))
    assert number_of(weighted.best_threshold(drawn)) == number_of(copied.best_threshold(once))


def ranking(scored: list[tuple[float, bool]]) -> Ranking:
    return Ranking(ScoredAnswer(score, supported, at) for at, (score, supported) in enumerate(scored))


def weighed(values: list[float], weights: Weights) -> Numbers:
    return weights @ np.array(values) / weights.sum(axis=1)


def resampled(values: list[float], *, strata: list[str] | None = None, seed: int = 0) -> IntervalEstimate:
    drawn = Resampling([1.0] * len(values), strata or ["all"] * len(values), resamples=200, seed=seed)
    found = drawn.estimate(lambda weights: weighed(values, weights))
    assert found is not None
    return found


@pytest.mark.slow
def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    world = random.Random(1)
    held = 0
    for trial in range(200):
        rates = [world.betavariate(4, 2) for _ in range(60)]  # each answer has its own
        found = resampled([float(world.random() < rate) for rate in rates], seed=trial)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 2 / 3 <= found.high
    assert 180 <= held <= 198


def test_clusters_of_a_group_are_drawn_together() -> None:
    values = [float(at % 2) for at in range(40)]  # twenty of each, in groups that are all right or all wrong
    groups = [f"{at % 2}-{at // 8}" for at in range(40)]
    drawn = Resampling([1.0] * 40, ["all"] * 40, groups, resamples=200)
    found = drawn.estimate(lambda weights: weighed(values, weights))
    assert found is not None
    assert width(found) > 1.5 * width(resampled(values))
    few = Resampling([1.0] * 40, ["all"] * 40, [at % 4 for at in range(40)], resamples=200)
    assert few.estimate(lambda weights: weighed(values, weights)) == IntervalEstimate(value=0.5)  # too few


def width(found: IntervalEstimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def rows_read(path: Path, *rows: Any) -> list[LabeledAnswer]:
    path.write_text(
        "\n".join(a_row if isinstance(a_row, str) else json.dumps(a_row) for a_row in rows), "utf-8"
    )
    return list(read_labeled(path))


def a_row(*labels: str | None, **others: Any) -> dict[str, Any]:
    claims = [{"text": f"Claim {at}.", "label": label} for at, label in enumerate(labels)]
    return {"contexts": ["A chunk."], "claims": claims, **others}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labeled.jsonl"


def test_an_answer_is_as_good_as_people_say_or_as_its_claims(path: Path) -> None:
    expected = [(True, "supported", "supported"), (False, "supported", "contradicted")]
    expected += [(None, "supported", None), (False, "neutral", None)]
    answers = rows_read(path, *(a_row(*labels) for _, *labels in expected))
    assert [answer.supported for answer in answers] == [supported for supported, *_ in expected]
    said = [a_row("supported", answer_label=label) for label in ("neutral", None)]
    assert [answer.supported for answer in rows_read(path, *said)] == [False, None]


def test_a_bad_row_is_named_by_file_line_and_field_without_its_text(path: Path) -> None:
    without_label = {"contexts": [], "claims": [{"text": "secret"}]}
    for bad, said in (
        ("{", "is not JSON"),
        ({"claims": []}, "field `contexts`: it is missing"),
        (without_label, "field `claims.0.label`: it is missing"),
        (a_row("secret"), "field `claims.0.label`"),
    ):
        with pytest.raises(InputError) as caught:
            rows_read(path, a_row("supported"), bad)
        assert str(caught.value).startswith(f"{path}, line 2: {said}")
        assert "secret" not in str(caught.value)


def test_a_sample_holds_answers_with_unsupported_claims(path: Path) -> None:
    answers = rows_read(path, *(a_row("supported" if at % 10 else "neutral") for at in range(100)))
    sample = draw(answers, 16, seed=0)
    assert len({answer.record.id for answer in sample}) == 16
    assert sum(answer.has_unsupported for answer in sample) == 8
    assert sample == draw(answers, 16, seed=0)
    assert sample != draw(answers, 16, seed=1)
    assert sum(answer.has_unsupported for answer in draw(answers, 40, seed=0)) == 10
    assert len(draw(answers, 1000, seed=0)) == len(draw(answers, None, seed=0)) == 100


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
    assert found.recommended.form is VerifyForm.LOGPROBS
    [lead] = found.overall.leads
    assert lead.difference.value == pytest.approx(-3 / 8)  # all supported right, 3 of 4 unsupported
    assert lead.is_clear


def yes(human: str, *, wrong: bool) -> float:
    return 0.9 if human == "s" or wrong else 0.2


KNOWN = Path(__file__).parents[2] / "data" / "calibration_figures.json"
RESAMPLES = 4_000
NOISE = 0.06
"""What an end of an interval may move by, as a share of its width: three standard errors of its quantile."""


def members() -> Iterator[MeasuredAnswer]:
    """Yield answers of two files, with documents, ties, open claims, flips and failures."""
    world = random.Random(17)
    for at in range(150):
        human = "".join(world.choice("sssscn") for _ in range(world.randint(1, 5)))
        said = [CandidateRun(failure="judge_timeout") if world.random() < 0.05 else _json(human, world)]
        said.append(_json(human, world))
        support = [round(world.betavariate(*((3, 2) if each == "s" else (2, 3))), 2) for each in human]
        file = "one" if at % 3 else "two"
        made = measured(at, human, said, run(*support), file=file)
        yield replace(made, answer=replace(made.answer, document=f"document {at // 2}"))


def _json(human: str, world: random.Random) -> CandidateRun:
    right = {"s": S, "c": C, "n": N}
    return run(*(right[each] if world.random() < 0.75 else world.choice([S, N, U]) for each in human))


def figures() -> dict[str, Any]:
    found = list(members())
    population = Counter(stratum_of(each.answer) for each in found)
    plan = MeasurementPlan(
        population={stratum: 3 * size + stratum[1] for stratum, size in population.items()},
        sampled=True,
        resamples=RESAMPLES,
        seed=5,
    )
    candidates = [candidate(runs=2), candidate(VerifyForm.LOGPROBS)]
    results = summarize(found, candidates, plan, lambda *_: None)
    return json.loads(json.dumps(asdict(results)))  # type: ignore[no-any-return]


@pytest.mark.slow
def test_figures_are_the_known_ones() -> None:
    assert list(_differences(figures(), json.loads(KNOWN.read_text()), "")) == []


def _differences(found: Any, known: Any, where: str) -> Iterator[str]:
    if isinstance(known, dict) and known.keys() == {"value", "low", "high"} and known["low"] is not None:
        width = known["high"] - known["low"]
        bounds = {"value": 1e-9, "low": NOISE * width, "high": NOISE * width}
        for end, bound in bounds.items():
            if found[end] != pytest.approx(known[end], abs=bound):
                yield f"{where}.{end}: {found[end]} is not {known[end]}, in an interval {width} wide"
    elif isinstance(known, dict):
        assert found.keys() == known.keys(), where
        for key in known:
            yield from _differences(found[key], known[key], f"{where}.{key}")
    elif isinstance(known, list):
        assert len(found) == len(known), where
        for at, each in enumerate(known):
            yield from _differences(found[at], each, f"{where}[{at}]")
    elif found != (pytest.approx(known, abs=1e-9) if isinstance(known, float) else known):
        yield f"{where}: {found} is not {known}"
