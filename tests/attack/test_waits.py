"""Waits that strangers ask for: each has an end, nothing stops for good, and what stopped is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragtrace.http import retry_after_s_of
from ragtrace.text import LONGEST_WAIT_S
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.operations.metrics import Measurement
from tests.acceptance.replies import ANSWER
from tests.attack.back_end import Answer, running_back_end
from tests.attack.hostile_judge import Said, hostile_judge, well
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
ABSURD = ["99999999999", "9" * 5_000, "86000", "Fri, 31 Dec 9999 23:59:59 GMT"]


def config(folder: Path, url: str, **changes: Any) -> CollectorConfig:
    own: dict[str, Any] = {
        "judge": {"use": "openai:m", "base_url": url, "sentinel_rate": 0},
        "evaluate": {"retry_delays": ["10s", "60s"], "probe_delays": ["5s", "20s"], "deadline": "1h"},
    }
    for key, value in changes.items():
        own[key] = {**own.get(key, {}), **value} if isinstance(value, Mapping) else value
    return config_of(folder, **own)


def pausing(wait: str, *, status: int = 429) -> Said:
    return Said(status=status, headers={"Retry-After": wait})


async def sent(spans: Stepped, *numbers: int) -> None:
    """Send answers, and let them be queued and judged as far as that is possible now."""
    for number in numbers:
        await spans.send(*rag_trace(number, answer=ANSWER))
    await spans.pass_time(1)


@given(header=st.text() | st.from_regex(r"[+-]?\d*[.e]?\d*", fullmatch=True))
@example(header="Fri, 31 Dec 9999 23:59:59 GMT")
@example(header="Mon, 01 Jan 99999999999 00:00:00 GMT")
@example(header="Mon, 01 Jan 2027 00:00:00 -9999")
@example(header="Sun, 01 Nov 2026 13:00:00")
@example(header="Sun, 01 Nov 2026 13:00:00 -0000")
@example(header="9" * 5_000)
@example(header="1e400")
def test_any_text_asks_for_a_wait_that_has_an_end_or_for_none(header: str) -> None:
    wait_s = retry_after_s_of(header, now=NOW)
    assert wait_s is None or 0 <= wait_s <= LONGEST_WAIT_S


async def test_a_judge_that_asks_for_ever_is_probed_and_used_as_soon_as_it_answers(tmp_path: Path) -> None:
    with hostile_judge(lambda _: pausing(ABSURD[0])) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url)) as spans:
            await sent(spans, 0, 1, 2)
            await spans.pass_time(5)
            assert await spans.outcomes() != {"judged": 3}
            judge.rule = well
            await spans.pass_time(20)
            assert await spans.outcomes() == {"judged": 3}
            assert spans.collector.counters.snapshot()["stage_errors"] == 0
            assert (await spans.collector.pipeline.store.ledger()).adds_up
        assert sorted(span.trace_id for span in spans.carriers()) == [trace_id_of(n) for n in range(3)]


async def test_while_it_waits_a_judge_is_asked_once_a_delay_and_answers_end_with_the_true_reason(
    tmp_path: Path,
) -> None:
    with hostile_judge(lambda _: pausing("99999999999", status=503)) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url, evaluate={"deadline": "10m"})) as spans:
            await sent(spans, *range(5))
            for _ in range(40):
                await spans.pass_time(20)
            assert await spans.outcomes() == {"failed:judge_unavailable": 5}
            ledger = await spans.collector.pipeline.store.ledger()
        assert (ledger.seen, ledger.adds_up) == (5, True)
        assert 5 < judge.requests <= 2 + 600 / 20


async def test_that_nothing_is_judged_is_said_until_the_judge_is_back(tmp_path: Path) -> None:
    with hostile_judge(lambda _: pausing("99999999999")) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url)) as spans:
            vitals = spans.collector.vitals
            before = await vitals.readiness()
            await sent(spans, 0, 1)
            told = []
            for _ in range(3):  # before, at and after a probe: no gap in it ends an alert's `for`
                ready = await vitals.readiness()
                stopped = {reading.attributes["why"]: reading.value for reading in await stops(spans)}
                told.append((ready.is_judging, " ".join(ready.notes), stopped))
                spans.clock.time_ns += 5_000_000_000
            await spans.work()
            judge.rule = well
            await spans.pass_time(20)
            after = await vitals.readiness()
            assert await spans.outcomes() == {"judged": 2}
    note = "nothing is judged, and answers wait on disk: failed:judge_unavailable"
    assert told == [(False, note, {"failed": 1, "over_budget": 0})] * 3
    assert [(each.is_judging, each.notes) for each in (before, after)] == [(True, ())] * 2


async def stops(spans: Stepped) -> Sequence[Measurement]:
    return (await spans.collector.vitals.readings())["ragtrace.judge.stopped"]


async def test_a_back_end_that_asks_for_ever_gets_its_spans_when_it_takes_them(tmp_path: Path) -> None:
    busy = Answer(status=503, headers={"Retry-After": ABSURD[3]})
    moods = iter([busy, busy])
    with running_back_end(lambda spans: next(moods, None) or Answer(took=spans)) as back_end:
        export = [{"endpoint": back_end.url}]
        async with stepped_collector(config_of(tmp_path, export=export)) as spans:
            await spans.send(*rag_trace(0))
            await spans.pass_time(1)
            for _ in range(2):
                await spans.pass_time(60)
            counted = spans.collector.counters.snapshot()
            ledger = await spans.collector.pipeline.store.ledger()
    assert back_end.times() == {trace_id_of(0): 1}
    assert (counted["deliveries_failed"], counted["stage_errors"]) == (2, 0)
    assert (ledger.by_name()["undelivered"], ledger.adds_up) == (0, True)
