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
from ragtrace.traces.trace import Span
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


PATIENT = {
    "evaluate": {"retry_delays": [], "probe_delays": ["24h"], "deadline": "12h"},
}


class Week:
    """A collector whose days a test lets pass, with some traffic on each."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped = stepped
        self.drift = stepped.collector.pipeline.drift
        self._answers = 0

    async def day(self, *, is_system_worse: bool = False) -> RunResult | None:
        """Let a day pass; return what its drift check showed."""
        for _ in range(20):
            self._answers += 1
            fact = f"Refunds of order {self._answers} take 14 days."
            answer = "Nobody ever pays anything back." if is_system_worse else fact
            await self.stepped.send(*rag_trace(self._answers, chunks=(fact,), answer=answer))
        await self.stepped.pass_time(DAY_S)
        await self.stepped.pass_time(5)  # what was judged just now is counted and delivered
        before = await self.runs()
        await self.drift.step()
        after = await self.runs()
        return after[-1] if len(after) > len(before) else None

    async def runs(self) -> list[RunResult]:
        return [run.result for run in await self.stepped.collector.pipeline.store.drift.runs()]

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


@pytest.mark.slow
async def test_a_judge_swapped_in_the_middle_of_a_week_is_judge_drift(
    tmp_path: Path, model: DriftingModel
) -> None:
    async with week(drift_config(tmp_path, model, **PATIENT)) as simulated:
        before = [await simulated.day() for _ in range(4)]
        model.strictness = 1.0  # another model behind the same name: all verdicts fall, and so does quality
        for _ in range(3):
            await simulated.day()
        assert simulated.passes(last=60) == 0
        assert before == [RunResult.BASELINE, *[RunResult.STEADY] * 3]
        assert set((await simulated.runs())[4:]) == {RunResult.DRIFTED}
        metrics = await simulated.metrics()
    assert metrics["ragtrace.drift.detected"] == 1
    assert metrics["ragtrace.drift.score faithfulness"] == 0
    assert metrics["ragtrace.drift.agreement"] == pytest.approx(8 / 24)


@pytest.mark.slow
async def test_a_system_made_worse_in_the_middle_of_a_week_is_no_judge_drift(
    tmp_path: Path, model: DriftingModel
) -> None:
    async with week(drift_config(tmp_path, model, **PATIENT)) as simulated:
        for _ in range(4):
            await simulated.day()
        assert simulated.passes(last=80) == 80
        for _ in range(3):
            await simulated.day(is_system_worse=True)
        assert simulated.passes(last=60) == 0
        assert set((await simulated.runs())[1:]) == {RunResult.STEADY}
        assert (await simulated.metrics())["ragtrace.drift.detected"] == 0


async def test_anchors_that_cannot_be_used_are_told_at_the_start(
    tmp_path: Path, model: DriftingModel
) -> None:
    few = str(write_anchors(tmp_path, number=4))
    for anchors, complaint in ((few, "has 4 answers"), (str(tmp_path / "none.jsonl"), "none.jsonl")):
        with pytest.raises(ConfigError, match=complaint):
            async with week(drift_config(tmp_path, model, drift={"anchors": anchors})):
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
    config = drift_config(tmp_path, model, drift={"budget": "60 calls"})
    async with week(config) as simulated:
        assert (await simulated.drift.run()).result is RunResult.BASELINE
        model.strictness = 1.0
        run = await simulated.drift.run()
        assert run.result is RunResult.PARTIAL
        assert run.over_budget > 0
        assert run.judged + run.over_budget == run.anchors == 24
        assert not (await simulated.drift.state()).is_drifted


async def test_a_failing_judge_is_no_drift(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        await simulated.day()
        model.is_broken = True
        run = await simulated.drift.run()
        assert (run.result, run.judged, run.failed) == (RunResult.FAILED, 0, 24)
        assert (await simulated.metrics())["ragtrace.drift.detected"] == 0


@pytest.mark.slow
async def test_replicas_that_take_turns_are_told_once_each(tmp_path: Path, model: DriftingModel) -> None:
    async with week(drift_config(tmp_path, model)) as simulated:
        for fingerprint in ("fp_a", "fp_b", "fp_a", "fp_b", "fp_a"):
            model.fingerprint = fingerprint
            await simulated.day()
        seen = await simulated.stepped.collector.pipeline.store.drift.seen_models()
        assert [model.fingerprint for model in seen] == ["fp_a", "fp_b"]
        assert (await simulated.metrics())["ragtrace.judge.model_changes openai:m"] == 1
