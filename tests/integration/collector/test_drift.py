"""The drift check tells a changed judge from a changed system, in a real collector over simulated days."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.drift import RunResult
from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.drifting_model import DriftingModel, running_drifting_model, write_anchors
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import StandingClock, Stepped, stepped_collector
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

DAY_S = 86_400


@pytest.fixture
def model() -> Iterator[DriftingModel]:
    with running_drifting_model() as served:
        yield served


def drift_config(folder: Path, model: DriftingModel, **drift: Any) -> CollectorConfig:
    judge = {"use": "openai:m", "base_url": model.url, "api_key": "not-a-key", "sentinel_rate": 0}
    anchors = str(write_anchors(folder))
    judge["cache"] = str(folder / "cache.db")
    return config_of(folder, judge=judge, drift={"anchors": anchors, **drift})


class Week:
    """A collector whose days a test lets pass, with some traffic on each."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped = stepped
        self.drift = stepped.collector.pipeline.drift
        self._answers = 0

    async def days(self, number: int, *, is_system_worse: bool = False) -> set[RunResult]:
        """Let days pass; return what their drift checks showed, and see that all answers pass, or none."""
        before = len(await self.runs())
        for _ in range(number):
            for _ in range(10):
                self._answers += 1
                fact = f"Refunds of order {self._answers} take 14 days."
                answer = "Nobody ever pays anything back." if is_system_worse else fact
                await self.stepped.send(*rag_trace(self._answers, chunks=(fact,), answer=answer))
            await self.stepped.pass_time(DAY_S)
            await self.stepped.pass_time(5)  # what was judged just now is counted and delivered
            await self.drift.step()
        return set((await self.runs())[before:])

    async def runs(self) -> list[RunResult]:
        return [run.result for run in await self.stepped.collector.pipeline.store.drift.runs()]

    def passing(self) -> int:
        """Return how many of the last twenty answers pass."""
        return [span.attributes[semconv.PASS] for span in self.stepped.carriers()][-20:].count(True)

    async def metric(self, name: str) -> float:
        (reading,) = (await self.stepped.collector.vitals.readings())[name]
        return float(reading.value)


@asynccontextmanager
async def week(config: CollectorConfig, clock: StandingClock | None = None) -> AsyncIterator[Week]:
    async with stepped_collector(config, clock=clock) as stepped:
        yield Week(stepped)


@pytest.mark.parametrize("changed", ["judge", "system"])
async def test_a_changed_judge_is_drift_and_a_worse_system_is_none(
    tmp_path: Path, model: DriftingModel, changed: str
) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        assert await simulated.days(3) == {RunResult.BASELINE, RunResult.STEADY}
        assert simulated.passing() == 20
        model.strictness = float(changed == "judge")  # another model behind the same name
        found = await simulated.days(2, is_system_worse=changed == "system")
        assert simulated.passing() == 0, "quality falls in both cases"
        assert found == {RunResult.DRIFTED if changed == "judge" else RunResult.STEADY}
        assert await simulated.metric("ragtrace.drift.detected") == (changed == "judge")
        if changed == "judge":
            assert await simulated.metric("ragtrace.drift.score") == 0
            assert await simulated.metric("ragtrace.drift.agreement") == pytest.approx(8 / 24)


async def test_anchors_that_cannot_be_used_are_told_at_the_start(
    tmp_path: Path, model: DriftingModel
) -> None:
    few = str(write_anchors(tmp_path, number=4))
    for anchors, complaint in ((few, "has 4 answers"), (str(tmp_path / "none.jsonl"), "none.jsonl")):
        with pytest.raises(ConfigError, match=complaint):
            async with week(drift_config(tmp_path, model, anchors=anchors)):
                pass


async def test_anchors_are_never_answered_from_the_cache(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        await simulated.drift.run()
        first = model.calls
        await simulated.drift.run()
        assert model.calls >= first + 24


async def test_a_spent_budget_makes_a_run_partial_and_never_a_verdict(
    tmp_path: Path, model: DriftingModel
) -> None:
    async with week(drift_config(tmp_path, model, budget="60 calls")) as simulated:
        assert (await simulated.drift.run()).result is RunResult.BASELINE
        model.strictness = 1.0
        run = await simulated.drift.run()
        assert (run.result, run.over_budget > 0) == (RunResult.PARTIAL, True)
        assert run.judged + run.over_budget == run.anchors == 24
        assert not (await simulated.drift.state()).is_drifted


async def test_a_failing_judge_is_no_drift(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        await simulated.days(1)
        model.is_broken = True
        run = await simulated.drift.run()
        assert (run.result, run.judged, run.failed) == (RunResult.FAILED, 0, 24)
        assert await simulated.metric("ragtrace.drift.detected") == 0


async def test_another_model_behind_the_same_name_is_told_once(
    tmp_path: Path, model: DriftingModel, caplog: pytest.LogCaptureFixture
) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        for name, fingerprint in (("m-1", "fp_a"), ("m-2", "fp_b"), ("m-1", "fp_a"), ("m-2", "fp_b")):
            model.model, model.fingerprint = name, fingerprint
            await simulated.days(1)
        assert await simulated.metric("ragtrace.judge.model_changes") == 1
    assert len([line for line in caplog.messages if "now answered by m-2" in line]) == 1
