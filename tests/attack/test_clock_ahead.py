"""The machine's clock is wrong for a while: nothing that was judged goes, and nothing waits for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragtrace.answers.port import AnswerFilter
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import START_NS, rag_trace, trace_id_of

AHEAD_NS = 200 * 86_400 * 10**9


async def judge(stepped: Stepped, number: int) -> None:
    began = START_NS + (stepped.clock.time_ns - START_NS) // 10**9 * 10**9
    await stepped.send(*rag_trace(number, start_ns=began))
    await stepped.pass_time(60)
    await stepped.collector.pipeline._expire()


async def listed(stepped: Stepped) -> list[str]:
    page = await stepped.collector.pipeline.store.answers.page(AnswerFilter())
    return sorted(answer.key.trace_id for answer in page.answers)


@pytest.mark.slow
async def test_a_clock_that_is_far_ahead_at_the_start_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path, judge={"use": "lexical"}, index={"max_age": "168h"})
    async with stepped_collector(config) as stepped:
        await judge(stepped, 0)
    stepped.clock.wrong_by_ns = AHEAD_NS
    async with stepped_collector(config, clock=stepped.clock) as stepped:
        await stepped.collector.pipeline._expire()
        assert await listed(stepped) == [trace_id_of(0)]
    assert "200 days ahead of the newest judged answer" in caplog.text


@pytest.mark.slow
async def test_a_clock_that_was_set_back_over_a_restart_holds_up_no_retry(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"error": "judge_unavailable"}')
    config = config_of(
        tmp_path,
        judge={"use": f"scripted:{script}"},
        evaluate={"retry_delays": ["1m"], "probe_delays": ["1s"]},
    )
    async with stepped_collector(config) as stepped:
        await stepped.send(*rag_trace(0))
        await stepped.pass_time(5)
        assert await listed(stepped) == []
    stepped.clock.wrong_by_ns = -3600 * 10**9
    script.write_text("{}")
    async with stepped_collector(config, clock=stepped.clock) as stepped:
        await stepped.pass_time(120)
        assert await listed(stepped) == [trace_id_of(0)]
