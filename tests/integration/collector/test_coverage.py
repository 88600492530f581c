"""Coverage: which chosen answers got a score, by metric, in the last minutes; and answers judged partly."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ragtrace.errors import JudgeUnavailable
from ragtrace.model import Usage
from ragtrace_collector.config import CollectorConfig
from tests.integration.cli import program
from tests.integration.collector.broken_metric import BROKEN
from tests.integration.collector.paid_judge import PAID, paid
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.integration.collector.test_operations import scrape, total
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

MINUTE = 60.0


def config(folder: Path, **changes: Any) -> CollectorConfig:
    return config_of(folder, **{"judge": {"use": "lexical"}, **changes})


async def coverage(spans: Stepped) -> dict[str, float]:
    """Return the share by metric as the metrics tell it."""
    readings = await spans.collector.vitals.readings()
    told = readings["ragtrace.evaluation.coverage"]
    return {each.attributes["gen_ai.evaluation.name"]: each.value for each in told}


async def judged(spans: Stepped, *numbers: int, answer: str = "Refunds take 14 days.") -> None:
    for number in numbers:
        await spans.send(*rag_trace(number, answer=answer))
    await spans.pass_time(1)


async def test_an_answer_of_which_a_metric_failed_is_judged_partly_wherever_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    evaluate = {"metrics": ["faithfulness", BROKEN]}
    async with running_collector(config(tmp_path, evaluate=evaluate)) as collector:
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
        await judged(spans, *range(40))
        await spans.pass_time(60 * MINUTE)
        assert await coverage(spans) == {}
        await judged(spans, 40, 41)
        assert await coverage(spans) == {"faithfulness": 1}
        judge.failure = JudgeUnavailable("no connection", usage=Usage())
        await judged(spans, 42, 43)
        assert await coverage(spans) == {"faithfulness": 0.5}
        await spans.pass_time(11 * MINUTE)
        assert await coverage(spans) == {"faithfulness": 0}
    async with stepped_collector(settings, clock=spans.clock) as again:
        assert await coverage(again) == {"faithfulness": 0}, "a restart forgets that answers wait"
        judge.failure = None
        await again.pass_time(60 * MINUTE)
        assert await coverage(again) == {"faithfulness": 1}
