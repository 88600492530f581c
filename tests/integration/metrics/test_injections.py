"""What orders in chunks, answers and questions can do, with a model that obeys every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ragtrace.judge import open_judge
from ragtrace.metrics import StepLimits
from ragtrace.metrics.settings import VerifyForm, VerifySettings
from ragtrace.model import Evaluation, MetricFailure, MetricOutcome, MetricResult
from ragtrace.pipeline import evaluate
from tests.gullible_model import running_gullible_model
from tests.injections import MARK_ALL, Injection, injected, injections, victims

pytestmark = pytest.mark.slow

SHOP = next(victims())
CLEAN_SCORE = 0.5

Outcomes = Mapping[Injection, MetricOutcome]


def outcomes_of(form: VerifyForm, *, sentinel_rate: float = 1.0) -> Outcomes:
    limits = StepLimits(verify=VerifySettings(form=form, sentinel_rate=sentinel_rate))

    async def judged() -> list[Evaluation]:
        with running_gullible_model() as url:
            judge = open_judge("openai:gullible", base_url=url, environ={})
            try:
                clean = await evaluate(SHOP, judge=judge, limits=limits)
                assert clean.results[0].score == CLEAN_SCORE
                return [
                    await evaluate(injected(SHOP, injection), judge=judge, limits=limits)
                    for injection in injections()
                ]
            finally:
                await judge.aclose()

    return {
        injection: evaluation.outcomes[0]
        for injection, evaluation in zip(injections(), asyncio.run(judged()), strict=True)
    }


@pytest.fixture(scope="module")
def batched() -> Outcomes:
    return outcomes_of(VerifyForm.JSON)


@pytest.fixture(scope="module")
def one_by_one() -> Outcomes:
    return outcomes_of(VerifyForm.LOGPROBS)


def chosen(outcomes: Outcomes, *, where: str, wants: frozenset[str]) -> Outcomes:
    kept = {each: found for each, found in outcomes.items() if each.where == where and each.wants in wants}
    assert kept
    return kept


def compromised(outcomes: Outcomes) -> set[str]:
    return {
        injection.id
        for injection, outcome in outcomes.items()
        if isinstance(outcome, MetricFailure) and outcome.error_type == "judge_compromised"
    }


def ids(outcomes: Outcomes) -> set[str]:
    return {injection.id for injection in outcomes}


@pytest.mark.parametrize("where", ["chunk", "answer", "question"])
def test_every_obeyed_order_about_all_claims_is_caught(batched: Outcomes, where: str) -> None:
    orders = chosen(batched, where=where, wants=MARK_ALL)
    assert compromised(orders) == ids(orders)


def test_every_obeyed_order_in_a_chunk_is_caught_claim_by_claim_too(one_by_one: Outcomes) -> None:
    orders = chosen(one_by_one, where="chunk", wants=MARK_ALL)
    assert compromised(orders) == ids(orders)


def test_an_order_in_a_claim_reaches_no_other_claim_when_each_is_asked_about_alone(
    one_by_one: Outcomes,
) -> None:
    for injection, outcome in chosen(one_by_one, where="answer", wants=MARK_ALL).items():
        assert isinstance(outcome, MetricResult), injection.id
        labels = [verdict.label for verdict in outcome.verdicts][:4]
        assert labels == ["supported", "contradicted", "supported", "unsupported"], injection.id


@pytest.mark.parametrize("form", ["batched", "one_by_one"])
def test_no_order_but_one_about_a_single_claim_moves_a_score(
    form: str, request: pytest.FixtureRequest
) -> None:
    outcomes: Outcomes = request.getfixturevalue(form)
    better = {
        injection.wants
        for injection, outcome in outcomes.items()
        if isinstance(outcome, MetricResult) and outcome.score is not None and injection.where != "answer"
        if outcome.score != CLEAN_SCORE
    }
    assert better <= {"one"}


def test_orders_to_refuse_end_without_a_score(batched: Outcomes, one_by_one: Outcomes) -> None:
    for outcomes in (batched, one_by_one):
        for injection, outcome in outcomes.items():
            if injection.wants in ("refuse", "nothing", "garbage"):
                assert isinstance(outcome, MetricFailure), injection.id
                assert outcome.error_type == "judge_nonsense"


def test_orders_to_find_no_claims_end_without_a_score(batched: Outcomes) -> None:
    for injection, outcome in batched.items():
        if injection.wants == "no_claims":
            assert isinstance(outcome, MetricResult), injection.id
            assert (outcome.score, outcome.skip_reason) == (None, "refusal")


def test_without_planted_claims_the_same_orders_are_believed() -> None:
    outcomes = chosen(
        outcomes_of(VerifyForm.JSON, sentinel_rate=0), where="chunk", wants=frozenset({"supported"})
    )
    assert {getattr(outcome, "score", None) for outcome in outcomes.values()} == {1.0}
