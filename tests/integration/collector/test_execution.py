"""Judging in a collector: what becomes of answers if the judge refuses, is slow, or costs too much."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.errors import JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.model import Usage
from ragtrace_collector.config import CollectorConfig
from tests.integration.cli import program
from tests.integration.collector.broken_metric import BROKEN
from tests.integration.collector.paid_judge import PAID, Paid, paid
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.stepping import StandingClock, Stepped, stepped_collector
from tests.integration.collector.test_operations import scrape, total
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import HttpAnswer, http_server

pytestmark = pytest.mark.slow

HOUR = 3600.0
DAY = 24 * HOUR
REFUSED = JudgeRefused("judge m at host: it does not accept the key (HTTP 401)", usage=Usage())
LATE = JudgeTimeout("judge m at host: no answer", usage=Usage())
CALLS_AN_ANSWER = 2


@pytest.fixture
def judge(tmp_path: Path) -> Paid:
    """What the judge of this test does."""
    return paid(str(tmp_path))


def config(folder: Path, **changes: Any) -> CollectorConfig:
    """Return a configuration whose judge costs money, and whose delays are seconds."""
    own: dict[str, Any] = {
        "judge": {"use": f"{PAID}{folder}", "sentinel_rate": 0},
        "evaluate": {"retry_delays": ["10s", "60s"], "probe_delays": ["5s", "20s"], "deadline": "12h"},
    }
    for key, value in changes.items():
        own[key] = {**own.get(key, {}), **value} if isinstance(value, dict) else value
    return config_of(folder, **own)


async def settled(spans: Stepped, *numbers: int) -> None:
    """Send answers, and let them be queued and judged as far as that is possible now."""
    for number in numbers:
        await spans.send(*rag_trace(number))
    await spans.pass_time(1)


async def queued(spans: Stepped, *numbers: int) -> None:
    """Send answers, and let them be queued."""
    for number in numbers:
        await spans.send(*rag_trace(number))
    spans.clock.time_ns += 1_000_000_000
    await spans.collector.pipeline.sample_stage.step()


# --- the judge may refuse


async def test_answers_wait_while_the_judge_refuses_and_lose_no_attempt(tmp_path: Path, judge: Paid) -> None:
    judge.failure = REFUSED
    async with stepped_collector(config(tmp_path, evaluate={"retry_delays": []})) as spans:
        await settled(spans, 0, 1, 2)
        assert await spans.outcomes() == {"postponed:judge_refused": 2, "queued": 1}
        assert judge.calls == 2
        judge.failure = None
        await spans.pass_time(5)
        assert await spans.outcomes() == {"judged": 3}


async def test_the_reason_names_the_status_and_where_the_key_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-wrong")
    with http_server(lambda _: HttpAnswer(status=401)) as server:
        judge = {"use": "openai:m", "base_url": f"{server.url}/v1", "api_key_env": "JUDGE_KEY"}
        async with stepped_collector(config_of(tmp_path, judge=judge)) as spans:
            await settled(spans, 0, 1)
            status: Any = await spans.collector.vitals.status()
    reason = status["judges"]["judge"]["reason"]
    assert "HTTP 401" in reason
    assert "its key is read from JUDGE_KEY" in reason
    assert "sk-wrong" not in reason


# --- the judge may be slow


async def test_an_answer_is_tried_again_after_each_delay_and_then_ends(tmp_path: Path, judge: Paid) -> None:
    judge.failure = LATE
    async with stepped_collector(config(tmp_path)) as spans:
        calls = []
        for seconds in (1, 9, 1, 59, 1, 1000):
            await settled(spans, 0)
            await spans.pass_time(seconds)
            calls.append(judge.calls)
        assert await spans.outcomes() == {"failed:judge_timeout": 1}
        (carrier,) = spans.carriers()
    assert carrier.name == "evaluation error"
    assert calls[-1] == 3


async def test_who_is_told_to_stop_gives_the_answer_back_as_it_was(tmp_path: Path, judge: Paid) -> None:
    judge.open.clear()
    async with running_collector(config(tmp_path, drain_timeout="0s")) as collector:
        await post(collector, request_of(*rag_trace(0)))
        await until(lambda: judge.calls)
    judge.open.set()
    async with stepped_collector(config(tmp_path)) as spans:
        (job,) = await spans.collector.pipeline.store.take_jobs(1, now_ns=2**62)
    assert (job.attempts, job.crashes, job.reason) == (0, 0, "")


# --- the judge may cost too much


def limited(limit: str, number: float, period: str = "day", **more: Any) -> dict[str, Any]:
    return {"live": {period: f"{number} {limit}"}, **more}


async def test_at_the_wall_answers_wait_for_the_next_window(tmp_path: Path, judge: Paid) -> None:
    budget = limited("calls", 2 * CALLS_AN_ANSWER)
    async with stepped_collector(config(tmp_path, budget=budget, evaluate={"deadline": "48h"})) as spans:
        await settled(spans, 0, 1, 2, 3)
        assert await spans.outcomes() == {"judged": 2, "postponed:over_budget": 1, "queued": 1}
        assert judge.calls == 2 * CALLS_AN_ANSWER
        await spans.pass_time(DAY)
        assert await spans.outcomes() == {"judged": 4}


async def test_an_answer_that_cannot_wait_for_the_next_window_is_over_budget(tmp_path: Path) -> None:
    budget = limited("calls", CALLS_AN_ANSWER, "month")
    async with stepped_collector(config(tmp_path, budget=budget)) as spans:
        await settled(spans, 0, 1, 2)
        assert await spans.outcomes() == {"judged": 1, "over_budget:month_calls": 2}
        assert [span.name for span in spans.carriers()] == ["evaluation pass"]


async def test_if_the_budget_is_to_last_less_is_sampled_with_its_probability_on_record(
    tmp_path: Path,
) -> None:
    budget, clock = limited("calls", 12, "month", at_limit="lower_rate"), StandingClock()
    async with running_collector(config(tmp_path, budget=budget), clock=clock) as collector:
        spans = Stepped(collector=collector, clock=clock, out=tmp_path / "out.jsonl")
        guards = collector.live.guarded.guards
        assert guards is not None
        assert guards.budget_guard is not None
        await queued(spans, 0, 1)
        await until(lambda: len(spans.carriers()) == 2)
        clock.time_ns += 2_000_000_000
        share = await until(
            lambda: guards.budget_guard.share_to_sample < 1 and guards.budget_guard.share_to_sample
        )
        await queued(spans, *range(2, 8))
        await until(lambda: len(spans.carriers()) > 2)
        sampled_out = (await spans.outcomes())["sampled_out"]
    probabilities = [span.attributes[semconv.SAMPLE_PROBABILITY] for span in spans.carriers()]
    assert probabilities[:3] == [1.0, 1.0, share]
    assert 0 < sampled_out < 6


# --- which chosen answers got a score, by metric, in the last minutes


async def coverage(spans: Stepped) -> dict[str, float]:
    """Return the share by metric as the metrics tell it."""
    readings = await spans.collector.vitals.readings()
    told = readings["ragtrace.evaluation.coverage"]
    return {each.attributes["gen_ai.evaluation.name"]: each.value for each in told}


async def test_an_answer_of_which_a_metric_failed_is_judged_partly_wherever_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    evaluate = {"metrics": ["faithfulness", BROKEN]}
    async with running_collector(
        config_of(tmp_path, judge={"use": "lexical"}, evaluate=evaluate)
    ) as collector:
        await post(collector, request_of(*rag_trace(0), *rag_trace(1, answer="Refunds BREAK in 14 days.")))
        await until(lambda: collector.counters.snapshot()["answers_judged"] == 2)
        samples = await scrape(collector)
    answers = {"state": "judged", "reason": "partly"}
    assert total(samples, "ragtrace_answers", **answers) == 1
    assert total(samples, "ragtrace_answers", state="judged") == 2 == total(samples, "ragtrace_answers_seen")
    covered = {
        name: total(samples, "ragtrace_evaluation_coverage", gen_ai_evaluation_name=name)
        for name in ("faithfulness", "broken")
    }
    assert covered == {"faithfulness": 1, "broken": 0.5}
    assert total(samples, "ragtrace_evaluation_chosen", gen_ai_evaluation_name="broken") == 2
    assert "has no score of broken (ValueError" in caplog.text
    assert "BREAK" not in caplog.text
    store = ("--from", f"store:{tmp_path}/store.db")
    why = program.run("why", trace_id_of(1), *store).output
    assert "judged, partly" in why
    assert "has no score of broken" in why
    assert "1 judged answer partly" in program.run("ledger", *store).output
    assert "judged:partly" in program.run("ledger", "--by", "reason", *store).output


async def test_an_outage_is_seen_within_minutes_in_a_store_of_any_age(tmp_path: Path) -> None:
    judge = paid("outage")
    settings = config_of(
        tmp_path,
        judge={"use": f"{PAID}outage", "sentinel_rate": 0},
        evaluate={"retry_delays": ["2m", "1h", "4h"], "metrics": ["faithfulness"]},
    )
    async with stepped_collector(settings) as spans:
        await settled(spans, *range(40))
        await spans.pass_time(60 * 60)
        assert await coverage(spans) == {}
        await settled(spans, 40, 41)
        assert await coverage(spans) == {"faithfulness": 1}
        judge.failure = JudgeUnavailable("no connection", usage=Usage())
        await settled(spans, 42, 43)
        assert await coverage(spans) == {"faithfulness": 0.5}
        await spans.pass_time(11 * 60)
        assert await coverage(spans) == {"faithfulness": 0}
    async with stepped_collector(settings, clock=spans.clock) as again:
        assert await coverage(again) == {"faithfulness": 0}, "a restart forgets that answers wait"
        judge.failure = None
        await again.pass_time(60 * 60)
        assert await coverage(again) == {"faithfulness": 1}
