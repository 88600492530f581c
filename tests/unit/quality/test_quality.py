"""Reports and comparisons: groups, pairs, corrections, and what is said of what is missing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from ragtrace.answers.summary import AnswerSummary, MetricSummary
from ragtrace.model import Label
from ragtrace.quality.comparing import ComparedAnswer, ComparedSide, VersionComparison, comparable, compare
from ragtrace.quality.report import (
    DisputeCount,
    MeasuredJudge,
    QualityReport,
    ReportRequest,
    quality_report,
)
from ragtrace.quality.wording import render_page, report_as_json
from ragtrace.stats import CountedShare, JudgeErrors, Weighed, weighted_mean
from tests.unit.answers.rows import HOUR_NS, NOON_NS, a_row

LEXICAL, MODEL = "lexical:lexical-v2", "openai:gpt-4o-mini"


def judged(number: int, score: float | None, **fields: object) -> AnswerSummary:
    """Return an answer with one metric; without a score it failed."""
    label = Label.ERROR if score is None else Label.PASS if score >= 0.8 else Label.FAIL
    metric = MetricSummary(name="faithfulness", label=label, score=score)
    given = {"metrics": (metric,), "label": label, "judge": MODEL, **fields}
    return a_row(number, minute=number, **given)


def traffic(answers: int, *, seed: int = 1, **fields: object) -> Iterator[AnswerSummary]:
    """Yield those that are sampled: three in four of all pass, and bad ones are sampled more often."""
    draw = random.Random(seed)
    for number in range(1, answers + 1):
        score = 1.0 if draw.random() < 0.75 else round(draw.uniform(0, 0.79), 2)
        probability = 0.2 if score == 1 else 0.6
        if draw.random() < probability:
            yield judged(number, score, **{"probability": probability, "cost_usd": 0.002, **fields})


FORM = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[3] / "docs" / "report.schema.json").read_text("utf-8"))
)
ALL = ReportRequest()


def report_of(answers: Iterable[AnswerSummary], request: ReportRequest = ALL) -> QualityReport:
    """Make a report; it must have a page and JSON of the documented form."""
    found = request.collector()
    for answer in answers:
        found.add(answer)
    until_ns = NOON_NS + 48 * HOUR_NS
    report = quality_report(request, found, place="store:test.db", since_ns=NOON_NS, until_ns=until_ns)
    assert render_page(report).startswith("<!doctype html>")
    FORM.validate(json.loads(json.dumps(report_as_json(report), allow_nan=False)))
    return report


def errors(good: tuple[int, int] = (190, 200), bad: tuple[int, int] = (45, 50)) -> MeasuredJudge:
    return MeasuredJudge(
        name=MODEL,
        errors=JudgeErrors(
            sensitivity=CountedShare(right=good[0], of=good[1]),
            specificity=CountedShare(right=bad[0], of=bad[1]),
        ),
    )


def test_the_estimates_are_those_of_the_statistics_with_all_that_stands_beside_them() -> None:
    answers = [*traffic(500), judged(900, None), judged(901, None)]
    (metric,) = report_of(answers).whole.metrics
    scored = [answer for answer in answers if answer.metrics[0].score is not None]
    expected = weighted_mean(
        Weighed(answer.metrics[0].score or 0.0, answer.probability, answer.key.trace_id) for answer in scored
    )
    assert metric.mean == expected
    assert (metric.results, metric.judged, metric.failed, metric.skipped) == (
        len(answers),
        len(scored),
        2,
        0,
    )
    assert metric.population == pytest.approx(500, rel=0.2)
    assert metric.passing.low < 0.75 < metric.passing.high


def test_groups_have_only_their_own_answers_the_largest_first() -> None:
    answers = [
        *traffic(60, service="small"),
        *traffic(300, seed=2, service="large"),
        judged(999, 1.0, service=""),
    ]
    report = report_of(answers, replace(ALL, by="service"))
    assert [group.name for group in report.groups] == ["large", "small", "(none)"]
    assert sum(group.answers for group in report.groups) == report.whole.answers == len(answers)


def test_what_a_calibration_cannot_correct_is_said() -> None:
    for answers, measured, said in [
        ([judged(1, 1.0, judge=LEXICAL)], errors(), "others judged, too"),
        ([judged(1, 1.0)], errors((100, 200), (25, 50)), "no better than a coin"),
        ([judged(1, None)], errors(), "nothing is corrected"),
    ]:
        report = report_of(answers, replace(ALL, measured=measured))
        assert all(metric.corrected is None for metric in report.whole.metrics), answers
        assert any(said in notice for notice in report.notices), answers


def test_all_failed_is_no_score() -> None:
    report = report_of([judged(number, None) for number in range(5)])
    (metric,) = report.whole.metrics
    assert (metric.results, metric.judged, metric.failed, metric.mean) == (5, 0, 5, None)
    assert "faithfulness has no score: 5 of 5 results failed, 0 were skipped" in report.notices


def test_scores_of_unknown_probability_are_left_out_and_counted() -> None:
    near = [judged(number, 0.0, probability=None) for number in range(3_000, 3_050)]
    report = report_of([*traffic(300), *near])
    (metric,) = report.whole.metrics
    assert metric.left_out == 50
    assert metric.passing.mean > 0.6
    assert any(notice.startswith("faithfulness: 50 of ") for notice in report.notices)


@pytest.mark.slow
def test_disputed_answers_are_counted_among_those_that_several_evaluations_decided() -> None:
    others = [
        replace(judged(number, score), judge="other:judge", is_disputed=score < 0.5)
        for number, score in ((1, 0.1), (2, 1.0))
    ]
    first = [replace(judged(number, 1.0), is_disputed=number == 1) for number in (1, 2, 3)]
    undecided = [replace(judged(number, None), judge="other:judge") for number in (3,)]
    answers = [*first, *others, *undecided]
    for request in (ALL, replace(ALL, judge="other:judge")):
        report = report_of(answers, request)
        assert report.disputes == DisputeCount(disputed=1, of=2)
        assert report_as_json(report)["disputes"] == {"disputed": 1, "of": 2}
        assert "Disputed: 1 of 2 (50 %) answers that several evaluations decided" in render_page(report)
    assert "Disputed" not in render_page(report_of(first))


@pytest.mark.slow
def test_a_bomb_of_names_is_one_group_beyond_ten_thousand() -> None:
    request = replace(ALL, by="model")
    found = request.collector()
    for number in range(1, 10_051):
        found.add(judged(number, 1.0, model=f"model-{number}"))
    assert len(found.groups) == 10_001
    assert found.groups["(other)"].answers == 50


def compared(first: Iterable[AnswerSummary], second: Iterable[AnswerSummary]) -> VersionComparison:
    sides = (
        ComparedSide(name=name, answers=[*map(ComparedAnswer.of_summary, side)])
        for name, side in (("a", first), ("b", second))
    )
    return compare(*sides)


def test_questions_are_the_same_but_for_what_makes_no_other_question() -> None:
    for one, other, is_same in [
        ("How long?", "how  long", True),
        ("What’s “new”?", "what's new", True),  # noqa: RUF001
        ("What is C++?", "What is C#?", False),
        ("Is it 1.5?", "Is it 15?", False),
        ("Is it -5?", "Is it 5?", False),
    ]:
        assert (comparable(one) == comparable(other)) is is_same, one


def test_traffic_without_pairs_is_two_samples_with_their_weights() -> None:
    worse = (judged(number, 0.3, probability=0.1) for number in range(2_000, 2_060))
    found = compared(traffic(400), worse)
    (metric,) = found.metrics
    assert not found.is_paired
    assert metric.passing.first == pytest.approx(0.75, abs=0.07)  # the sample has more bad answers
    assert metric.verdict(passes=True) == "worse"
    assert any("compared as two samples" in notice for notice in found.notices)


def test_the_newest_evaluation_of_an_answer_counts() -> None:
    old, new = judged(1, 0.2, judged_ns=1, probability=1.0), judged(1, 0.9, judged_ns=2, probability=1.0)
    found = compared([new, old], [judged(1, 0.9, probability=1.0)])
    assert found.changes == ()
    assert any("1 evaluations in A are of answers with a newer one" in notice for notice in found.notices)
