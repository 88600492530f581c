"""One objective under watch: every kind of answer, one after the other, without a collector around it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Label
from ragtrace_collector.alerts.watch import NoticeStatus, SloState, SloWatch
from ragtrace_collector.config import SampleConfig, SloConfig
from ragtrace_collector.store.port import WatchedAnswer

WATCH = SloWatch.of(SloConfig(name="faithful"), SampleConfig())


def judged(
    number: int, *, passes: bool = False, score: float | None = 0.5, probability: float | None = 1.0
) -> WatchedAnswer:
    label = Label.PASS if passes else Label.FAIL
    summary = AnswerSummary(
        key=AnswerKey(f"{number:032x}", f"{1:016x}", "acme"),
        carrier_span_id="",
        time_ns=number,
        judged_ns=number * 1_000_000_000,
        service="shop",
        label=label,
        probability=probability,
        metrics=(MetricSummary(name="faithfulness", label=label, score=score),),
    )
    return WatchedAnswer(id=number, summary=summary)


def after(watch: SloWatch, answers: Iterable[WatchedAnswer]) -> tuple[SloState, list[NoticeStatus]]:
    state, told = watch.begin(), []
    for answer in answers:
        state, notice = watch.after(SloState.of(state.text()), answer)  # as it is stored in between
        told += [notice[0]] if notice else []
    return state, told


def test_an_alarm_comes_once_and_ends_once() -> None:
    answers = [judged(number, passes=not 30 <= number < 60) for number in range(1, 200)]
    state, told = after(WATCH, answers)
    assert told == [NoticeStatus.FIRING, NoticeStatus.RESOLVED]
    assert state.alarm is None
    assert (state.judged, state.failing) == (199, 30)


def test_one_answer_is_no_alarm_also_where_it_stands_for_many() -> None:
    sampled = SloWatch.of(SloConfig(name="faithful", tenant="acme"), SampleConfig(ratio=0.001))
    assert after(sampled, [judged(1, probability=0.001)])[1] == []


def test_a_state_survives_being_written_down() -> None:
    answers = [judged(number, score=None if number % 2 else 0.1) for number in range(1, 30)]
    state, told = after(WATCH, answers)
    assert told == [NoticeStatus.FIRING]
    assert SloState.of(state.text()) == state
    assert state.alarm is not None
    assert state.alarm.worst[0].score == 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"service": "cart"},
        {"tenant": "other"},
        {"model": "m"},
        {"prompt_version": "2"},
        {"metric": "context_recall"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_only_the_traffic_of_the_objective_counts(changes: dict[str, str]) -> None:
    watch = SloWatch.of(SloConfig(name="faithful", **changes), SampleConfig())
    state, told = after(watch, [judged(number) for number in range(1, 30)])
    assert (state.judged, told) == (0, [])


@pytest.mark.parametrize("label", [Label.ERROR, Label.SKIPPED])
def test_where_all_failed_or_were_skipped_nothing_is_known(label: Label) -> None:
    unjudged = [
        replace(
            judged(number),
            summary=replace(
                judged(number).summary,
                metrics=(MetricSummary(name="faithfulness", label=label, score=None),),
            ),
        )
        for number in range(1, 30)
    ]
    state, told = after(WATCH, unjudged)
    assert (state.judged, told) == (0, [])


def test_an_answer_of_unknown_probability_counts_on_neither_side() -> None:
    state, told = after(WATCH, [judged(number, probability=None) for number in range(1, 30)])
    assert (state.judged, told) == (0, [])


def test_a_score_is_compared_as_written_where_the_objective_has_one() -> None:
    watch = SloWatch.of(SloConfig(name="faithful", at_least=0.8), SampleConfig())
    good, _ = after(watch, [judged(1, score=0.8), judged(2, score=0.81)])
    assert (good.judged, good.failing) == (2, 0)
    bad, _ = after(watch, [judged(1, passes=True, score=0.79)])
    assert (bad.judged, bad.failing) == (1, 1)


def test_a_sample_of_what_looks_bad_is_not_taken_for_the_traffic() -> None:
    """3 % of the traffic fail; of what is judged, a quarter: the suspicious answers are all judged."""
    chance = random.Random(0)
    watch = SloWatch.of(SloConfig(name="faithful", objective=0.95), SampleConfig(ratio=0.1))
    answers = []
    for number in range(1, 60_000):
        fails = chance.random() < 0.03
        if fails:
            answers.append(judged(number, probability=1.0))
        elif chance.random() < 0.1:
            answers.append(judged(number, passes=True, probability=0.1))
    state, told = after(watch, answers[:5_000])
    assert state.failing / state.judged > 0.2
    assert told == []
