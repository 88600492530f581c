"""The drift check tells a changed judge from a changed system, in a real collector over simulated days."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.drift.runs import RunResult
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.drifting_model import DriftingModel, running_drifting_model, write_anchors
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import StandingClock, Stepped, stepped_collector
from tests.rag_spans import rag_trace

DAY_S = 86_400


@pytest.fixture
def model() -> Iterator[DriftingModel]:
    with running_drifting_model() as served:
        yield served


def drift_config(folder: Path, model: DriftingModel, **changes: Any) -> CollectorConfig:
    judge = {
        "use": "openai:m",
        "base_url": model.url,
        "api_key": "not-a-key",
        "sentinel_rate": 0,
        "cache": str(folder / "cache.db"),
    }
    drift = {"anchors": str(write_anchors(folder)), **changes.pop("drift", {})}
    return config_of(folder, judge=judge, drift=drift, **changes)


class Week:
    """A collector whose days a test lets pass, with some traffic on each."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped = stepped
        self.drift = stepped.collector.drift
        self._answers = 0

    async def day(self, *, is_system_worse: bool = False) -> RunResult | None:
        """Let a day pass; return what its drift check showed."""
        for _ in range(4):
            self._answers += 1
            fact = f"Refunds of order {self._answers} take 14 days."
            answer = "Nobody ever pays anything back." if is_system_worse else fact
            await self.stepped.send(*rag_trace(self._answers, chunks=(fact,), answer=answer))
        await self.stepped.pass_time(DAY_S)
        before = await self.runs()
        await self.drift.step()
        after = await self.runs()
        return after[-1] if len(after) > len(before) else None

    async def runs(self) -> list[RunResult]:
        return [run.result for run in await self.stepped.collector.store.drift.runs()]

    def passes(self, *, last: int) -> int:
        """Return how many of the last answers pass."""
        return [result_labels(span) for span in self.stepped.carriers()][-last:].count(["pass"])

    async def metrics(self) -> dict[str, float]:
        readings = await self.stepped.collector.vitals.readings()
        return {
            "".join([name, *(f" {value}" for value in one.attributes.values())]): one.value
            for name, found in readings.items()
            for one in found
            if "drift" in name or "model_changes" in name
        }


def result_labels(carrier: Span) -> list[object]:
    return [
        event.attributes[semconv.EVALUATION_LABEL]
        for event in carrier.events
        if semconv.EVALUATION_LABEL in event.attributes
    ]


@asynccontextmanager
async def week(config: CollectorConfig, clock: StandingClock | None = None) -> AsyncIterator[Week]:
    async with stepped_collector(config, clock=clock) as stepped:
        yield Week(stepped)


async def test_a_judge_swapped_in_the_middle_of_a_week_is_judge_drift(
    tmp_path: Path, model: DriftingModel
) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        before = [await simulated.day() for _ in range(4)]
        assert await simulated.drift.is_judge_steady()
        model.strictness = 1.0  # another model behind the same name: all verdicts fall, and so does quality
        after = [await simulated.day() for _ in range(3)]
        assert before == [RunResult.BASELINE, *[RunResult.STEADY] * 3]
        assert after == [RunResult.DRIFTED] * 3
        assert simulated.passes(last=12) == 0
        assert not await simulated.drift.is_judge_steady()
        metrics = await simulated.metrics()
    assert metrics["ragtrace.drift.detected"] == 1
    assert metrics["ragtrace.drift.score faithfulness"] == 0
    assert metrics["ragtrace.drift.agreement"] == pytest.approx(8 / 24)


async def test_a_system_made_worse_is_no_judge_drift(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        for _ in range(4):
            await simulated.day()
        assert simulated.passes(last=16) == 16
        after = [await simulated.day(is_system_worse=True) for _ in range(3)]
        assert simulated.passes(last=12) == 0
        assert after == [RunResult.STEADY] * 3
        assert await simulated.drift.is_judge_steady()
        assert (await simulated.metrics())["ragtrace.drift.detected"] == 0


async def test_before_an_alert_the_judge_is_checked_again_between_two_days(
    tmp_path: Path, model: DriftingModel
) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        for _ in range(4):
            await simulated.day()
        model.strictness = 1.0
        simulated.stepped.clock.time_ns += 7_200 * 10**9  # the next daily run is 22 hours away
        assert not await simulated.drift.is_judge_steady()
        asked = model.calls
        assert not await simulated.drift.is_judge_steady()
        assert model.calls == asked


async def test_anchors_are_never_answered_from_the_cache(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        await simulated.drift.run()
        first = model.calls
        await simulated.drift.run()
        assert model.calls >= first + 24


async def test_a_spent_budget_makes_a_run_partial_and_never_a_verdict(
    tmp_path: Path, model: DriftingModel
) -> None:
    config = drift_config(tmp_path, model, drift={"budget": {"calls": 60}})
    async with week(config) as simulated:
        assert (await simulated.drift.run()).result is RunResult.BASELINE
        model.strictness = 1.0
        run = await simulated.drift.run()
        assert run.result is RunResult.PARTIAL
        assert run.over_budget > 0
        assert run.judged + run.over_budget == run.anchors == 24
        assert await simulated.drift.is_judge_steady()


async def test_a_failing_judge_is_no_drift(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        await simulated.day()
        model.is_broken = True
        run = await simulated.drift.run()
        assert (run.result, run.judged, run.failed) == (RunResult.FAILED, 0, 24)
        assert (await simulated.metrics())["ragtrace.drift.detected"] == 0


async def test_another_evaluator_version_is_a_new_baseline_and_no_drift(
    tmp_path: Path, model: DriftingModel
) -> None:
    config, clock = drift_config(tmp_path, model), StandingClock()
    async with week(config, clock) as simulated:
        await simulated.day()
    model.strictness = 1.0
    judge = config.judge.model_copy(update={"extra_body": {"seed": 7}})
    async with week(config.model_copy(update={"judge": judge}), clock) as simulated:
        assert (await simulated.drift.run()).result is RunResult.BASELINE


async def test_a_restart_does_not_repeat_the_run_of_the_day(tmp_path: Path, model: DriftingModel) -> None:
    config, clock = drift_config(tmp_path, model), StandingClock()
    async with week(config, clock) as simulated:
        await simulated.drift.step()
    async with week(config, clock) as simulated:
        await simulated.drift.step()
        assert await simulated.runs() == [RunResult.BASELINE]


async def test_without_anchors_nothing_is_asked_and_the_judge_counts_as_steady(
    tmp_path: Path, model: DriftingModel
) -> None:
    async with week(drift_config(tmp_path, model, drift={"anchors": None})) as simulated:
        await simulated.drift.step()
        assert await simulated.drift.is_judge_steady()
        assert model.calls == 0


async def test_another_model_behind_the_same_name_is_told_once(
    tmp_path: Path, model: DriftingModel, caplog: pytest.LogCaptureFixture
) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        await simulated.day()
        assert (await simulated.metrics())["ragtrace.judge.model_changes openai:m"] == 0
        model.model = "m-2026-06-06"
        for _ in range(3):
            await simulated.day()
        assert (await simulated.metrics())["ragtrace.judge.model_changes openai:m"] == 1
    told = [line for line in caplog.messages if "now answered by m-2026-06-06" in line]
    assert len(told) == 1


async def test_replicas_that_take_turns_are_told_once_each(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        for fingerprint in ("fp_a", "fp_b", "fp_a", "fp_b", "fp_a"):
            model.fingerprint = fingerprint
            await simulated.day()
        seen = await simulated.stepped.collector.store.drift.seen_models()
        assert [model.fingerprint for model in seen] == ["fp_a", "fp_b"]
        assert (await simulated.metrics())["ragtrace.judge.model_changes openai:m"] == 1
